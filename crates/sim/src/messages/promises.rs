//! The promises of a broker, checked from outside: by what clients send and receive.
//!
//! | promise | checked |
//! | --- | --- |
//! | An acknowledged QoS 1 or 2 message reaches every session that had subscribed | at the end |
//! | An acknowledged message to a shared subscription reaches a member | at the end |
//! | The will of a connection that is lost is published | at the end |
//! | A QoS 2 message reaches each session once | with each message |
//! | Messages of one publisher to one topic with the same QoS above 0 arrive in order | with each message |
//! | Session Present is right, and no ended session comes back | with each CONNACK |
//! | Acknowledged subscriptions stay, and subscriptions whose end was acknowledged are gone | with each message, at the end |
//! | Each queue of a binding has the right number of copies of a message | at the end |
//! | The retained message of each topic is the last acknowledged one, or a later one | at the end |

use std::collections::{BTreeMap, BTreeSet};

use super::bound;
use crate::network::ClientId;
use crate::packets::messages::{
    FILTERS, MessageNumber, SHARED, SHARED_TOPIC, TOPICS, Verdict, WILL_TOPIC, matches,
};
use crate::world::Checker;

/// Number of a step in a history.
type Step = u32;

/// The known facts about all clients and messages, and the first promise that was broken.
pub struct Promises {
    clients: Vec<Beliefs>,
    messages: Vec<Published>,
    /// The QoS with which each client subscribes to each filter. It does not change.
    levels: Vec<[u8; FILTERS.len()]>,
    /// Number of messages that the broker reported as dropped, by client and topic. The topic is `None` if the
    /// message was in the store only.
    dropped: BTreeMap<(ClientId, Option<usize>), usize>,
    /// Number of messages that the broker reported as dropped for bindings, by queue and topic. A drop counts
    /// for each queue, because each may miss the message.
    dropped_for_bindings: BTreeMap<(usize, usize), usize>,
    /// Wills that the broker has to publish, with their client, and whether the next connection of the client
    /// may have replaced the will in the store.
    wills: Vec<(ClientId, MessageNumber, bool)>,
    violation: Option<String>,
}

/// What a client can know about the broker's state.
#[derive(Default)]
struct Beliefs {
    /// Whether the session outlives connections.
    keeps: bool,
    expiry: Option<u64>,
    /// Number of sessions that the client has had.
    incarnation: u32,
    /// Number of the session in the last CONNACK.
    birth: Option<u64>,
    /// Whether anything in the session was acknowledged, so that the session must not be lost.
    anchored: bool,
    subscriptions: BTreeMap<usize, Subscribed>,
    /// The last step in which the subscriptions may have changed.
    changed: Step,
    /// Whether a SUBSCRIBE or UNSUBSCRIBE is not answered yet.
    asks: bool,
    /// Messages received in this session, and whether any copy had QoS 2.
    seen: BTreeMap<MessageNumber, bool>,
    /// The last message by publisher, incarnation of the publisher, topic, published QoS, and delivered QoS.
    last: BTreeMap<(ClientId, u32, usize, u8, u8), MessageNumber>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscribed {
    /// The SUBSCRIBE or UNSUBSCRIBE is not answered, or was refused.
    Perhaps,
    /// The subscription is acknowledged.
    Surely,
    /// The end of the subscription was acknowledged in this step.
    Gone(Step),
}

/// A message that was published.
pub struct Published {
    publisher: ClientId,
    topic: usize,
    qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// Whether the payload is empty, so that the retained message is removed.
    pub removes: bool,
    /// The earliest time at which it may have expired, in milliseconds.
    pub expires_at: Option<u64>,
    incarnation: u32,
    first_sent: Step,
    acknowledged: Option<Step>,
    /// Clients that had subscribed before it was published, with their incarnation and filters.
    owed: BTreeMap<ClientId, (u32, BTreeSet<usize>)>,
    /// Clients that were members of the shared subscription before it was published and ever since. If there is
    /// one, some member must get it.
    members: BTreeSet<ClientId>,
    /// Whether any client has got it.
    reached: bool,
    /// Whether it was refused. The refusal may have been lost. If the publisher sends it again, it may arrive
    /// after later messages.
    refused: bool,
    /// Whether the session of its publisher may have expired since then. If so, a repetition counts as a new
    /// message.
    of_expired: bool,
}

impl Published {
    /// Creates a message to a topic, by its index.
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
    /// Creates the checker for clients with these Session Expiry Intervals, and with these QoS of their
    /// subscriptions.
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

    /// Returns the QoS with which a client subscribes to a filter.
    pub fn level(&self, client: ClientId, filter: usize) -> u8 {
        self.levels[client][filter]
    }

    /// Records that a message is published for the first time. Returns its number.
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

    /// Records that PUBACK or PUBREC has arrived.
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

    /// Records that the broker must publish a will of a client, at some time.
    pub fn will_is_due(&mut self, client: ClientId, number: MessageNumber, now: Step) {
        self.message(number).acknowledged.get_or_insert(now);
        self.wills.push((client, number, false));
    }

    /// Records that a client connects again. The store replaces the will of its previous connection, and a
    /// crash at that moment may lose the will.
    pub fn connects(&mut self, client: ClientId) {
        let of_client = |(of, ..): &&mut (ClientId, MessageNumber, bool)| *of == client;
        for (.., is_replaced) in self.wills.iter_mut().filter(of_client) {
            *is_replaced = true;
        }
    }

    /// Whether a client has an acknowledged subscription.
    pub fn is_subscriber(&self, client: ClientId) -> bool {
        let mut subscriptions = self.clients[client].subscriptions.values();
        subscriptions.any(|state| *state == Subscribed::Surely)
    }

    /// Records that SUBSCRIBE is sent.
    pub fn subscribing(&mut self, client: ClientId, filter: usize) {
        self.clients[client].asks = true;
        let subscriptions = &mut self.clients[client].subscriptions;
        if subscriptions.get(&filter) != Some(&Subscribed::Surely) {
            subscriptions.insert(filter, Subscribed::Perhaps);
        }
    }

    /// Records that SUBACK has arrived.
    pub fn subscribed(&mut self, client: ClientId, filter: usize, verdict: Verdict, now: Step) {
        self.answered(client, now);
        if verdict == Verdict::Done {
            self.clients[client].subscriptions.insert(filter, Subscribed::Surely);
            self.clients[client].anchored = true;
        }
    }

    /// Records that UNSUBSCRIBE is sent. The client must still get the messages that are acknowledged already.
    pub fn unsubscribing(&mut self, client: ClientId, filter: usize) {
        self.clients[client].asks = true;
        self.clients[client].subscriptions.insert(filter, Subscribed::Perhaps);
        if filter == SHARED {
            self.is_no_member(client);
        }
        // Nobody knows when the broker publishes a will that is due, so a will counts as not acknowledged here.
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

    /// Records that UNSUBACK has arrived. `existed` says that it has ended a subscription.
    pub fn unsubscribed(&mut self, client: ClientId, filter: usize, existed: bool, now: Step) {
        self.answered(client, now);
        self.clients[client].subscriptions.insert(filter, Subscribed::Gone(now));
        self.clients[client].anchored |= existed;
    }

    /// Records that a SUBSCRIBE or UNSUBSCRIBE has taken effect, or never will.
    fn answered(&mut self, client: ClientId, now: Step) {
        let beliefs = &mut self.clients[client];
        if std::mem::take(&mut beliefs.asks) {
            beliefs.changed = now;
        }
    }

    /// Records that a client gives up its session, or learns that it has a new one.
    pub fn begin_session(&mut self, client: ClientId) {
        let Beliefs { keeps, expiry, incarnation, birth, .. } = self.clients[client];
        let incarnation = incarnation + 1;
        self.clients[client] = Beliefs { keeps, expiry, incarnation, birth, ..Beliefs::default() };
        for message in &mut self.messages {
            message.owed.remove(&client);
        }
        self.is_no_member(client);
    }

    /// Records that a client is not a member of the shared subscription, or was not for a time.
    fn is_no_member(&mut self, client: ClientId) {
        for message in &mut self.messages {
            message.members.remove(&client);
        }
    }

    /// Records that CONNACK arrives in step `now`. The broker sent it `away` milliseconds after the previous
    /// connection was lost. Returns false if the client's session was not resumed.
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
            // The session may have expired, and be back because its removal failed on the disk. No client was
            // told of the expiry.
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
        // A session may have begun with a CONNECT whose CONNACK did not arrive.
        present && known.is_none_or(|known| known == birth)
    }

    /// Records that a message reaches a client.
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
                // One member may get it before a crash, and another one after it.
                Some(true) if message.of_expired || message.topic == SHARED_TOPIC => {}
                Some(true) => broken = Some("twice, and had it with QoS 2"),
                // With QoS 1 it may arrive twice, also if the client has subscribed with QoS 2 in the meantime.
                Some(false) => {}
                None => {
                    let Published { publisher, incarnation, topic, .. } = *message;
                    let key = (publisher, incarnation, topic, message.qos, qos);
                    let last = beliefs.last.entry(key).or_default();
                    // A client that subscribes later, or with another QoS, may get it when it is sent again.
                    let in_order = *last < number
                        || beliefs.asks
                        || message.first_sent <= beliefs.changed
                        || message.refused
                        // Messages that one member leaves to another arrive after those that the other one has.
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

    /// Records that the broker refuses a message of a publisher.
    pub fn refused(&mut self, number: MessageNumber) {
        self.message(number).refused = true;
    }

    /// Records that messages to a topic are refused. The refusal may not reach the publisher, so it concerns
    /// every message to the topic that is not acknowledged.
    pub fn refused_to(&mut self, topic: usize) {
        let on_its_way = |message: &&mut Published| message.acknowledged.is_none();
        for message in self.messages.iter_mut().filter(on_its_way) {
            message.refused |= message.topic == topic;
        }
    }

    /// Records that the broker reported a message as dropped for a client.
    pub fn dropped(&mut self, client: ClientId, topic: Option<usize>) {
        *self.dropped.entry((client, topic)).or_default() += 1;
    }

    /// Records that the broker reported a message as dropped for a binding.
    pub fn dropped_for_binding(&mut self, topic: usize) {
        for queue in 0..bound::QUEUES.len() {
            *self.dropped_for_bindings.entry((queue, topic)).or_default() += 1;
        }
    }

    /// Checks, at the end, that all messages have reached their subscribers. `now` is the time in milliseconds.
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

    /// Checks, at the end, the filters that a client has subscribed to according to the broker.
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

    /// Checks, at the end, the message that a broker has retained for a topic.
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

    /// Checks, at the end, the number of copies of each message in the queues that bindings fill.
    pub fn has_queued(&mut self, found: &bound::Found) {
        let mut wrong = Vec::new();
        for (message, number) in self.messages.iter().zip(1..) {
            // Messages that have expired may be gone.
            if !bound::takes(message.topic) || message.qos == 0 || message.expires_at.is_some() {
                continue;
            }
            // A session that is not stored loses its received identifiers in a crash.
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
