//! A session: what it notes, what it sends, and what it keeps back until something is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::drop_reason::DropReason;
use barid_core::durable::{SessionRecord, Shard, SubscriptionRecord};
use barid_core::ids::{PacketId, SessionNumber, StoredAs};
use barid_core::message::Message;
use barid_core::queue::QueueLimits;
use barid_core::session::{
    Acked, Delivery, Journal, Outbound, Outgoing, Phase, ReceivedIds, Waiting,
};
use barid_core::time::MonoTime;
use mqtt_proto::QoS;
use smallvec::SmallVec;

use super::message_number;
use crate::durable::{Durable, TENANT_NUMBER};
use crate::network::{ClientId, LinkId};
use crate::packets::messages::{FILTERS, MessageNumber, Packet, TOPICS};
use crate::rules::{IfHolds as _, Rule};

/// A broker's session of one client.
pub struct Session {
    pub client: ClientId,
    /// Which one it is, of all in a history.
    pub birth: u64,
    /// As what it is stored, if it outlives its connections.
    pub stored: Option<Home>,
    /// Session Expiry Interval in milliseconds; none: never.
    pub expiry: Option<u64>,
    /// Since when its client is away.
    pub away_since: Option<MonoTime>,
    /// Filters, by their index, and the QoS granted.
    pub subscriptions: BTreeMap<usize, QoS>,
    /// What is on its way to the client.
    pub outbound: Outbound,
    /// QoS 2 messages received from the client and not released.
    pub received: ReceivedIds,
    /// The connection of its client.
    pub link: Option<Link>,
    /// What is being read back from the store.
    pub fetching: Option<Vec<StoredAs>>,
    /// Entries that are gone from the store before their time, when a rule is broken.
    gone_early: BTreeSet<u64>,
}

/// Where a session is stored.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    pub shard: u16,
    pub number: SessionNumber,
}

/// A session's connection: two lanes of packets, each in order, that wait for something to be durable.
pub struct Link {
    pub id: LinkId,
    /// CONNACK and acknowledgements.
    answers: VecDeque<(Commits, Packet)>,
    /// PUBLISH and PUBREL.
    deliveries: VecDeque<(Commits, Packet)>,
    /// CONNACK has not left, so nothing else may.
    opening: bool,
}

/// What leaves the broker.
#[derive(Default)]
pub struct Effects {
    pub packets: Vec<(ClientId, LinkId, Packet)>,
    pub dropped: Vec<(ClientId, MessageNumber, DropReason)>,
    pub refused: Vec<MessageNumber>,
}

/// What holds for all sessions at this moment.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now: MonoTime,
    pub limits: QueueLimits,
    /// Whether there is memory for messages that wait.
    pub in_memory: bool,
}

impl Link {
    /// A connection that gets a CONNACK first.
    pub fn new(id: LinkId, awaited: Commits, connack: Packet) -> Self {
        let answers = VecDeque::from([(awaited, connack)]);
        Self { id, answers, deliveries: VecDeque::new(), opening: true }
    }
}

impl Session {
    pub fn new(client: ClientId, birth: u64, stored: Option<Home>, expiry: Option<u64>) -> Self {
        Self {
            client,
            birth,
            stored,
            expiry,
            away_since: None,
            subscriptions: BTreeMap::new(),
            outbound: Outbound::new(0, stored.is_some()),
            received: ReceivedIds::default(),
            link: None,
            fetching: None,
            gone_early: BTreeSet::new(),
        }
    }

    /// Notes the session itself.
    pub fn store(&self, durable: &mut Durable) -> Commits {
        let Some(home) = self.stored else { return Commits::default() };
        let (shard, batch) = durable.change(home.shard);
        let record = SessionRecord {
            number: home.number,
            // Not a user here, but what the checkers know the session by.
            user: Some(self.birth.to_string().into()),
            expiry: self.expiry.map_or(u32::MAX, |millis| {
                u32::try_from(millis).expect("histories are shorter than 49 days")
            }),
            away_since: self.away_since,
            will: None,
            replays: Vec::new(),
        };
        shard.put_session(TENANT_NUMBER, &super::client_id(self.client), record);
        Commits::one(home.shard, batch)
    }

    /// Subscribes, or with `None` unsubscribes, in the store.
    pub fn store_subscription(
        &self,
        durable: &mut Durable,
        filter: usize,
        qos: Option<QoS>,
    ) -> Commits {
        let Some(home) = self.stored else { return Commits::default() };
        let (shard, batch) = durable.change(home.shard);
        let filter = FILTERS[filter];
        match qos {
            Some(qos) => {
                let record = SubscriptionRecord {
                    qos,
                    no_local: false,
                    retain_as_published: false,
                    identifier: None,
                };
                shard.put_subscription(TENANT_NUMBER, home.number, filter, record);
            }
            None => shard.remove_subscription(TENANT_NUMBER, home.number, filter),
        }
        Commits::one(home.shard, batch)
    }

    /// Notes that a QoS 2 message was released, in all shards that know of it.
    pub fn release(&mut self, durable: &mut Durable, id: PacketId) -> Commits {
        let mut awaited = Commits::default();
        let shards = self.received.release(id);
        if let (Some(shards), Some(home)) = (shards, self.stored) {
            for index in shards.iter() {
                let (shard, batch) = durable.change(index);
                shard.remove_received(TENANT_NUMBER, home.number, id);
                awaited.add(index, batch);
            }
        }
        awaited
    }

    /// Notes that the session has gone with all that it has. From now on nothing of it is stored.
    pub fn forget(&mut self, durable: &mut Durable) {
        let Some(home) = self.stored else { return };
        for filter in self.subscriptions.keys() {
            self.store_subscription(durable, *filter, None);
        }
        let ids: Vec<PacketId> = self.received.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.release(durable, id);
        }
        let (shard, _) = durable.change(home.shard);
        for (stored, released) in self.outbound.stored() {
            if !self.gone_early.contains(&stored.entry.get()) {
                shard.remove_entry(TENANT_NUMBER, home.number, stored, released);
            }
        }
        shard.remove_session(TENANT_NUMBER, &super::client_id(self.client));
        self.stored = None;
    }

    /// A message for this session: it leaves at once, or waits, or is dropped. `stored` is its number
    /// in the session's shard, if it is to be stored.
    pub fn offer(
        &mut self,
        durable: &mut Durable,
        effects: &mut Effects,
        moment: Moment,
        message: &Arc<Message>,
        (qos, stored): (QoS, Option<u64>),
    ) {
        let stored = stored.map(|message| StoredAs { entry: self.outbound.new_entry(), message });
        let delivery = Delivery {
            message: Arc::clone(message),
            qos,
            retain: false,
            identifiers: SmallVec::new(),
            shared: None,
            stored,
            queued_at: moment.now,
            after: None,
        };
        let number = message_number(message);
        let has_way =
            self.outbound.is_idle() && self.link.as_ref().is_some_and(|link| !link.opening);
        if has_way && qos == QoS::AtMostOnce {
            self.send(durable, effects, Commits::default(), publish(&delivery, 0, false));
            return;
        }
        if has_way && self.outbound.has_room() {
            let kept = self.outbound.survives().then(|| Box::new(Waiting::Here(delivery.clone())));
            let (outbound, mut notes) = self.notes(durable);
            let id = outbound.reserve(qos, kept, &mut notes).expect("the window has room");
            let awaited = notes.awaited(qos == QoS::ExactlyOnce && stored.is_some());
            let awaited = awaited.if_holds(durable.rules(), Rule::SendQos2WhenDurable);
            self.send(durable, effects, awaited, publish(&delivery, id, false));
            return;
        }
        if self.link.is_none() && (qos == QoS::AtMostOnce || !self.outbound.survives()) {
            effects.dropped.push((self.client, number, DropReason::Offline));
            return;
        }
        let mut lost = Vec::new();
        let (outbound, mut notes) = self.notes(durable);
        let Moment { now, limits, in_memory } = moment;
        outbound.enqueue(delivery, in_memory, now, &limits, &mut notes, |reason, waiting| {
            lost.push((reason, waiting.clone()));
        });
        self.dropped(durable, effects, &lost);
    }

    /// Retained messages for a new subscription.
    pub fn replay(
        &mut self,
        durable: &mut Durable,
        now: MonoTime,
        messages: Vec<(Arc<Message>, QoS)>,
    ) {
        let mut deliveries = Vec::new();
        for (message, qos) in messages {
            let mut delivery = Delivery {
                message,
                qos,
                retain: true,
                identifiers: SmallVec::new(),
                shared: None,
                stored: None,
                queued_at: now,
                after: None,
            };
            if let (Some(home), true) = (self.stored, qos != QoS::AtMostOnce) {
                let entry = self.outbound.new_entry();
                let id = durable.change(home.shard).0.new_message_ids(1);
                durable.names.insert((home.shard, id), message_number(&delivery.message));
                delivery.stored = Some(StoredAs { entry, message: id });
                self.notes(durable).1.put(&delivery, None);
            }
            deliveries.push(delivery);
        }
        self.outbound.replay(deliveries);
    }

    /// Sends what waits, as far as the client takes it.
    pub fn drain(&mut self, durable: &mut Durable, effects: &mut Effects, now: MonoTime) {
        while self.link.as_ref().is_some_and(|link| !link.opening) {
            let mut lost = Vec::new();
            let (outbound, mut notes) = self.notes(durable);
            let next = outbound
                .next(now, &mut notes, |reason, waiting| lost.push((reason, waiting.clone())));
            let (awaited, packet, rule) = match &next {
                None | Some(Outgoing::Fetch) => {
                    (Commits::default(), None, Rule::SendQos2WhenDurable)
                }
                Some(Outgoing::Publish { delivery, id, dup }) => {
                    let waits = delivery.qos == QoS::ExactlyOnce && delivery.stored.is_some();
                    let packet = publish(delivery, id.unwrap_or(0), *dup);
                    (notes.awaited(waits), Some(packet), Rule::SendQos2WhenDurable)
                }
                Some(Outgoing::PubRel(id)) => {
                    let packet = Packet::PubRel(*id);
                    (notes.awaited(true), Some(packet), Rule::ReleaseWhenDurable)
                }
            };
            self.dropped(durable, effects, &lost);
            if next == Some(Outgoing::Fetch) && self.fetching.is_none() {
                self.fetching = Some(self.outbound.missing(3, usize::MAX));
            }
            let Some(packet) = packet else { return };
            self.send(durable, effects, awaited.if_holds(durable.rules(), rule), packet);
        }
    }

    /// What was to be read back is here.
    pub fn supply(&mut self, durable: &mut Durable, effects: &mut Effects) {
        let (Some(home), Some(wanted)) = (self.stored, self.fetching.take()) else { return };
        let read = |stored: StoredAs| (stored, durable.message(home.shard, stored.message));
        let fetched: Vec<_> = wanted.into_iter().map(read).collect();
        let mut lost = Vec::new();
        let (outbound, mut notes) = self.notes(durable);
        outbound
            .supply(&fetched, &mut notes, |reason, waiting| lost.push((reason, waiting.clone())));
        self.dropped(durable, effects, &lost);
    }

    /// The client acknowledges a message.
    pub fn acknowledge(&mut self, durable: &mut Durable, effects: &mut Effects, packet: Packet) {
        let (outbound, mut notes) = self.notes(durable);
        match packet {
            Packet::PubAck(id, _) => drop(outbound.on_puback(id, &mut notes)),
            Packet::PubComp(id) => drop(outbound.on_pubcomp(id, &mut notes)),
            Packet::PubRec(id, _) => {
                let acked = outbound.on_pubrec(id, true, &mut notes);
                assert_ne!(acked, Acked::OutOfTurn, "clients answer what they were sent");
                let awaited = notes.awaited(acked == Acked::Expected);
                let awaited = awaited.if_holds(durable.rules(), Rule::ReleaseWhenDurable);
                self.send(durable, effects, awaited, Packet::PubRel(id));
            }
            _ => unreachable!("no other packet acknowledges a message"),
        }
    }

    /// Answers the client's packet of the connection `link`, when what is awaited is durable.
    pub fn answer(
        &mut self,
        durable: &Durable,
        effects: &mut Effects,
        link: LinkId,
        (awaited, packet): (Commits, Packet),
    ) {
        if let Some(present) = self.link.as_mut().filter(|present| present.id == link) {
            present.answers.push_back((awaited, packet));
            self.release_held(durable, effects);
        }
    }

    fn send(&mut self, durable: &Durable, effects: &mut Effects, awaited: Commits, packet: Packet) {
        if let Some(link) = &mut self.link {
            link.deliveries.push_back((awaited, packet));
            self.release_held(durable, effects);
        }
    }

    /// Lets those packets go for which all is durable. True: CONNACK was among them.
    pub fn release_held(&mut self, durable: &Durable, effects: &mut Effects) -> bool {
        let Some(link) = &mut self.link else { return false };
        let was_opening = link.opening;
        for lane in [&mut link.answers, &mut link.deliveries] {
            while lane.front().is_some_and(|(awaited, _)| durable.has(awaited)) {
                let (_, packet) = lane.pop_front().expect("it was just looked at");
                effects.packets.push((self.client, link.id, packet));
                // CONNACK is the first answer.
                link.opening = false;
            }
            if link.opening {
                return false;
            }
        }
        was_opening
    }

    /// What is on its way to the client, and where it notes its changes.
    fn notes<'a>(&'a mut self, durable: &'a mut Durable) -> (&'a mut Outbound, Notes<'a>) {
        let notes =
            Notes { durable, home: self.stored, noted: false, gone_early: &mut self.gone_early };
        (&mut self.outbound, notes)
    }

    fn dropped(&self, durable: &Durable, effects: &mut Effects, lost: &[(DropReason, Waiting)]) {
        for (reason, waiting) in lost {
            let number = match (waiting, self.stored) {
                (Waiting::Here(delivery), _) => message_number(&delivery.message),
                (Waiting::Away(stub), Some(home)) => {
                    durable.names[&(home.shard, stub.stored.message)]
                }
                (Waiting::Away(_), None) => unreachable!("it is in no store"),
            };
            effects.dropped.push((self.client, number, *reason));
        }
    }
}

/// Notes the changes of a session's deliveries in its shard.
struct Notes<'a> {
    durable: &'a mut Durable,
    home: Option<Home>,
    noted: bool,
    gone_early: &'a mut BTreeSet<u64>,
}

impl Notes<'_> {
    fn shard(&mut self) -> Option<(&mut Shard, SessionNumber)> {
        let home = self.home?;
        self.noted = true;
        Some((self.durable.change(home.shard).0, home.number))
    }

    /// The batch that has what was noted, for a packet that `waits` for it. If nothing was noted now, it
    /// may have been a moment ago, on another connection.
    fn awaited(self, waits: bool) -> Commits {
        match self.home {
            Some(home) if waits => Commits::one(home.shard, self.durable.last_change(home.shard)),
            _ => Commits::default(),
        }
    }

    /// Removes a QoS 1 entry as soon as it is sent, when the rule against it is broken.
    fn remove_early(&mut self, delivery: &Delivery) {
        let breaks = !self.durable.rules().hold(Rule::KeepUntilAcknowledged);
        let Some(stored) = delivery.stored.filter(|_| breaks && delivery.qos == QoS::AtLeastOnce)
        else {
            return;
        };
        self.removed(stored, false);
        self.gone_early.insert(stored.entry.get());
    }
}

impl Journal for Notes<'_> {
    fn put(&mut self, delivery: &Delivery, sent: Option<PacketId>) {
        let phase = sent.map_or(Phase::Waiting, Phase::Sent);
        let (Some(stored), Some(record)) = (delivery.stored, delivery.to_record(phase)) else {
            return;
        };
        if let Some((shard, number)) = self.shard() {
            let entry = stored.entry.get();
            shard.put_entry(TENANT_NUMBER, number, entry, record, &delivery.message);
        }
        if sent.is_some() {
            self.remove_early(delivery);
        }
    }

    fn sent(&mut self, delivery: &Delivery, id: PacketId) {
        let (Some(stored), Some(record)) = (delivery.stored, delivery.to_record(Phase::Sent(id)))
        else {
            return;
        };
        if let Some((shard, number)) = self.shard() {
            shard.update_entry(TENANT_NUMBER, number, stored.entry.get(), record);
        }
        self.remove_early(delivery);
    }

    fn released(&mut self, stored: StoredAs, id: PacketId) {
        let keeps = self.durable.rules().hold(Rule::KeepReleased);
        let Some((shard, number)) = self.shard() else { return };
        if keeps {
            shard.release_entry(TENANT_NUMBER, number, stored, id);
        } else {
            shard.remove_entry(TENANT_NUMBER, number, stored, false);
        }
    }

    fn removed(&mut self, stored: StoredAs, released: bool) {
        if self.gone_early.remove(&stored.entry.get()) {
            return;
        }
        if let Some((shard, number)) = self.shard() {
            shard.remove_entry(TENANT_NUMBER, number, stored, released);
        }
    }
}

fn publish(delivery: &Delivery, id: PacketId, dup: bool) -> Packet {
    let publication = delivery.message.publication();
    let topic = TOPICS.iter().position(|topic| *topic == publication.topic);
    Packet::Publish {
        message: message_number(&delivery.message),
        topic: topic.expect("there are no other topics"),
        qos: delivery.qos as u8,
        id,
        dup,
        retain: delivery.retain,
        len: publication.payload.len(),
        expiry: None,
    }
}
