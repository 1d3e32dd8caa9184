//! What the clients of a cluster were promised.
//!
//! - A message of QoS 1 or 2 that was acknowledged reaches with QoS 1 or 2 each session that had the subscription before it
//!   was published, if the session does not end. Excepted are the stored sessions of a broker that was down for the broker of
//!   the publisher between the publication and its acknowledgement; they may get it later, out of order. Other sessions of
//!   such a broker end, unless all other brokers have crashed meanwhile, and so have forgotten that it was down.
//! - With QoS 2 it reaches each session once, unless the publisher's broker has crashed or has begun a new life meanwhile.
//!   A message of QoS 0 arrives once at most.
//! - A session gets the messages that a client publishes to a topic, with the same QoS, in their order. Those from before
//!   its subscription, and those that it gets with QoS 0, may come later, when they are repeated.
//! - A stored session stays, until its client connects to any broker with Clean Start, and is back after that only if its
//!   broker could not be reached.

use std::collections::{BTreeMap, BTreeSet};

use super::NODES;
use crate::network::ClientId;
use crate::packets::messages::{MessageNumber, matches};
use crate::world::Checker;

/// Number of a session, unique in the history.
pub type SessionId = usize;

/// The order of what has happened.
pub type Moment = u64;

/// A time, which may go on.
type Gap = (Moment, Option<Moment>);

/// The checker.
#[derive(Default)]
pub struct Promises {
    violation: Option<String>,
    now: Moment,
    messages: Vec<Message>,
    sessions: Vec<Session>,
    /// The times in which a broker has not known the subscriptions of another one; the last one may go on.
    gaps: BTreeMap<(usize, usize), Vec<Gap>>,
    /// When a broker has crashed, or begun a new life.
    upsets: Vec<(usize, Moment)>,
    /// Number of deliveries.
    pub deliveries: u64,
}

struct Message {
    client: ClientId,
    session: SessionId,
    topic: usize,
    qos: u8,
    sent: Moment,
    acknowledged: Option<Moment>,
    /// The brokers to which it was sent.
    nodes: BTreeSet<usize>,
}

struct Session {
    client: ClientId,
    is_stored: bool,
    node: usize,
    filter: usize,
    /// The QoS of the subscription.
    level: u8,
    is_alive: bool,
    /// The times in which it was perhaps about to end.
    doubts: Vec<(Moment, Moment)>,
    /// When the subscription was acknowledged.
    subscribed: Option<Moment>,
    received: BTreeMap<MessageNumber, u32>,
    /// The last new message of a publisher's session to a topic, with a QoS.
    last: BTreeMap<(SessionId, usize, u8), MessageNumber>,
}

impl Checker for Promises {
    fn violation(&mut self) -> &mut Option<String> {
        &mut self.violation
    }

    fn messages(&self) -> u32 {
        u32::try_from(self.messages.len()).expect("histories are short")
    }
}

impl Promises {
    /// The present moment.
    pub fn moment(&self) -> Moment {
        self.now
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// A session begins at a broker.
    pub fn begins(
        &mut self,
        (client, is_stored): (ClientId, bool),
        node: usize,
        (filter, level): (usize, u8),
    ) -> SessionId {
        let (received, last) = (BTreeMap::new(), BTreeMap::new());
        let subscribed = None;
        self.sessions.push(Session {
            client,
            is_stored,
            node,
            filter,
            level,
            is_alive: true,
            doubts: Vec::new(),
            subscribed,
            received,
            last,
        });
        self.sessions.len() - 1
    }

    /// A session ends.
    pub fn ends(&mut self, session: SessionId) {
        self.sessions[session].is_alive = false;
    }

    /// A session was perhaps about to end since then, when its broker crashed. It has not got the messages of that time.
    pub fn has_survived(&mut self, session: SessionId, since: Moment) {
        let now = self.tick();
        self.sessions[session].doubts.push((since, now));
    }

    /// The subscription of a session is acknowledged.
    pub fn subscribed(&mut self, session: SessionId) {
        let now = self.tick();
        self.sessions[session].subscribed.get_or_insert(now);
    }

    /// Whether the subscription of a session is acknowledged.
    pub fn is_subscribed(&self, session: SessionId) -> bool {
        self.sessions[session].subscribed.is_some()
    }

    /// Returns the number of the next message.
    pub fn next(&self) -> MessageNumber {
        self.messages() + 1
    }

    /// A client publishes the next message.
    pub fn publishes(&mut self, session: SessionId, topic: usize, qos: u8, node: usize) {
        let (sent, client) = (self.tick(), self.sessions[session].client);
        let (acknowledged, nodes) = (None, BTreeSet::from([node]));
        self.messages.push(Message { client, session, topic, qos, sent, acknowledged, nodes });
    }

    /// A client sends a message once more.
    pub fn repeats(&mut self, message: MessageNumber, node: usize) {
        self.messages[message as usize - 1].nodes.insert(node);
    }

    /// A message is acknowledged.
    pub fn acknowledged(&mut self, message: MessageNumber) {
        let now = self.tick();
        self.messages[message as usize - 1].acknowledged.get_or_insert(now);
    }

    /// A broker knows the subscriptions of another one, or it does not.
    pub fn knows(&mut self, node: usize, other: usize, knows: bool) {
        let now = self.tick();
        let gaps = self.gaps.entry((node, other)).or_default();
        match gaps.last_mut() {
            Some((_, end @ None)) if knows => *end = Some(now),
            Some((_, None)) => {}
            _ if !knows => gaps.push((now, None)),
            _ => {}
        }
    }

    /// Whether a broker has always known the subscriptions of another one since then.
    pub fn has_known(&self, node: usize, other: usize, since: Moment) -> bool {
        let last = self.gaps.get(&(node, other)).and_then(|gaps| gaps.last());
        last.is_none_or(|(_, to)| to.is_some_and(|to| to < since))
    }

    /// A broker has crashed, or begun a new life.
    pub fn is_upset(&mut self, node: usize) {
        let now = self.tick();
        self.upsets.push((node, now));
    }

    /// A client takes a message as received.
    pub fn received(&mut self, session: SessionId, number: MessageNumber, qos: u8) {
        self.deliveries += 1;
        let now = self.tick();
        let (message, of) = (&self.messages[number as usize - 1], &self.sessions[session]);
        let is_upset =
            |(node, at): &(usize, Moment)| *at > message.sent && message.nodes.contains(node);
        let is_once = message.qos == 2 && qos == 2 && !self.upsets.iter().any(is_upset);
        let is_in_order = of.subscribed.is_some_and(|at| at < message.sent)
            && (qos > 0 || message.qos == 0)
            && !self.is_excused(of, message, now);
        let of = &mut self.sessions[session];
        let count = of.received.entry(number).or_default();
        *count += 1;
        let (count, client) = (*count, of.client);
        if count > 1 && (message.qos == 0 || is_once) {
            let qos = message.qos;
            self.violate(format!("c{client} has m{number} of QoS {qos} {count} times"));
        } else if count == 1 && is_in_order {
            let last = of.last.entry((message.session, message.topic, message.qos)).or_default();
            let before = std::mem::replace(last, (*last).max(number));
            if before > number {
                let publisher = message.client;
                let what = format!("c{client} has m{number} of c{publisher} behind m{before}");
                self.violate(what);
            }
        }
    }

    /// Whether a session need not have got a message, because its broker was down for that of the publisher between the
    /// publication and `until`.
    fn is_excused(&self, session: &Session, message: &Message, until: Moment) -> bool {
        let mut others = message.nodes.iter().filter(|node| **node != session.node);
        others.any(|node| {
            let mut gaps = self.gaps.get(&(*node, session.node)).into_iter().flatten();
            gaps.any(|(from, to)| {
                *from <= until
                    && to.is_none_or(|to| to >= message.sent)
                    && (session.is_stored || self.is_forgotten(session, *from))
            })
        })
    }

    /// Whether all brokers that may have held that of a session down since then have forgotten it.
    fn is_forgotten(&self, session: &Session, since: Moment) -> bool {
        let has_forgotten = |node| self.upsets.iter().any(|(of, at)| *of == node && *at > since);
        (0..NODES).filter(|node| *node != session.node).all(has_forgotten)
    }

    /// Checks what can be checked only at the end.
    pub fn check_end(&mut self) {
        let mut missing = None;
        for session in self.sessions.iter().filter(|session| session.is_alive) {
            let Some(subscribed) = session.subscribed else { continue };
            for (number, message) in (1..).zip(&self.messages) {
                let Some(acknowledged) = message.acknowledged else { continue };
                let mut doubts = session.doubts.iter();
                let is_due = !doubts.any(|(from, to)| acknowledged >= *from && message.sent <= *to)
                    && message.qos.min(session.level) > 0
                    && matches(session.filter, message.topic)
                    && subscribed < message.sent;
                if !is_due || session.received.contains_key(&number) {
                    continue;
                }
                if !self.is_excused(session, message, acknowledged) {
                    missing.get_or_insert((number, message.client, session.client, session.node));
                }
            }
        }
        if let Some((number, publisher, client, node)) = missing {
            self.violate(format!(
                "m{number} of c{publisher} was acknowledged, and c{client} at b{node} has not got it"
            ));
        }
    }
}
