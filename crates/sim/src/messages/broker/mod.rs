//! A broker on one thread: the real core, joined by the rules of [`rules`](crate::rules).
//!
//! Each call is something that happens at once; whoever calls decides what happens next, and when the
//! process ends. What is in a [`Broker`] is then gone, and another one is [started](Broker::start) from the disks.

mod publish;
mod recovery;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_core::message::Message;
use barid_core::queue::QueueLimits;
use barid_core::retained::RetainedStore;
use barid_core::time::MonoTime;
use barid_core::topic_index::{SubscribeOptions, Subscriber, TopicIndex};
use mqtt_proto::QoS;

use crate::durable::Durable;
use crate::history::{Event, History};
use crate::network::{ClientId, LinkId};
use crate::packets::messages::{FILTERS, MessageNumber, Packet, Verdict, qos};
use crate::rules::{IfHolds as _, Rule};
use crate::world::{self, Broker as _};
use publish::Job;
use session::{Home, Link, Moment, Session};

pub use recovery::{Picture, Remains, Remembered, remains};
pub use session::Effects;

/// Names a session in the life of the process.
type SessionKey = u64;

/// A session, as the topic index sees it.
#[derive(Clone)]
struct Handle(SessionKey);

impl Subscriber for Handle {
    fn key(&self) -> u64 {
        self.0
    }
}

/// What a broker is set to.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What a session's queue holds.
    pub limits: QueueLimits,
    /// Bytes of messages that wait in memory; beyond, they are in the store only.
    pub in_memory_max: usize,
}

/// The broker's process.
pub struct Broker {
    settings: Settings,
    durable: Durable,
    index: TopicIndex<Handle>,
    /// All sessions that have not ended.
    sessions: BTreeMap<SessionKey, Session>,
    /// Which one a client has.
    by_client: BTreeMap<ClientId, SessionKey>,
    retained: RetainedStore<Arc<Message>>,
    /// Messages that are being handed on.
    jobs: Vec<Job>,
    next_key: SessionKey,
    /// Sessions that ever began, also before the process did.
    births: u64,
    now: MonoTime,
    /// What has left the broker since somebody looked.
    pub effects: Effects,
}

impl world::Broker<Packet> for Broker {
    fn set_time(&mut self, now: u64) {
        self.now = MonoTime::from_millis(now);
    }

    fn receive(&mut self, client: ClientId, link: LinkId, packet: Packet) -> bool {
        if let Packet::Connect { clean_start, expiry, receive_maximum } = packet {
            self.connect(client, link, (clean_start, expiry, receive_maximum));
            return true;
        }
        let Some(key) = self.owned(client, link) else { return true };
        let is_busy = self.jobs.iter().any(|job| job.link == link);
        if is_busy && self.durable.rules().hold(Rule::HandOnInOrder) {
            return false;
        }
        if matches!(packet, Packet::Publish { .. }) {
            return self.on_publish(link, key, packet);
        }
        let session = self.sessions.get_mut(&key).expect("a client's session has not ended");
        let (durable, effects) = (&mut self.durable, &mut self.effects);
        match packet {
            Packet::PubRel(id) => {
                let forgotten = match session.received.contains(id) {
                    true => session.release(durable, id),
                    // It may have been released a moment ago, on another connection.
                    false if session.stored.is_some() => durable.last_changes(),
                    false => Commits::default(),
                };
                let forgotten = forgotten.if_holds(durable.rules(), Rule::CompleteWhenForgotten);
                session.answer(durable, effects, link, (forgotten, Packet::PubComp(id)));
            }
            Packet::Subscribe(id, filter, level) => {
                self.subscribe(key, link, (id, filter, qos(level)))
            }
            Packet::Unsubscribe(id, filter) => {
                session.subscriptions.remove(&filter);
                self.index.unsubscribe(FILTERS[filter], key);
                let gone = session.store_subscription(durable, filter, None);
                let gone = gone.if_holds(durable.rules(), Rule::AnswerSubscribeWhenDurable);
                session.answer(durable, effects, link, (gone, Packet::UnsubAck(id)));
            }
            acknowledgement => {
                session.acknowledge(durable, effects, acknowledgement);
                session.drain(durable, effects, self.now);
            }
        }
        true
    }

    fn lose(&mut self, client: ClientId, link: LinkId) {
        let Some(key) = self.owned(client, link) else { return };
        let session = self.sessions.get_mut(&key).expect("it is owned");
        session.link = None;
        session.away_since = Some(self.now);
        session.store(&mut self.durable);
        if session.stored.is_none() {
            self.end(key);
        }
    }

    fn commit(&mut self, shard: u16, history: &mut History) {
        if self.durable.advance(shard, history) {
            for session in self.sessions.values_mut() {
                if session.release_held(&self.durable, &mut self.effects) {
                    session.drain(&mut self.durable, &mut self.effects, self.now);
                }
            }
        }
    }

    fn is_written(&self) -> bool {
        self.durable.is_written()
    }
}

impl Broker {
    /// The session of a client, if `link` is the connection that has it.
    fn owned(&self, client: ClientId, link: LinkId) -> Option<SessionKey> {
        let key = *self.by_client.get(&client)?;
        let present = self.sessions[&key].link.as_ref()?;
        (present.id == link).then_some(key)
    }

    /// Resumes the session of a client, or begins a new one (MQTT 5 §3.1.2.4). A connection that the
    /// client had before has it no longer.
    fn connect(
        &mut self,
        client: ClientId,
        link: LinkId,
        (clean_start, expiry, receive_maximum): (bool, Option<u64>, u16),
    ) {
        let home = self.durable.shard_of(client);
        let old = self.by_client.get(&client).copied();
        let resumed = old.filter(|old| !clean_start && self.sessions[old].stored.is_some());
        if resumed.is_none() && expiry != Some(0) && self.durable.refuses(home) {
            let refusal = Packet::ConnAck { present: None, birth: 0 };
            self.effects.packets.push((client, link, refusal));
            return;
        }
        if let Some(old) = old.filter(|_| resumed.is_none()) {
            self.end(old);
        }
        let key = resumed.unwrap_or_else(|| self.begin(client, expiry));
        let rules = self.durable.rules();
        // A session that has just expired must not come back either.
        let mut awaited = match resumed {
            None => Commits::one(home, self.durable.last_change(home))
                .if_holds(rules, Rule::ConnectWhenGone),
            Some(_) => Commits::default(),
        };
        let session = self.sessions.get_mut(&key).expect("it has just been found or begun");
        session.away_since = None;
        session.fetching = None;
        let noted = session.store(&mut self.durable);
        if resumed.is_some() && session.expiry.is_some() {
            awaited.join(&noted.if_holds(rules, Rule::ConnectWhenNotedAsPresent));
        }
        let connack = Packet::ConnAck { present: Some(resumed.is_some()), birth: session.birth };
        session.link = Some(Link::new(link, awaited, connack));
        session.outbound.resume(receive_maximum);
        if session.release_held(&self.durable, &mut self.effects) {
            session.drain(&mut self.durable, &mut self.effects, self.now);
        }
    }

    /// Begins a session.
    fn begin(&mut self, client: ClientId, expiry: Option<u64>) -> SessionKey {
        let shard = self.durable.shard_of(client);
        let stored = (expiry != Some(0))
            .then(|| Home { shard, number: self.durable.change(shard).0.new_session_number() });
        self.births += 1;
        let session = Session::new(client, self.births, stored, expiry);
        self.add(session)
    }

    fn add(&mut self, session: Session) -> SessionKey {
        self.next_key += 1;
        self.by_client.insert(session.client, self.next_key);
        self.sessions.insert(self.next_key, session);
        self.next_key
    }

    /// Ends a session.
    fn end(&mut self, key: SessionKey) {
        let Some(mut session) = self.sessions.remove(&key) else { return };
        for filter in session.subscriptions.keys() {
            self.index.unsubscribe(FILTERS[*filter], key);
        }
        session.forget(&mut self.durable);
        self.by_client.remove(&session.client);
    }

    fn subscribe(&mut self, key: SessionKey, link: LinkId, (id, filter, qos): (u16, usize, QoS)) {
        let session = self.sessions.get_mut(&key).expect("a client's session has not ended");
        let (durable, effects) = (&mut self.durable, &mut self.effects);
        if session.stored.is_some_and(|home| durable.refuses(home.shard)) {
            let refusal = (Commits::default(), Packet::SubAck(id, Verdict::Refused));
            session.answer(durable, effects, link, refusal);
            return;
        }
        session.subscriptions.insert(filter, qos);
        self.index.subscribe(FILTERS[filter], &Handle(key), options(qos));
        let mut found = Vec::new();
        self.retained.for_each_match(FILTERS[filter], |_, message| {
            found.push((Arc::clone(message), message.qos().min(qos)));
        });
        let noted = session.store_subscription(durable, filter, Some(qos));
        session.replay(durable, self.now, found);
        let noted = noted.if_holds(durable.rules(), Rule::AnswerSubscribeWhenDurable);
        session.answer(durable, effects, link, (noted, Packet::SubAck(id, Verdict::Done)));
        session.drain(durable, effects, self.now);
    }

    /// Ends the sessions whose clients have been away for too long.
    pub fn expire(&mut self, history: &mut History) {
        let is_over = |session: &Session| match (session.away_since, session.expiry) {
            (Some(since), Some(expiry)) => since.after(Duration::from_millis(expiry)) <= self.now,
            _ => false,
        };
        let over: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_over(session))
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            history.note(Event::Expired(self.sessions[&key].client));
            self.end(key);
        }
    }

    /// How many messages are being handed on.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Messages that the `index`-th of the sessions that wait for some are read back from the store.
    pub fn fetch(&mut self, index: usize) {
        let mut waiting = self.sessions.values_mut().filter(|session| session.fetching.is_some());
        if let Some(session) = waiting.nth(index) {
            session.supply(&mut self.durable, &mut self.effects);
            session.drain(&mut self.durable, &mut self.effects, self.now);
        }
    }

    /// How many sessions wait for messages from the store.
    pub fn fetches(&self) -> usize {
        self.sessions.values().filter(|session| session.fetching.is_some()).count()
    }

    /// Whether nothing is left to be done.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.fetches() == 0 && self.is_written()
    }

    /// The retained message of a topic.
    pub fn retained(&self, topic: &str) -> Option<MessageNumber> {
        self.retained.get(topic).map(|message| message_number(message))
    }

    /// What a client has subscribed to, and with which QoS; none: it has no session.
    pub fn subscriptions(&self, client: ClientId) -> Option<&BTreeMap<usize, QoS>> {
        let key = self.by_client.get(&client)?;
        Some(&self.sessions[key].subscriptions)
    }

    fn moment(&self) -> Moment {
        let queues = self.sessions.values().map(|session| session.outbound.queue());
        let in_memory: usize = queues.map(|queue| queue.bytes_in_memory()).sum();
        Moment {
            now: self.now,
            limits: self.settings.limits,
            in_memory: in_memory < self.settings.in_memory_max,
        }
    }
}

/// The client identifier of a client.
fn client_id(client: ClientId) -> String {
    format!("c{client}")
}

/// Which message it is.
fn message_number(message: &Message) -> MessageNumber {
    let number = message.publication().properties.try_into();
    MessageNumber::from_be_bytes(number.expect("messages are made with their number"))
}

fn options(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, no_local: false, retain_as_published: false, identifier: None }
}
