//! The events of a history, as lines to read and as one digest to compare.

use std::fmt;
use std::hash::{Hash, Hasher};

use barid_store::{Batch, Change};
use xxhash_rust::xxh3::Xxh3Default;

use crate::network::{ClientId, LinkId};
use crate::packets::entities::Packet as EntityPacket;
use crate::packets::messages::{MessageNumber, Packet};
use crate::packets::state_store::Packet as StatePacket;

/// An event of a history.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Event {
    /// A client sends a packet.
    ClientSends(ClientId, LinkId, Packet),
    /// The broker sends a packet.
    BrokerSends(ClientId, LinkId, Packet),
    /// A packet arrives at the broker.
    BrokerGets(ClientId, LinkId, Packet),
    /// A client sends a packet to the state store.
    ClientAsks(ClientId, LinkId, StatePacket),
    /// The state store sends a packet.
    StoreTells(ClientId, LinkId, StatePacket),
    /// A packet arrives at the state store.
    StoreGets(ClientId, LinkId, StatePacket),
    /// A packet arrives at a client of the state store.
    ClientHears(ClientId, LinkId, StatePacket),
    /// A client takes a message with this QoS as received.
    Delivered(ClientId, MessageNumber, u8),
    /// The broker drops a message for a client: topic and drop reason.
    Dropped(ClientId, &'static str, &'static str),
    /// The broker drops a message to this topic for a binding.
    DroppedForBinding(&'static str),
    /// A connection breaks, and the packets in flight on it are lost.
    Cut(ClientId, LinkId),
    /// The broker learns that a connection has broken.
    Gone(ClientId, LinkId),
    /// The log of a shard has written a batch, or has failed to.
    Written(u16, u64, bool),
    /// The log of a shard has reported to the broker whether a batch is durable.
    Told(u16, u64, bool),
    /// The disk of a shard fails in this way from now on, or works again.
    Disk(u16, &'static str),
    /// A shard is closed, while the others serve.
    Closed(u16),
    /// A closed shard is opened again.
    Opened(u16),
    /// The broker's process ends, and another one starts.
    Crash,
    /// The state in memory is compared with the stores.
    Audit,
    /// From here on nothing fails.
    Heal,
    /// Time passes, up to this time in milliseconds.
    Time(u64),
    /// A client sends a packet to an entity.
    UserSends(ClientId, LinkId, EntityPacket),
    /// An entity sends a packet.
    EntitySends(ClientId, LinkId, EntityPacket),
    /// A packet arrives at an entity.
    EntityGets(ClientId, LinkId, EntityPacket),
    /// A packet arrives at a client of an entity.
    UserGets(ClientId, LinkId, EntityPacket),
    /// This happens to a broker of a cluster.
    Broker(usize, &'static str),
    /// For a broker of a cluster, this happens to another one.
    Seen(usize, usize, &'static str),
}

/// The events of a history so far.
#[derive(Default)]
pub struct History {
    hash: Xxh3Default,
    lines: Option<Vec<String>>,
    step: u32,
}

impl History {
    /// Creates an empty history. If `readable`, it keeps a line for each event.
    pub fn new(readable: bool) -> Self {
        Self { lines: readable.then(Vec::new), ..Self::default() }
    }

    /// Records an event.
    pub fn note(&mut self, event: Event) {
        event.hash(&mut self.hash);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>5}  {event}", self.step));
        }
    }

    /// Adds the changes of a batch to the digest.
    pub fn write(&mut self, batch: &Batch) {
        for change in batch.iter() {
            let (keyspace, key, value) = match change {
                Change::Put(keyspace, key, value) => (keyspace, key, Some(value)),
                Change::Remove(keyspace, key) => (keyspace, key, None),
            };
            (keyspace.0, key, value).hash(&mut self.hash);
        }
    }

    /// Begins the next step.
    pub fn step(&mut self) {
        self.step += 1;
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// Returns the digest of all events and of the bytes of all batches.
    pub fn digest(&self) -> u64 {
        self.hash.finish()
    }

    /// Returns the lines of a readable history; none otherwise.
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
            Self::Broker(node, what) => write!(f, "b{node} {what}"),
            Self::Seen(node, other, what) => write!(f, "b{node}: b{other} {what}"),
            Self::Time(millis) => write!(f, "it is {millis} ms"),
        }
    }
}
