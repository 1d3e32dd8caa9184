//! Requests to the state store and their responses, reduced to what the simulation needs.

use std::fmt;

use barid_core::ids::PacketId;
use fastrand::Rng;
use statestore_proto::{Condition, Refusal, Version};

/// Index of a key in [`KEYS`].
pub type Key = usize;

/// The keys. The value of the lock is the number of the client that holds it. Other values are the numbers of
/// the requests that set them. Some requests set the fenced or the volatile key with the version of the
/// client's lock as fencing token.
pub const KEYS: [&str; 4] = ["plain", "lock", "fenced", "volatile"];

/// Index of the key that clients lock.
pub const LOCK: Key = 1;
/// Index of the stored key that clients set with fencing tokens.
pub const FENCED: Key = 2;
/// Index of the key that is not stored.
pub const VOLATILE: Key = 3;

/// Number of a request, unique in a history. It is also the Correlation Data.
pub type RequestNumber = u32;

/// A value.
pub type Value = u32;

/// A request.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub number: RequestNumber,
    /// The packet identifier of its PUBLISH.
    pub id: PacketId,
    /// Whether the request was sent before.
    pub dup: bool,
    /// The key.
    pub key: Key,
    /// The command.
    pub command: Command,
    /// Time of the client's clock, in milliseconds.
    pub timestamp: u64,
    /// The fencing token: the version with which the client took the lock.
    pub token: Option<Version>,
}

/// A command.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Command {
    /// SET: value, condition, and time to live in milliseconds.
    Set(Value, Condition, Option<u64>),
    /// GET.
    Get,
    /// DEL.
    Del,
    /// VDEL.
    VDel(Value),
}

/// The response to a request.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Told {
    /// The key was set and has this version now.
    Set(Version),
    /// Nothing was changed: the condition does not hold. The key has this version.
    NotApplied(Version),
    /// The key was deleted.
    Deleted(Version),
    /// The key to delete did not exist.
    Nothing,
    /// The value and version of the key.
    Value(Value, Version),
    /// The key does not exist.
    Absent,
    /// The request was refused.
    Refused(Refusal),
}

/// A packet on a connection.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT.
    Connect {
        /// Clean Start.
        clean: bool,
    },
    /// CONNACK.
    ConnAck,
    /// PUBLISH with a request.
    Request(Request),
    /// PUBACK of the broker for a request.
    PubAck(PacketId),
    /// The response to a request, in a PUBLISH with this packet identifier.
    Response(RequestNumber, Told, PacketId),
    /// KEYNOTIFY: the connection gets notifications of a key from now on.
    Watch(Key),
    /// The response to KEYNOTIFY, in a PUBLISH with this packet identifier.
    Watching(PacketId),
    /// Notification that a key was set or deleted, in a PUBLISH with this packet identifier.
    Notification(Key, Option<Value>, Version, PacketId),
    /// PUBACK of a client for a response or a notification.
    Got(PacketId),
    /// The broker has closed the connection, or refused it.
    Disconnect,
}

impl Command {
    /// Returns a random command on a key. `own` is the value that names the client, `number` that of the request; `ttl` draws a
    /// time to live.
    pub fn random(
        rng: &mut Rng,
        key: Key,
        (own, number): (Value, RequestNumber),
        ttl: impl FnOnce(&mut Rng) -> Option<u64>,
    ) -> Self {
        let value = if key == LOCK { own } else { number };
        let conditions = [Condition::Always, Condition::IfAbsent, Condition::IfAbsentOrEqual];
        let condition = match key {
            LOCK => Condition::IfAbsentOrEqual,
            _ => conditions[rng.usize(..3)],
        };
        let ttl = ttl(rng);
        match rng.u8(..10) {
            0..5 => Self::Set(value, condition, ttl),
            5..7 => Self::Get,
            7 => Self::Del,
            _ if key == LOCK => Self::VDel(own),
            // A value that some request may have set.
            _ => Self::VDel(rng.u32(..number.max(1))),
        }
    }
}

impl Told {
    /// Returns the version in the response.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::Set(version)
            | Self::NotApplied(version)
            | Self::Deleted(version)
            | Self::Value(_, version) => Some(version),
            Self::Nothing | Self::Absent | Self::Refused(_) => None,
        }
    }

    /// Returns the version that the request gave to the key by changing it.
    pub fn given(self) -> Option<Version> {
        match self {
            Self::Set(version) | Self::Deleted(version) => Some(version),
            _ => None,
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { clean } => write!(f, "CONNECT clean_start={clean}"),
            Self::ConnAck => f.write_str("CONNACK"),
            Self::Request(request) => write!(f, "{request}"),
            Self::PubAck(id) => write!(f, "PUBACK id={id}"),
            Self::Response(number, told, _) => write!(f, "r{number}: {told}"),
            Self::Watch(key) => write!(f, "KEYNOTIFY {}", KEYS[*key]),
            Self::Watching(_) | Self::Got(_) | Self::Disconnect => write!(f, "{self:?}"),
            Self::Notification(key, Some(value), version, _) => {
                write!(f, "NOTIFY SET {}={value} {}:{}", KEYS[*key], version.wall, version.counter)
            }
            Self::Notification(key, None, version, _) => {
                write!(f, "NOTIFY DELETE {} {}:{}", KEYS[*key], version.wall, version.counter)
            }
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = KEYS[self.key];
        write!(f, "r{} ", self.number)?;
        match self.command {
            Command::Set(value, condition, ttl) => {
                write!(f, "SET {key}={value} {condition:?}")?;
                if let Some(ttl) = ttl {
                    write!(f, " PX {ttl}")?;
                }
                write!(f, " ts={}", self.timestamp)?;
            }
            Command::Get => write!(f, "GET {key}")?,
            Command::Del => write!(f, "DEL {key}")?,
            Command::VDel(value) => write!(f, "VDEL {key}={value}")?,
        }
        if let Some(token) = self.token {
            write!(f, " ft={}:{}", token.wall, token.counter)?;
        }
        write!(f, " id={}{}", self.id, if self.dup { " dup" } else { "" })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(_) => f.write_str("OK")?,
            Self::NotApplied(_) => f.write_str("not applied")?,
            Self::Deleted(_) => f.write_str("deleted")?,
            Self::Nothing => f.write_str("nothing")?,
            Self::Value(value, _) => write!(f, "={value}")?,
            Self::Absent => f.write_str("absent")?,
            Self::Refused(refusal) => write!(f, "{refusal:?}")?,
        }
        match self.version() {
            Some(version) => write!(f, " {}:{}", version.wall, version.counter),
            None => Ok(()),
        }
    }
}
