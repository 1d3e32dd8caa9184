//! A broker on one thread: real entities over real shards, joined by the [rules](crate::rules).
//!
//! Each call is something that happens at once; whoever calls decides what happens next, and when the
//! process ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_core::durable::{EntityRecord, keys, recover, settle};
use barid_core::entity::{
    Accept, Accepted, Delivery, Entity, Entry, Incoming, LockToken, Mode, Outcome, Part,
    Properties, ReceiverId, Refusal, Sent, State,
};
use barid_core::ids::QueueNumber;
use barid_core::time::WallTime;
use barid_store::memory::Disk;

use super::notes::{Event, Late, Notes};
use super::recovery::Reader;
use crate::durable::{Durable, TENANT_NUMBER};
use crate::history::History;
use crate::network::{ClientId, LinkId};
use crate::packets::entities::{
    ENTITIES, EntityId, Handle, How, MessageNumber, Note, ONCE, Packet, SESSIONS, SessionId,
    Source, Transfer,
};
use crate::rules::{IfHolds as _, Rule, Rules};
use crate::world;

/// What is the same in every life of the broker.
#[derive(Clone, Copy)]
pub struct Settings {
    pub rules: Rules,
    /// Milliseconds.
    pub lock_duration: u64,
    pub max_delivery_count: u32,
    /// Milliseconds. What is older is a dead letter.
    pub time_to_live: Option<u64>,
    /// Whether the bytes of messages stay in memory.
    pub keeps: bool,
}

/// The broker's process.
pub struct Broker {
    settings: Settings,
    durable: Durable,
    /// By [`EntityId`].
    entities: Vec<Stored>,
    receivers: BTreeMap<ReceiverId, Receiver>,
    handles: BTreeMap<(LinkId, Handle), ReceiverId>,
    last_receiver: u64,
    /// What leaves when something is durable.
    waiting: VecDeque<(Commits, (ClientId, LinkId, Packet))>,
    /// What is noted too late, if a rule is broken.
    late: Vec<Late>,
    now: WallTime,
    /// Packets that have left the broker since somebody looked.
    pub effects: Vec<(ClientId, LinkId, Packet)>,
}

/// An entity, and where it is stored.
struct Stored {
    entity: Entity,
    shard: u16,
    queue: QueueNumber,
    /// What has to be durable before the first message leaves. None: it is.
    reserved: Option<Commits>,
}

/// A client's receiver.
struct Receiver {
    client: ClientId,
    link: LinkId,
    handle: Handle,
    entity: EntityId,
    part: Part,
    /// Messages that it still takes.
    credit: usize,
}

/// All that a broker stores, as it has it in memory.
#[derive(Debug, PartialEq)]
pub struct Picture {
    entries: Vec<(EntityId, Part, Entry, MessageNumber)>,
    states: Vec<(EntityId, SessionId, Vec<u8>)>,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub entity: EntityId,
    pub part: Part,
    pub state: State,
    pub message: MessageNumber,
}

impl world::Broker<Packet> for Broker {
    fn set_time(&mut self, now: u64) {
        self.now = WallTime::from_millis(now);
    }

    fn receive(&mut self, client: ClientId, link: LinkId, packet: Packet) -> bool {
        match packet {
            Packet::Send(entity, session, message, at) => {
                self.send(client, link, (entity, session, message, at));
            }
            Packet::Cancel(entity, message, number) => {
                let (done, after) =
                    self.change(entity, |it, _, fx| it.cancel_scheduled(&[number], fx));
                let after = after.if_holds(self.settings.rules, Rule::CancelWhenDurable);
                self.answer(after, (client, link, Packet::Cancelled(message, done.is_ok())));
            }
            Packet::Attach(handle, entity, source) => {
                self.attach(client, link, handle, entity, source);
            }
            Packet::Detach(handle) => {
                if let Some(id) = self.handles.get(&(link, handle)) {
                    self.close(*id);
                }
            }
            Packet::Flow(handle, credit) => {
                let Some(id) = self.handles.get(&(link, handle)).copied() else { return true };
                if let Some(receiver) = self.receivers.get_mut(&id) {
                    receiver.credit += credit;
                }
                self.pump(id);
            }
            Packet::Settle(handle, token, how) => {
                self.settle(client, link, handle, token, how);
            }
            Packet::ReceiveDeferred(..)
            | Packet::Renew(_)
            | Packet::SetState(..)
            | Packet::GetState(_) => self.use_session(client, link, packet),
            _ => unreachable!("a client sends no such packet"),
        }
        true
    }

    fn lose(&mut self, _: ClientId, link: LinkId) {
        let of_link = self.receivers.iter().filter(|(_, receiver)| receiver.link == link);
        for id in of_link.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(id);
        }
    }

    fn commit(&mut self, shard: u16, history: &mut History) {
        if self.durable.advance(shard, history) {
            self.release();
            self.open();
        }
        for late in std::mem::take(&mut self.late) {
            let of_queue = |stored: &&Stored| stored.queue == late.queue;
            let stored = self.entities.iter().find(of_queue).expect("it is an entity's");
            if self.durable.shard(stored.shard).batch() == late.batch {
                self.late.push(late);
            } else {
                let (shard, _) = self.durable.change(stored.shard);
                shard.put_queue_entry(TENANT_NUMBER, late.queue, Part::DeadLetter, &late.entry);
            }
        }
    }

    fn is_written(&mut self) -> bool {
        self.durable.is_written()
    }
}

impl Broker {
    /// Starts a broker from what is on its disks, one for each shard. `life`: how many there were before.
    pub fn start(disks: &[Disk], settings: Settings, life: u32, now: u64) -> Self {
        let rules = settings.rules;
        let stores: Vec<_> = disks.iter().map(|disk| disk.open(keys::NAMES.len())).collect();
        let mut reader = Reader::new(settings, life);
        let shards = stores.iter().zip(0_u16..).map(|(store, shard)| {
            recover(shard, store, &mut reader).expect("what was written can be read")
        });
        let shards = settle(shards.collect(), |_| unreachable!("nobody uses MQTT here"));
        let mut durable = Durable::new(shards.into_iter().zip(stores).collect(), rules);
        let mut found = reader.entities;
        let entities = (0..ENTITIES.len()).map(|id| {
            let shard = durable.shard_of(id);
            let (noted, batch) = durable.change(shard);
            let (queue, mut entity) = found.remove(&id).unwrap_or_else(|| {
                let queue = noted.new_queue_number();
                let record = EntityRecord { queue, definition: b"{}"[..].into() };
                noted.put_entity(TENANT_NUMBER, ENTITIES[id], record);
                (queue, new_entity(id, settings, life))
            });
            let (keeps, late, events) = (settings.keeps, None, Vec::new());
            entity.start(&mut Notes { shard: noted, queue, keeps, late, events });
            let reserved = Some(batch).if_holds(rules, Rule::DeliverWhenReserved);
            let reserved = reserved.map(|batch| Commits::one(shard, batch));
            Stored { entity, shard, queue, reserved }
        });
        let entities = entities.collect();
        Self {
            settings,
            durable,
            entities,
            receivers: BTreeMap::new(),
            handles: BTreeMap::new(),
            last_receiver: 0,
            waiting: VecDeque::new(),
            late: Vec::new(),
            now: WallTime::from_millis(now),
            effects: Vec::new(),
        }
    }

    fn send(
        &mut self,
        client: ClientId,
        link: LinkId,
        (entity, session, message, at): (EntityId, SessionId, MessageNumber, Option<u64>),
    ) {
        let incoming = Incoming {
            session: Some(SESSIONS[session].into()),
            message_id: Some(message.to_string().into()),
            time_to_live: None,
            scheduled_at: at.map(WallTime::from_millis),
            bytes: message.to_be_bytes()[..].into(),
            overlay: None,
        };
        let (sent, after) = self.change(entity, |it, now, fx| it.send(incoming, now, fx));
        let (number, rule) = match sent.expect("nothing here is refused") {
            Sent::Enqueued(number) | Sent::Scheduled(number) => {
                (Some(number), Rule::AcceptWhenDurable)
            }
            Sent::Duplicate => (None, Rule::AcceptDuplicatesWhenDurable),
        };
        let after = after.if_holds(self.settings.rules, rule);
        self.answer(after, (client, link, Packet::Accepted(message, number)));
    }

    fn attach(
        &mut self,
        client: ClientId,
        link: LinkId,
        handle: Handle,
        entity: EntityId,
        source: Source,
    ) {
        self.last_receiver += 1;
        let id = ReceiverId(self.last_receiver);
        let part = match source {
            Source::DeadLetters => Part::DeadLetter,
            Source::Session(_) | Source::Next(_) => Part::Main,
        };
        self.handles.insert((link, handle), id);
        self.receivers.insert(id, Receiver { client, link, handle, entity, part, credit: 0 });
        let accept = match source {
            Source::Session(session) => Accept::Session(SESSIONS[session].into()),
            Source::Next(wait) => {
                Accept::Next { until: self.now.after(Duration::from_millis(wait)) }
            }
            Source::DeadLetters => {
                let (opened, _) = self.change(entity, |it, _, _| it.open(id, part, Mode::PeekLock));
                opened.expect("dead letters need no session");
                self.effects.push((client, link, Packet::Attached(handle, None)));
                return;
            }
        };
        let (accepted, _) =
            self.change(entity, |it, now, fx| it.accept(id, Mode::PeekLock, accept, now, fx));
        match accepted {
            Ok(Accepted::Now { session, locked_until }) => self.grant(id, &session, locked_until),
            Ok(Accepted::Waiting) => {}
            Err(refusal) => {
                assert_eq!(refusal, Refusal::SessionCannotBeLocked);
                self.detach(id);
            }
        }
    }

    fn settle(&mut self, client: ClientId, link: LinkId, handle: Handle, token: u128, how: How) {
        // The token proves it all; what was taken on another connection can be settled here.
        let Some((entity, part)) = self.place_of(link, handle) else { return };
        let outcome = match how {
            How::Complete => Outcome::Complete,
            How::Abandon => Outcome::Abandon(Vec::new()),
            How::Defer => Outcome::Defer(Vec::new()),
            How::DeadLetter => {
                let (reason, description) = (Some("r".into()), None);
                Outcome::DeadLetter { reason, description, changes: Vec::new() }
            }
            How::Release => Outcome::Release,
        };
        let proof = LockToken(token);
        let (settled, after) =
            self.change(entity, |it, now, fx| it.settle(part, proof, outcome, now, fx));
        if how != How::Release {
            let after = after.if_holds(self.settings.rules, Rule::SettleWhenDurable);
            self.answer(after, (client, link, Packet::Settled(handle, token, settled)));
        }
    }

    /// What a receiver wants of its session.
    fn use_session(&mut self, client: ClientId, link: LinkId, packet: Packet) {
        let (Packet::ReceiveDeferred(handle, _)
        | Packet::Renew(handle)
        | Packet::SetState(handle, _)
        | Packet::GetState(handle)) = packet
        else {
            unreachable!("these are all")
        };
        let known = self.handles.get(&(link, handle)).copied();
        let Some((id, entity)) = known.and_then(|id| Some((id, self.receivers.get(&id)?.entity)))
        else {
            return;
        };
        let rules = self.settings.rules;
        match packet {
            Packet::ReceiveDeferred(_, number) => {
                let mut out = Vec::new();
                // Whoever asks for what is not there hears nothing here.
                let _ = self.change(entity, |it, now, fx| {
                    let (part, mode) = (Part::Main, Mode::PeekLock);
                    it.receive_deferred(part, Some(id), &[number], mode, now, fx, &mut out)
                });
                self.transfer(id, out);
            }
            Packet::Renew(_) => {
                let (until, _) = self.change(entity, |it, now, fx| it.renew_session(id, now, fx));
                let until = until.ok().map(WallTime::as_millis);
                self.effects.push((client, link, Packet::Renewed(handle, until)));
            }
            Packet::SetState(_, note) => {
                let state = note.map(|note| Arc::from(&note.to_be_bytes()[..]));
                let (set, after) =
                    self.change(entity, |it, now, fx| it.set_state(id, state, now, fx));
                let after = after.if_holds(rules, Rule::SetStatesWhenDurable);
                self.answer(after, (client, link, Packet::StateSet(handle, set.is_ok())));
            }
            _ => {
                let (note, after) = self.change(entity, |it, now, fx| {
                    // A lock that has ended is no longer one.
                    it.on_time(now, fx);
                    let session = Arc::clone(it.session_of(id)?.0);
                    Some(it.state(&session).map(|state| note(&state)))
                });
                let after = after.if_holds(rules, Rule::TellStatesWhenDurable);
                self.answer(after, (client, link, Packet::State(handle, note)));
            }
        }
    }

    /// What is due happens.
    pub fn tick(&mut self) {
        for entity in 0..self.entities.len() {
            let is_due = self.entities[entity].entity.due().is_some_and(|due| due <= self.now);
            if is_due {
                self.change(entity, |it, now, fx| it.on_time(now, fx));
            }
        }
    }

    /// Lets messages leave entities whose numbers are reserved.
    fn open(&mut self) {
        let mut opened = [false; ENTITIES.len()];
        for (stored, opened) in self.entities.iter_mut().zip(&mut opened) {
            let reserved = |after: &mut Commits| self.durable.has(after);
            *opened = stored.reserved.take_if(reserved).is_some();
        }
        let mut waited = Vec::new();
        waited
            .extend(self.receivers.iter().filter(|(_, one)| opened[one.entity]).map(|(id, _)| *id));
        waited.into_iter().for_each(|id| self.pump(id));
    }

    /// Whether somebody can still receive something of an entity, now or later.
    pub fn has_messages(&self, entity: EntityId) -> bool {
        let counts = self.entities[entity].entity.counts();
        counts.active + counts.locked + counts.scheduled + counts.dead_lettered > 0
    }

    /// Whether an entity has dead letters.
    pub fn has_dead_letters(&self, entity: EntityId) -> bool {
        self.entities[entity].entity.counts().dead_lettered > 0
    }

    /// Whether a session has messages that wait for a receiver.
    pub fn has_active(&self, entity: EntityId, session: SessionId) -> bool {
        let details = self.entities[entity].entity.session_details(SESSIONS[session]);
        details.is_some_and(|details| details.active + details.locked > 0)
    }

    /// All messages, with where they are.
    pub fn places(&self) -> Vec<Place> {
        let picture = self.picture();
        let place = |(entity, part, entry, message): (EntityId, Part, Entry, MessageNumber)| {
            Place { entity, part, state: entry.state, message }
        };
        picture.entries.into_iter().map(place).collect()
    }

    /// What is in memory and stored.
    pub fn picture(&self) -> Picture {
        let mut entries = Vec::new();
        let mut states = Vec::new();
        for (id, stored) in self.entities.iter().enumerate() {
            for part in Part::ALL {
                stored.entity.peek(part, 0, usize::MAX, None, |entry| {
                    let message = number(&self.bytes(id, entry));
                    let mut entry = entry.clone();
                    entry.body.bytes = None;
                    entries.push((id, part, entry, message));
                    true
                });
            }
            for (session, name) in SESSIONS.iter().enumerate() {
                let state = stored.entity.state(name);
                states.extend(state.map(|state| (id, session, state.to_vec())));
            }
        }
        Picture { entries, states }
    }

    /// Does something to an entity, and tells receivers what follows. The batch has that, and all that was
    /// noted before.
    fn change<R>(
        &mut self,
        id: EntityId,
        change: impl FnOnce(&mut Entity, WallTime, &mut Notes<'_>) -> R,
    ) -> (R, Option<Commits>) {
        let Stored { entity, shard: index, queue, .. } = &mut self.entities[id];
        let (index, queue) = (*index, *queue);
        let in_time = self.settings.rules.hold(Rule::OneBatchForEachCommand);
        let late = (!in_time).then_some(&mut self.late);
        let (keeps, events) = (self.settings.keeps, Vec::new());
        let (shard, batch) = self.durable.change(index);
        let mut notes = Notes { shard, queue, keeps, late, events };
        let answer = change(entity, self.now, &mut notes);
        let events = notes.events;
        self.tell(events);
        (answer, Some(Commits::one(index, batch)))
    }

    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Ready(id) if self.settings.rules.hold(Rule::TellWhatIsReady) => {
                    self.pump(id)
                }
                Event::Ready(_) => {}
                Event::Granted(id, session, until) => self.grant(id, &session, until),
                Event::Closed(id) => self.detach(id),
            }
        }
    }

    fn grant(&mut self, id: ReceiverId, session: &str, until: WallTime) {
        let Some(Receiver { client, link, handle, .. }) = self.receivers.get(&id) else { return };
        let session = session_id(session);
        let attached = Packet::Attached(*handle, Some((session, until.as_millis())));
        self.effects.push((*client, *link, attached));
    }

    /// Gives a receiver as much as it takes.
    fn pump(&mut self, id: ReceiverId) {
        let Some(receiver) = self.receivers.get(&id) else { return };
        let (entity, credit) = (receiver.entity, receiver.credit);
        if self.entities[entity].reserved.is_some() {
            return;
        }
        let mut out = Vec::new();
        // Who has lost its session hears that by itself.
        let _ = self.change(entity, |it, now, fx| it.take(id, credit, now, fx, &mut out));
        if let Some(receiver) = self.receivers.get_mut(&id) {
            receiver.credit -= out.len();
        }
        self.transfer(id, out);
    }

    fn transfer(&mut self, id: ReceiverId, deliveries: Vec<Delivery>) {
        let Some(receiver) = self.receivers.get(&id) else { return };
        for Delivery { token, entry, locked_until } in deliveries {
            let transfer = Transfer {
                message: number(&self.bytes(receiver.entity, &entry)),
                number: entry.number,
                token: token.0,
                count: entry.delivery_count,
                until: locked_until.as_millis(),
                deferred: entry.state == State::Deferred,
            };
            let packet = Packet::Transfer(receiver.handle, transfer);
            self.effects.push((receiver.client, receiver.link, packet));
        }
    }

    fn close(&mut self, id: ReceiverId) {
        let Some(receiver) = self.receivers.remove(&id) else { return };
        self.change(receiver.entity, |it, now, fx| it.close(id, now, fx));
    }

    /// A receiver is closed, and has to be told.
    fn detach(&mut self, id: ReceiverId) {
        if let Some(Receiver { client, link, handle, .. }) = self.receivers.remove(&id) {
            self.effects.push((client, link, Packet::Detached(handle)));
        }
    }

    /// What a receiver is or was for.
    fn place_of(&self, link: LinkId, handle: Handle) -> Option<(EntityId, Part)> {
        let receiver = self.receivers.get(self.handles.get(&(link, handle))?)?;
        Some((receiver.entity, receiver.part))
    }

    /// Sends a packet when what is awaited is durable.
    fn answer(&mut self, after: Option<Commits>, packet: (ClientId, LinkId, Packet)) {
        self.waiting.push_back((after.unwrap_or_default(), packet));
        self.release();
    }

    /// Lets those packets go for which all is durable.
    fn release(&mut self) {
        for (after, packet) in std::mem::take(&mut self.waiting) {
            match self.durable.has(&after) {
                true => self.effects.push(packet),
                false => self.waiting.push_back((after, packet)),
            }
        }
    }

    /// The bytes of a message, wherever they are.
    fn bytes(&self, entity: EntityId, entry: &Entry) -> Arc<[u8]> {
        let Stored { shard, queue, .. } = &self.entities[entity];
        let stored = || self.durable.queue_body(*shard, *queue, entry.body.id);
        entry.body.bytes.clone().or_else(stored).expect("a message has its bytes")
    }
}

/// An entity that has nothing yet.
pub fn new_entity(id: EntityId, settings: Settings, life: u32) -> Entity {
    let properties = Properties {
        requires_session: true,
        lock_duration: Duration::from_millis(settings.lock_duration),
        max_delivery_count: settings.max_delivery_count,
        default_time_to_live: settings.time_to_live.map(Duration::from_millis),
        dead_lettering_on_expiration: true,
        duplicate_detection: (id == ONCE).then_some(Duration::from_secs(3_600)),
        max_messages: 1_000,
        max_bytes: 1_000_000,
        max_message_size: 1_000,
        max_sessions: 100,
    };
    let life = if settings.rules.hold(Rule::NumberLocksAnew) { life } else { 0 };
    Entity::new(properties, u64::from(life) << 32)
}

fn number(bytes: &[u8]) -> MessageNumber {
    MessageNumber::from_be_bytes(bytes.try_into().expect("messages were made of numbers"))
}

fn note(state: &[u8]) -> Note {
    Note::from_be_bytes(state.try_into().expect("states were made of numbers"))
}

fn session_id(id: &str) -> SessionId {
    SESSIONS.iter().position(|known| *known == id).expect("one of ours")
}
