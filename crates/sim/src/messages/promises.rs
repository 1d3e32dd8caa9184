//! What a broker promises, checked from outside: by what clients have sent and got.
//!
//! | promise | checked |
//! | --- | --- |
//! | A QoS 1 or 2 message that was acknowledged reaches every session that had subscribed | at the end |
//! | One that was sent to a shared subscription reaches a member | at the end |
//! | The will of a connection that is lost is published | at the end |
//! | A QoS 2 message reaches each once | with each message |
//! | Messages of one publisher to one topic with one QoS above 0 come in their order | with each message |
//! | A session is there exactly when it has to be, and none comes back | with each CONNACK |
//! | Subscriptions that were acknowledged stay, those that were given up are gone | with each message, at the end |
//! | Messages are in the queues of bindings as often as they have to be | at the end |
//! | Of each topic the last message that was acknowledged is retained, or a later one | at the end |

use std::collections::{BTreeMap, BTreeSet};

use super::bound;
use crate::network::ClientId;
use crate::packets::messages::{
    FILTERS, MessageNumber, SHARED, SHARED_TOPIC, TOPICS, Verdict, WILL_TOPIC, matches,
};
use crate::world::Checker;

/// A moment in a history.
type Step = u32;

/// What is known of all clients and messages, and the first promise that was broken.
pub struct Promises {
    clients: Vec<Beliefs>,
    messages: Vec<Published>,
    /// The QoS with which a client subscribes to a filter, always the same.
    levels: Vec<[u8; FILTERS.len()]>,
    /// How many messages to a topic were dropped for a client, and counted; without a topic: it was in the store only.
    dropped: BTreeMap<(ClientId, Option<usize>), usize>,
    /// How many messages to a topic were dropped for bindings, and counted; for each queue, as each may miss them.
    dropped_for_bindings: BTreeMap<(usize, usize), usize>,
    /// Wills that the broker has to publish, by the client whose they are, and whether its next connection may have
    /// replaced them in the store.
    wills: Vec<(ClientId, MessageNumber, bool)>,
    violation: Option<String>,
}

/// What a client may believe.
#[derive(Default)]
struct Beliefs {
    /// Whether its session outlives its connections.
    keeps: bool,
    expiry: Option<u64>,
    /// Counts its sessions.
    incarnation: u32,
    /// The session that it has been told of last.
    birth: Option<u64>,
    /// Something in the session has been acknowledged, so it must not be lost.
    anchored: bool,
    subscriptions: BTreeMap<usize, Subscribed>,
    /// When they may have changed last.
    changed: Step,
    /// A SUBSCRIBE or UNSUBSCRIBE has not been answered.
    asks: bool,
    /// Messages received in this session, and whether with QoS 2.
    seen: BTreeMap<MessageNumber, bool>,
    /// The last message by publisher, its incarnation, topic, and QoS published and delivered.
    last: BTreeMap<(ClientId, u32, usize, u8, u8), MessageNumber>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscribed {
    /// Asked for, or asked to go.
    Perhaps,
    /// Acknowledged.
    Surely,
    /// Acknowledged to be gone, since then.
    Gone(Step),
}

/// A message that was published.
pub struct Published {
    publisher: ClientId,
    topic: usize,
    qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// An empty payload.
    pub removes: bool,
    /// When it may have expired, in milliseconds.
    pub expires_at: Option<u64>,
    incarnation: u32,
    first_sent: Step,
    acknowledged: Option<Step>,
    /// Who had subscribed before it was published, in which session, and with which filters.
    owed: BTreeMap<ClientId, (u32, BTreeSet<usize>)>,
    /// Members of the shared subscription, before it was published and ever since. While there is one, somebody gets it.
    members: BTreeSet<ClientId>,
    /// Somebody has got it.
    reached: bool,
    /// Its publisher was refused, although the refusal may have been lost. If it comes again, it may
    /// come after others.
    refused: bool,
    /// Its publisher's session may have expired since: what it sends again is new.
    of_expired: bool,
}

impl Published {
    /// A message to a topic, by its index, with a QoS.
    pub fn new(publisher: ClientId, topic: usize, qos: u8) -> Self {
        Self {
            publisher,
            topic,
            qos,
            retain: false,
            removes: false,
            expires_at: None,
            incarnation: 0,
            first_sent: 0,
            acknowledged: None,
            owed: BTreeMap::new(),
            members: BTreeSet::new(),
            reached: false,
            refused: false,
            of_expired: false,
        }
    }
}

impl Checker for Promises {
    fn violation(&mut self) -> &mut Option<String> {
        &mut self.violation
    }

    fn crashed(&mut self) {
        for (_, number, _) in self.wills.extract_if(.., |(.., is_replaced)| *is_replaced) {
            self.messages[number as usize - 1].owed.clear();
        }
    }

    fn messages(&self) -> u32 {
        u32::try_from(self.messages.len()).expect("histories are short")
    }
}

impl Promises {
    /// For clients with these Session Expiry Intervals, and the QoS of each of their subscriptions.
    pub fn new(expiries: Vec<Option<u64>>, levels: Vec<[u8; FILTERS.len()]>) -> Self {
        let beliefs = |expiry| Beliefs { keeps: expiry != Some(0), expiry, ..Beliefs::default() };
        let clients = expiries.into_iter().map(beliefs).collect();
        Self {
            clients,
            messages: Vec::new(),
            levels,
            dropped: BTreeMap::new(),
            dropped_for_bindings: BTreeMap::new(),
            wills: Vec::new(),
            violation: None,
        }
    }

    /// The QoS with which a client subscribes to a filter.
    pub fn level(&self, client: ClientId, filter: usize) -> u8 {
        self.levels[client][filter]
    }

    /// A message is published for the first time. Answers its number.
    pub fn publish(&mut self, mut message: Published, now: Step) -> MessageNumber {
        message.first_sent = now;
        message.incarnation = self.clients[message.publisher].incarnation;
        for (client, beliefs) in self.clients.iter().enumerate() {
            let must = |(filter, state): (&usize, &Subscribed)| {
                let is_own = *filter != SHARED && matches(*filter, message.topic);
                (*state == Subscribed::Surely && is_own).then_some(*filter)
            };
            let filters: BTreeSet<usize> = beliefs.subscriptions.iter().filter_map(must).collect();
            if !filters.is_empty() {
                message.owed.insert(client, (beliefs.incarnation, filters));
            }
            let is_member = beliefs.subscriptions.get(&SHARED) == Some(&Subscribed::Surely);
            if is_member && message.topic == SHARED_TOPIC && message.qos > 0 {
                message.members.insert(client);
            }
        }
        self.messages.push(message);
        self.messages()
    }

    /// PUBACK or PUBREC has come.
    pub fn acknowledged(
        &mut self,
        client: ClientId,
        number: MessageNumber,
        verdict: Verdict,
        now: Step,
    ) {
        let message = self.message(number);
        match verdict {
            Verdict::Done => drop(message.acknowledged.get_or_insert(now)),
            Verdict::Refused => {
                message.owed.clear();
                message.members.clear();
            }
        }
        if message.qos == 2 && verdict == Verdict::Done {
            self.clients[client].anchored = true;
        }
    }

    /// The broker has to publish a will of a client, sooner or later.
    pub fn will_is_due(&mut self, client: ClientId, number: MessageNumber, now: Step) {
        self.message(number).acknowledged.get_or_insert(now);
        self.wills.push((client, number, false));
    }

    /// A client connects again. What its session had to leave behind is replaced in the store, at which moment a crash may
    /// lose it.
    pub fn connects(&mut self, client: ClientId) {
        let of_client = |(of, ..): &&mut (ClientId, MessageNumber, bool)| *of == client;
        for (.., is_replaced) in self.wills.iter_mut().filter(of_client) {
            *is_replaced = true;
        }
    }

    /// Whether a client has subscribed to anything and heard so.
    pub fn is_subscriber(&self, client: ClientId) -> bool {
        let mut subscriptions = self.clients[client].subscriptions.values();
        subscriptions.any(|state| *state == Subscribed::Surely)
    }

    /// SUBSCRIBE is sent.
    pub fn subscribing(&mut self, client: ClientId, filter: usize) {
        self.clients[client].asks = true;
        let subscriptions = &mut self.clients[client].subscriptions;
        if subscriptions.get(&filter) != Some(&Subscribed::Surely) {
            subscriptions.insert(filter, Subscribed::Perhaps);
        }
    }

    /// SUBACK has come.
    pub fn subscribed(&mut self, client: ClientId, filter: usize, verdict: Verdict, now: Step) {
        self.answered(client, now);
        if verdict == Verdict::Done {
            self.clients[client].subscriptions.insert(filter, Subscribed::Surely);
            self.clients[client].anchored = true;
        }
    }

    /// UNSUBSCRIBE is sent. What is acknowledged already is owed nevertheless.
    pub fn unsubscribing(&mut self, client: ClientId, filter: usize) {
        self.clients[client].asks = true;
        self.clients[client].subscriptions.insert(filter, Subscribed::Perhaps);
        if filter == SHARED {
            self.is_no_member(client);
        }
        // When a will is published that is due is known by nobody.
        let is_open = |message: &&mut Published| {
            message.acknowledged.is_none() || message.topic == WILL_TOPIC
        };
        for message in self.messages.iter_mut().filter(is_open) {
            if let Some((_, filters)) = message.owed.get_mut(&client) {
                filters.remove(&filter);
                if filters.is_empty() {
                    message.owed.remove(&client);
                }
            }
        }
    }

    /// UNSUBACK has come. `existed`: something has gone by that.
    pub fn unsubscribed(&mut self, client: ClientId, filter: usize, existed: bool, now: Step) {
        self.answered(client, now);
        self.clients[client].subscriptions.insert(filter, Subscribed::Gone(now));
        self.clients[client].anchored |= existed;
    }

    /// A request has taken effect, or never will.
    fn answered(&mut self, client: ClientId, now: Step) {
        let beliefs = &mut self.clients[client];
        if std::mem::take(&mut beliefs.asks) {
            beliefs.changed = now;
        }
    }

    /// A client gives its session up, or hears that it has a new one.
    pub fn begin_session(&mut self, client: ClientId) {
        let Beliefs { keeps, expiry, incarnation, birth, .. } = self.clients[client];
        let incarnation = incarnation + 1;
        self.clients[client] = Beliefs { keeps, expiry, incarnation, birth, ..Beliefs::default() };
        for message in &mut self.messages {
            message.owed.remove(&client);
        }
        self.is_no_member(client);
    }

    /// A client is no member of the shared subscription any more, or was none for a time.
    fn is_no_member(&mut self, client: ClientId) {
        for message in &mut self.messages {
            message.members.remove(&client);
        }
    }

    /// CONNACK has come `now`, `away` milliseconds after the connection before was lost. False: the client's
    /// session has not been resumed.
    pub fn connected(
        &mut self,
        client: ClientId,
        clean_start: bool,
        (present, birth): (bool, u64),
        (away, now): (u64, Step),
    ) -> bool {
        self.answered(client, now);
        let beliefs = &mut self.clients[client];
        let known = beliefs.birth.replace(birth);
        let in_time = beliefs.expiry.is_none_or(|expiry| away < expiry);
        let must = beliefs.anchored && beliefs.keeps && !clean_start && in_time;
        if !in_time {
            // It had expired, perhaps, and is back because a disk failed to hear of it. Nobody was told.
            for message in &mut self.messages {
                message.owed.remove(&client);
                message.members.remove(&client);
                message.of_expired |= message.publisher == client;
            }
        }
        if present && (clean_start || !beliefs.keeps) {
            self.violate(format!("c{client} has begun a new session and hears Session Present 1"));
        } else if present && known.is_some_and(|known| birth < known) {
            self.violate(format!("session {birth} of c{client} has come back from the dead"));
        } else if !present && must {
            self.violate(format!("the session of c{client} is lost"));
        }
        // A session may have begun by a CONNECT whose CONNACK did not come.
        present && known.is_none_or(|known| known == birth)
    }

    /// A message has come.
    pub fn delivered(&mut self, client: ClientId, number: MessageNumber, qos: u8, retain: bool) {
        self.message(number).reached = true;
        let message = &self.messages[number as usize - 1];
        let beliefs = &mut self.clients[client];
        let asked = beliefs.subscriptions.iter().any(|(filter, state)| {
            matches(*filter, message.topic)
                && match state {
                    Subscribed::Gone(since) => retain || message.first_sent < *since,
                    _ => true,
                }
        });
        let mut broken = (!asked).then_some("and had not subscribed to it");
        if !retain {
            let before = beliefs.seen.get(&number).copied();
            beliefs.seen.insert(number, before.unwrap_or(false) || qos == 2);
            match before {
                // One member may have it before a crash, and another after it.
                Some(true) if message.of_expired || message.topic == SHARED_TOPIC => {}
                Some(true) => broken = Some("twice, and had it with QoS 2"),
                // With QoS 1 it may come twice, also if the client subscribes with QoS 2 meanwhile.
                Some(false) => {}
                None => {
                    let Published { publisher, incarnation, topic, .. } = *message;
                    let key = (publisher, incarnation, topic, message.qos, qos);
                    let last = beliefs.last.entry(key).or_default();
                    // Who subscribes later, or with another QoS, may get it when it is sent again.
                    let in_order = *last < number
                        || beliefs.asks
                        || message.first_sent <= beliefs.changed
                        || message.refused
                        // What one member gave back comes behind what the other has.
                        || topic == SHARED_TOPIC
                        || topic == WILL_TOPIC
                        // The first copy may have expired, and the next one later.
                        || message.expires_at.is_some()
                        || self.dropped.contains_key(&(client, Some(topic)))
                        || self.dropped.contains_key(&(client, None))
                        || !message.owed.contains_key(&client);
                    // With QoS 0 the first copy may have been lost.
                    if !in_order && qos > 0 {
                        broken = Some("after a later one of the same publisher");
                    }
                    *last = number.max(*last);
                }
            }
        }
        if let Some(broken) = broken {
            self.violate(format!("c{client} gets m{number} {broken}"));
        }
    }

    /// The broker takes a message from its publisher no more.
    pub fn refused(&mut self, number: MessageNumber) {
        self.message(number).refused = true;
    }

    /// Messages to a topic are refused, and perhaps nobody hears of it: it may be any that is not acknowledged.
    pub fn refused_to(&mut self, topic: usize) {
        let on_its_way = |message: &&mut Published| message.acknowledged.is_none();
        for message in self.messages.iter_mut().filter(on_its_way) {
            message.refused |= message.topic == topic;
        }
    }

    /// A message to a topic was dropped for a client, and counted.
    pub fn dropped(&mut self, client: ClientId, topic: Option<usize>) {
        *self.dropped.entry((client, topic)).or_default() += 1;
    }

    /// A message to a topic was dropped for a binding, and counted.
    pub fn dropped_for_binding(&mut self, topic: usize) {
        for queue in 0..bound::QUEUES.len() {
            *self.dropped_for_bindings.entry((queue, topic)).or_default() += 1;
        }
    }

    /// Everything has been delivered that ever will be.
    pub fn all_is_delivered(&mut self, now: u64) {
        let mut missing = BTreeMap::<(ClientId, usize), Vec<MessageNumber>>::new();
        for (message, number) in self.messages.iter().zip(1..) {
            let expired = message.expires_at.is_some_and(|at| at <= now);
            for (client, (incarnation, filters)) in &message.owed {
                let beliefs = &self.clients[*client];
                let kept = |filter: &usize| message.qos.min(self.levels[*client][*filter]) > 0;
                if message.acknowledged.is_some()
                    && beliefs.keeps
                    && filters.iter().any(kept)
                    && *incarnation == beliefs.incarnation
                    && !expired
                    && !beliefs.seen.contains_key(&number)
                {
                    missing.entry((*client, message.topic)).or_default().push(number);
                }
            }
        }
        let is_lost = |(message, _): &(&Published, MessageNumber)| {
            let expired = message.expires_at.is_some_and(|at| at <= now);
            message.acknowledged.is_some()
                && !message.members.is_empty()
                && !message.reached
                && !expired
        };
        let lost: Vec<_> =
            self.messages.iter().zip(1..).filter(is_lost).map(|(_, number)| number).collect();
        let dropped = |((_, topic), dropped): (&(ClientId, Option<usize>), &usize)| {
            if topic.is_none_or(|topic| topic == SHARED_TOPIC) { *dropped } else { 0 }
        };
        if lost.len() > self.dropped.iter().map(dropped).sum() {
            self.violate(format!("m{lost:?} were acknowledged and reached no member"));
        }
        for ((client, topic), numbers) in missing {
            let mut unexplained = numbers.len();
            for of in [Some(topic), None] {
                let dropped = self.dropped.entry((client, of)).or_default();
                let explained = unexplained.min(*dropped);
                *dropped -= explained;
                unexplained -= explained;
            }
            if unexplained > 0 {
                self.violate(format!(
                    "m{numbers:?} were acknowledged and did not all reach c{client}: {unexplained} were not dropped"
                ));
            }
        }
    }

    /// What a broker says in the end that a client has subscribed to.
    pub fn has_subscribed(&mut self, client: ClientId, found: &BTreeSet<usize>) {
        for (filter, name) in FILTERS.iter().enumerate() {
            let wrong = match self.clients[client].subscriptions.get(&filter) {
                Some(Subscribed::Surely) => !found.contains(&filter),
                Some(Subscribed::Perhaps) => false,
                Some(Subscribed::Gone(_)) | None => found.contains(&filter),
            };
            if wrong {
                self.violate(format!(
                    "the subscription of c{client} to {name} is not as acknowledged"
                ));
            }
        }
    }

    /// What a broker has retained in the end.
    pub fn has_retained(&mut self, topic: usize, found: Option<MessageNumber>) {
        let retained = |message: &&Published| message.retain && message.topic == topic;
        let may_be_last = |message: &Published| {
            let earlier = |other: &Published| {
                let end = message.acknowledged.unwrap_or(Step::MAX);
                other.acknowledged.is_some() && other.first_sent > end
            };
            !self.messages.iter().filter(retained).any(earlier)
        };
        let right = match found {
            Some(number) => may_be_last(&self.messages[number as usize - 1]),
            None => {
                let mut removals =
                    self.messages.iter().filter(retained).filter(|message| message.removes);
                let any = self
                    .messages
                    .iter()
                    .filter(retained)
                    .any(|message| message.acknowledged.is_some());
                !any || removals.any(may_be_last)
            }
        };
        if !right {
            let topic = TOPICS[topic];
            self.violate(format!(
                "{found:?} is retained for {topic}, and a later one was acknowledged"
            ));
        }
    }

    /// Checks, at the end, how often each message is in the queues that bindings fill.
    pub fn has_queued(&mut self, found: &bound::Found) {
        let mut wrong = Vec::new();
        for (message, number) in self.messages.iter().zip(1..) {
            // Those that have expired may be gone.
            if !bound::takes(message.topic) || message.qos == 0 || message.expires_at.is_some() {
                continue;
            }
            // A session that no store has forgets in a crash what it has received.
            let once =
                message.qos == 2 && self.clients[message.publisher].keeps && !message.of_expired;
            for (queue, (name, copies)) in bound::QUEUES.iter().enumerate() {
                let count = found.get(&(queue, number)).copied().unwrap_or(0);
                let missing =
                    if message.acknowledged.is_some() { copies.saturating_sub(count) } else { 0 };
                let dropped = self.dropped_for_bindings.entry((queue, message.topic)).or_default();
                let is_explained = missing <= *dropped;
                *dropped = dropped.saturating_sub(missing);
                if !is_explained || (count > *copies && once) {
                    wrong.push(format!("m{number} is {count} times in {name}, and not {copies}"));
                }
            }
        }
        wrong.into_iter().for_each(|wrong| self.violate(wrong));
    }

    fn message(&mut self, number: MessageNumber) -> &mut Published {
        &mut self.messages[number as usize - 1]
    }
}
