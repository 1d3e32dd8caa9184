//! Requests and answers, as far as they matter here.

use std::fmt;

use barid_core::ids::PacketId;
use statestore_proto::{Condition, Refusal, Version};

/// Which key, by its index in [`KEYS`].
pub type Key = usize;

/// The keys. The value of the lock is the client that has it, other values are the numbers of the requests
/// that set them. What is fenced is set with the version of the lock as fencing token, by some.
pub const KEYS: [&str; 4] = ["plain", "lock", "fenced", "volatile"];

/// The key that clients lock.
pub const LOCK: Key = 1;
/// The key that is set with fencing tokens.
pub const FENCED: Key = 2;
/// The key that is not stored.
pub const VOLATILE: Key = 3;

/// Which request, of all in a history; its Correlation Data.
pub type RequestNumber = u32;

/// A value.
pub type Value = u32;

/// A request.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Request {
    /// Which one.
    pub number: RequestNumber,
    /// The packet identifier of its PUBLISH.
    pub id: PacketId,
    /// It was sent before.
    pub dup: bool,
    /// The key.
    pub key: Key,
    /// What is to be done.
    pub command: Command,
    /// The client's clock, in milliseconds.
    pub timestamp: u64,
    /// A version that was given for the lock.
    pub token: Option<Version>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Command {
    /// SET, and after how many milliseconds the key goes.
    Set(Value, Condition, Option<u64>),
    /// GET.
    Get,
    /// DEL.
    Del,
    /// VDEL.
    VDel(Value),
}

/// What a request is answered.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Told {
    /// It was set, and has this version now.
    Set(Version),
    /// Nothing was done: the key has another value, of this version.
    NotApplied(Version),
    /// It was deleted.
    Deleted(Version),
    /// There was nothing to delete.
    Nothing,
    /// It has this value, of this version.
    Value(Value, Version),
    /// There is no such key.
    Absent,
    /// Refused.
    Refused(Refusal),
}

/// What goes over a connection.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT, and whether the session is to begin anew.
    Connect {
        /// Clean Start.
        clean: bool,
    },
    /// CONNACK.
    ConnAck,
    /// A PUBLISH with a request.
    Request(Request),
    /// Its PUBACK.
    PubAck(PacketId),
    /// The response, in a PUBLISH with this packet identifier.
    Response(RequestNumber, Told, PacketId),
    /// KEYNOTIFY: from now on the connection is told of changes of a key.
    Watch(Key),
    /// Its response, in a PUBLISH with this packet identifier.
    Watching(PacketId),
    /// The key was set, or is gone; in a PUBLISH with this packet identifier.
    Notification(Key, Option<Value>, Version, PacketId),
    /// PUBACK of a client.
    Got(PacketId),
    /// The broker has closed the connection, or refused it.
    Disconnect,
}

impl Told {
    /// The version that is told.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::Set(version)
            | Self::NotApplied(version)
            | Self::Deleted(version)
            | Self::Value(_, version) => Some(version),
            Self::Nothing | Self::Absent | Self::Refused(_) => None,
        }
    }

    /// The version that was given to the change.
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
