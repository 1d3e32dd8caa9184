//! The broker of entities: the engine, the clients' ends of its connections, and the content of its entities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{Counts, Entry, Part, SequenceNumber, State};
use barid_engine::entities::{
    Definitions, IsoDuration, Node, Queue, QueueDefinition, QueueProperties, key,
};
use barid_engine::limits::Limits;
use barid_store::memory::Disk;

use super::peer::Peer;
use crate::network::{ClientId, LinkId};
use crate::packets::entities::{
    ENTITIES, EntityId, MessageNumber, ONCE, PLAIN, Packet, RELAY, SESSIONS, SessionId,
};
use crate::process::{self, OverEngine, Process, TENANT};
use crate::rules::Rules;

/// Duplicate detection window: longer than a history.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// Settings that stay the same when the broker restarts.
#[derive(Clone, Copy)]
pub struct Settings {
    pub rules: Rules,
    /// Lock duration, in milliseconds.
    pub lock_duration: u64,
    pub max_delivery_count: u32,
    /// Time to live, in milliseconds. Messages that expire become dead letters.
    pub time_to_live: Option<u64>,
    /// Maximum size of the waiting messages in memory, in bytes. Further messages are in the store only.
    pub in_memory_max: usize,
    /// Maximum number of batches in flight to the log of a shard.
    pub window: usize,
    /// Bytes that all clients together are sent in a second; 0: no limit.
    pub outbound_bytes_rate: u64,
}

/// The broker's process.
pub struct Broker {
    pub process: Process,
    peers: BTreeMap<LinkId, Peer>,
    /// Sequence numbers of all messages that the process has had, from its start on.
    numbers: BTreeMap<(EntityId, MessageNumber), SequenceNumber>,
    /// Sequence numbers of messages that arrived on a connection, or `None` for duplicates. Senders do not
    /// learn these numbers from the broker.
    came: BTreeMap<(LinkId, MessageNumber), Option<SequenceNumber>>,
}

/// Everything that a broker stores, as it is in memory.
#[derive(Debug, PartialEq)]
pub struct Picture {
    entries: Vec<(EntityId, Part, Entry)>,
    states: Vec<(EntityId, SessionId, Vec<u8>)>,
}

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub entity: EntityId,
    pub part: Part,
    pub state: State,
    pub message: MessageNumber,
}

impl OverEngine for Broker {
    type Packet = Packet;

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn encode(&mut self, _: ClientId, link: LinkId, packet: Packet, out: &mut Vec<u8>) -> bool {
        self.peers.entry(link).or_default().encode(packet, out);
        packet == Packet::Open
    }

    fn received(&mut self, link: LinkId, packet: Packet) {
        let Packet::Send(entity, _, message, _) = packet else { return };
        let found = self
            .find(entity, message)
            .filter(|number| self.numbers.insert((entity, message), *number) != Some(*number));
        self.came.insert((link, message), found);
    }
}

impl Broker {
    /// Starts a broker from its disks, one for each shard.
    pub fn start(disks: &[Disk], settings: Settings) -> Self {
        let Settings { in_memory_max, window, outbound_bytes_rate, .. } = settings;
        let (limits, volatile) = (Limits { outbound_bytes_rate, ..Limits::default() }, None);
        let of_process = process::Settings { limits, volatile, in_memory_max, window };
        let process = Process::start(disks, &of_process, settings.rules);
        let declared = [(TENANT.to_owned(), definitions(settings))];
        process.engine.declare(declared).expect("it can be declared");
        let (peers, came) = (BTreeMap::new(), BTreeMap::new());
        let mut broker = Self { process, peers, numbers: BTreeMap::new(), came };
        let found = broker.picture().entries.into_iter();
        broker.numbers =
            found.map(|(entity, _, entry)| ((entity, message_of(&entry)), entry.number)).collect();
        broker
    }

    /// Returns the packets that the broker has sent since the last call.
    pub fn take_packets(
        &mut self,
        of: impl Fn(LinkId) -> Option<ClientId>,
    ) -> Vec<(ClientId, LinkId, Packet)> {
        let Self { process, peers, came, .. } = self;
        process.take_packets(of, Packet::Closed, |link, bytes| {
            let (mut packets, len) = peers.get_mut(&link)?.decode(bytes)?;
            for packet in &mut packets {
                if let Packet::Accepted(message, number @ None) = packet {
                    *number = came.get(&(link, *message)).copied().flatten();
                }
            }
            Some((packets, len))
        })
    }

    /// Returns everything that the broker stores, as it is in memory.
    pub fn picture(&self) -> Picture {
        let mut entries = Vec::new();
        let mut states = Vec::new();
        for id in 0..ENTITIES.len() {
            self.queue(id).read(|entity| {
                for part in Part::ALL {
                    entity.peek(part, 0, usize::MAX, None, |entry| {
                        let mut entry = entry.clone();
                        entry.body.bytes = None;
                        entries.push((id, part, entry));
                        true
                    });
                }
                for (session, name) in SESSIONS.iter().enumerate() {
                    let state = entity.state(name);
                    states.extend(state.map(|state| (id, session, state.to_vec())));
                }
            });
        }
        Picture { entries, states }
    }

    /// Returns the places of all messages.
    pub fn places(&self) -> Vec<Place> {
        let place = |(entity, part, entry): (EntityId, Part, Entry)| {
            let message = message_of(&entry);
            Place { entity, part, state: entry.state, message }
        };
        self.picture().entries.into_iter().map(place).collect()
    }

    /// Whether an entity has messages that can be received, now or later.
    pub fn has_messages(&self, entity: EntityId) -> bool {
        let counts = self.counts(entity);
        counts.active + counts.locked + counts.scheduled + counts.dead_lettered > 0
    }

    /// Whether an entity has dead letters.
    pub fn has_dead_letters(&self, entity: EntityId) -> bool {
        self.counts(entity).dead_lettered > 0
    }

    /// Whether a session, or an entity without sessions, has messages that wait for a receiver.
    pub fn has_active(&self, entity: EntityId, session: Option<SessionId>) -> bool {
        let Some(session) = session else {
            let counts = self.counts(entity);
            return counts.active + counts.locked > 0;
        };
        let details = self.queue(entity).read(|it| it.session_details(SESSIONS[session]));
        details.is_some_and(|details| details.active + details.locked > 0)
    }

    fn counts(&self, entity: EntityId) -> Counts {
        self.queue(entity).counts()
    }

    /// Returns the sequence number of a message, if the entity has it.
    fn find(&self, entity: EntityId, message: MessageNumber) -> Option<SequenceNumber> {
        let mut found = None;
        self.queue(entity).read(|it| {
            it.peek(Part::Main, 0, usize::MAX, None, |entry| {
                found = (message_of(entry) == message).then_some(entry.number);
                found.is_none()
            });
        });
        found
    }

    fn queue(&self, entity: EntityId) -> Arc<Queue> {
        let tenant = self.process.tenant();
        let entities = tenant.entities(&self.process.engine.alarm);
        match entities.find_key(&key(ENTITIES[entity])) {
            Some(Node::Queue(queue)) => queue,
            other => unreachable!("it was declared as a queue: {other:?}"),
        }
    }
}

fn definitions(settings: Settings) -> Definitions {
    let of_millis = |millis: u64| IsoDuration::from(Duration::from_millis(millis));
    let queue = |(id, name): (EntityId, &&str)| {
        let mut properties = QueueProperties {
            dead_lettering_on_message_expiration: true,
            duplicate_detection_history_time_window: REMEMBERED.into(),
            lock_duration: of_millis(settings.lock_duration),
            max_delivery_count: settings.max_delivery_count,
            forward_to: if id == RELAY { ENTITIES[PLAIN].to_owned() } else { String::new() },
            requires_duplicate_detection: matches!(id, ONCE | RELAY),
            requires_session: id < PLAIN,
            ..QueueProperties::default()
        };
        if let Some(time_to_live) = settings.time_to_live {
            properties.default_message_time_to_live = of_millis(time_to_live);
        }
        QueueDefinition { name: (*name).to_owned(), properties }
    };
    Definitions {
        queues: ENTITIES.iter().enumerate().map(queue).collect(),
        ..Definitions::default()
    }
}

fn message_of(entry: &Entry) -> MessageNumber {
    let id = entry.message_id.as_ref().expect("senders give messages ids");
    id.parse().expect("their ids are numbers")
}
