//! What happens, as lines to read and as one number to compare.

use std::fmt;
use std::hash::{Hash, Hasher};

use barid_store::{Batch, Change};
use xxhash_rust::xxh3::Xxh3Default;

use crate::network::{ClientId, LinkId};
use crate::packets::entities::Packet as EntityPacket;
use crate::packets::messages::{MessageNumber, Packet};
use crate::packets::state_store::Packet as StatePacket;

/// Something that happens.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Event {
    /// A client sends a packet.
    ClientSends(ClientId, LinkId, Packet),
    /// The broker sends a packet.
    BrokerSends(ClientId, LinkId, Packet),
    /// A packet arrives at the broker.
    BrokerGets(ClientId, LinkId, Packet),
    /// A client sends something to the state store.
    ClientAsks(ClientId, LinkId, StatePacket),
    /// The state store sends something.
    StoreTells(ClientId, LinkId, StatePacket),
    /// Something arrives at the state store.
    StoreGets(ClientId, LinkId, StatePacket),
    /// Something arrives at a client of the state store.
    ClientHears(ClientId, LinkId, StatePacket),
    /// A client takes a message for received.
    Delivered(ClientId, MessageNumber, u8),
    /// The broker drops a message to a topic.
    Dropped(ClientId, &'static str, &'static str),
    /// The broker drops a message to a topic for a binding.
    DroppedForBinding(&'static str),
    /// A connection breaks, and what was in flight is lost.
    Cut(ClientId, LinkId),
    /// The broker learns that.
    Gone(ClientId, LinkId),
    /// The batch is written, or is not.
    Written(u16, u64, bool),
    /// The broker hears whether the batch is durable.
    Told(u16, u64, bool),
    /// A disk fails from now on, or works.
    Disk(u16, &'static str),
    /// A shard is closed, while the others serve.
    Closed(u16),
    /// It is opened again.
    Opened(u16),
    /// The broker's process ends, and another one starts.
    Crash,
    /// What is in memory is compared with what is in the stores.
    Audit,
    /// Nothing fails any more.
    Heal,
    /// Time passes, to so many milliseconds.
    Time(u64),
    /// A client sends something to an entity.
    UserSends(ClientId, LinkId, EntityPacket),
    /// An entity sends something.
    EntitySends(ClientId, LinkId, EntityPacket),
    /// Something arrives at an entity.
    EntityGets(ClientId, LinkId, EntityPacket),
    /// Something arrives at a client of an entity.
    UserGets(ClientId, LinkId, EntityPacket),
}

/// All that happened so far.
#[derive(Default)]
pub struct History {
    hash: Xxh3Default,
    lines: Option<Vec<String>>,
    step: u32,
}

impl History {
    /// A history that has nothing yet; `readable` if it is to keep lines to read.
    pub fn new(readable: bool) -> Self {
        Self { lines: readable.then(Vec::new), ..Self::default() }
    }

    /// Something happens.
    pub fn note(&mut self, event: Event) {
        event.hash(&mut self.hash);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>5}  {event}", self.step));
        }
    }

    /// A batch is written.
    pub fn write(&mut self, batch: &Batch) {
        for change in batch.iter() {
            let (keyspace, key, value) = match change {
                Change::Put(keyspace, key, value) => (keyspace, key, Some(value)),
                Change::Remove(keyspace, key) => (keyspace, key, None),
            };
            (keyspace.0, key, value).hash(&mut self.hash);
        }
    }

    /// The next step begins.
    pub fn step(&mut self) {
        self.step += 1;
    }

    /// How many steps there were.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// A number for all events and all bytes that were to be written.
    pub fn digest(&self) -> u64 {
        self.hash.finish()
    }

    /// The lines to read.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientSends(client, link, packet) => write!(f, "c{client} -> {packet} [{link}]"),
            Self::BrokerSends(client, link, packet) => write!(f, "c{client} <- {packet} [{link}]"),
            Self::BrokerGets(client, link, packet) => {
                write!(f, "c{client} => {packet} arrives [{link}]")
            }
            Self::ClientAsks(client, link, packet) => write!(f, "c{client} -> {packet} [{link}]"),
            Self::StoreTells(client, link, packet) => write!(f, "c{client} <- {packet} [{link}]"),
            Self::StoreGets(client, link, packet) => {
                write!(f, "c{client} => {packet} arrives [{link}]")
            }
            Self::ClientHears(client, link, packet) => {
                write!(f, "c{client} <= {packet} arrives [{link}]")
            }
            Self::UserSends(client, link, packet) => write!(f, "c{client} -> {packet} [{link}]"),
            Self::EntitySends(client, link, packet) => write!(f, "c{client} <- {packet} [{link}]"),
            Self::EntityGets(client, link, packet) => {
                write!(f, "c{client} => {packet} arrives [{link}]")
            }
            Self::UserGets(client, link, packet) => {
                write!(f, "c{client} <= {packet} arrives [{link}]")
            }
            Self::Delivered(client, message, qos) => {
                write!(f, "c{client} has m{message}, QoS {qos}")
            }
            Self::Dropped(client, topic, why) => {
                write!(f, "a message to {topic} is dropped for c{client}: {why}")
            }
            Self::DroppedForBinding(topic) => {
                write!(f, "a message to {topic} is dropped for a binding")
            }
            Self::Cut(client, link) => write!(f, "the connection of c{client} breaks [{link}]"),
            Self::Gone(client, link) => write!(f, "the broker sees c{client} gone [{link}]"),
            Self::Written(shard, batch, true) => write!(f, "shard {shard} has batch {batch}"),
            Self::Written(shard, batch, false) => write!(f, "shard {shard} fails at batch {batch}"),
            Self::Told(shard, batch, true) => write!(f, "shard {shard}: batch {batch} is durable"),
            Self::Told(shard, batch, false) => write!(f, "shard {shard}: batch {batch} goes back"),
            Self::Disk(shard, how) => write!(f, "the disk of shard {shard}: {how}"),
            Self::Closed(shard) => write!(f, "shard {shard} is closed"),
            Self::Opened(shard) => write!(f, "shard {shard} is opened"),
            Self::Crash => f.write_str("CRASH, and a new start"),
            Self::Audit => f.write_str("memory and stores are compared"),
            Self::Heal => f.write_str("from here on nothing fails"),
            Self::Time(millis) => write!(f, "it is {millis} ms"),
        }
    }
}
