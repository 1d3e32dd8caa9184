//! The values in the store, one file for each kind.
//!
//! A value begins with the version of its format. A later version is refused with an error message, never interpreted;
//! any other deviation from the format is an error, too. No memory is allocated according to a length that a record
//! declares. A record that was read and is written again gives the same bytes.

mod answered;
mod body;
mod entity;
mod entry;
mod id;
mod managed;
mod message;
mod numbers;
mod overlay;
mod queue_entry;
mod received;
mod retained;
mod seen;
mod session;
mod session_state;
mod shard;
mod state;
mod state_clock;
mod subscription;

use std::fmt;
use std::sync::Arc;

use barid_store::Keyspace;
use mqtt_proto::QoS;
use statestore_proto::Version;

use super::keys::{
    self, AnsweredKey, EntityKey, EntryKey, ManagedKey, MessageKey, QueueBodyKey, QueueEntryKey,
    QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey, RetainedKey, SessionKey, ShardKey,
    StateClockKey, StateKey, SubscriptionKey,
};
use super::wire::{Reader, put_str, put_varint};
use crate::holder::Holder;
use crate::session::EntryRecord;
use crate::stamp::Stamp;
use crate::state_store::{AnsweredRecord, StateRecord};

pub use entity::EntityRecord;
pub use managed::{MANAGED_TEXT_MAX, ManagedRecord};
pub use received::ReceivedRecord;
pub use retained::RetainedRecord;
pub use session::{ReplayRecord, SessionRecord, WillRecord};
pub use session_state::SessionStateRecord;
pub use shard::ShardRecord;
pub use subscription::SubscriptionRecord;

pub use body::{decode as decode_body, encode as encode_body};
pub use message::{decode as decode_message, encode as encode_message};
pub use numbers::{decode as decode_numbers, encode as encode_numbers};
pub use queue_entry::{decode as decode_queue_entry, encode as encode_queue_entry};
pub use seen::{decode as decode_seen, encode as encode_seen};
pub use state_clock::{decode as decode_state_clock, encode as encode_state_clock};

/// Reason for which a key or a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The record was written by a later version of Barid.
    Newer {
        /// The format version of the record.
        found: u8,
        /// The latest format version that can be read.
        known: u8,
    },
    /// The key or record is malformed, for this reason.
    Malformed(&'static str),
}

impl RecordError {
    /// The error for a version byte that is not the expected one.
    pub(super) fn version(found: u8, known: u8) -> Self {
        if found > known {
            Self::Newer { found, known }
        } else {
            Self::Malformed("it has a version that never was")
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found, known } => write!(
                f,
                "a newer version of Barid wrote it (its format is {found}, this version knows {known})"
            ),
            Self::Malformed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RecordError {}

/// Checks that a key and its value are valid for `keyspace`.
///
/// # Errors
/// [`RecordError`] of the key or of the value.
pub fn verify(keyspace: Keyspace, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
    match keyspace {
        keys::SESSIONS => {
            SessionKey::decode(key)?;
            SessionRecord::decode(value).map(drop)
        }
        keys::SUBSCRIPTIONS => {
            SubscriptionKey::decode(key)?;
            SubscriptionRecord::decode(value).map(drop)
        }
        keys::ENTRIES => {
            EntryKey::decode(key)?;
            EntryRecord::decode(value).map(drop)
        }
        keys::MESSAGES => {
            MessageKey::decode(key)?;
            decode_message(value).map(drop)
        }
        keys::RECEIVED => {
            ReceivedKey::decode(key)?;
            ReceivedRecord::decode(value).map(drop)
        }
        keys::RETAINED => {
            let record = RetainedRecord::decode(value)?;
            RetainedKey::decode(key, record.message.publication().topic).map(drop)
        }
        keys::STATE => {
            StateKey::decode(key)?;
            StateRecord::decode(value).map(drop)
        }
        keys::STATE_CLOCKS => {
            StateClockKey::decode(key)?;
            decode_state_clock(value).map(drop)
        }
        keys::STATE_ANSWERS => {
            AnsweredKey::decode(key)?;
            AnsweredRecord::decode(value).map(drop)
        }
        keys::ENTITIES => {
            EntityKey::decode(key)?;
            EntityRecord::decode(value).map(drop)
        }
        keys::QUEUE_ENTRIES => {
            let QueueEntryKey { number, .. } = QueueEntryKey::decode(key)?;
            decode_queue_entry(number, value).map(drop)
        }
        keys::QUEUE_BODIES => {
            QueueBodyKey::decode(key)?;
            decode_body(value).map(drop)
        }
        keys::QUEUE_SESSIONS => {
            QueueSessionKey::decode(key)?;
            SessionStateRecord::decode(value).map(drop)
        }
        keys::QUEUE_SEEN => {
            QueueSeenKey::decode(key)?;
            decode_seen(value).map(drop)
        }
        keys::QUEUE_NUMBERS => {
            QueueNumbersKey::decode(key)?;
            decode_numbers(value).map(drop)
        }
        keys::SHARD => {
            ShardKey::decode(key)?;
            ShardRecord::decode(value).map(drop)
        }
        keys::MANAGED => {
            let key = ManagedKey::decode(key)?;
            ManagedRecord::decode(value)?.check(key)
        }
        _ => Err(RecordError::Malformed("its keyspace is unknown")),
    }
}

/// The version of a record that begins with the name of the user to whom its object belongs. A record follows, with a
/// version of its own, as it would be without a user.
const OF_USER: u8 = 2;

/// Begins the record of an object that belongs to a user, if it does.
fn put_holder(holder: Option<&Holder>, out: &mut Vec<u8>) {
    if let Some(holder) = holder {
        out.push(OF_USER);
        put_str(holder.name(), out);
    }
}

/// Returns the user to whom an object belongs, if it belongs to one, and the rest of its record.
fn split_holder(record: &[u8]) -> Result<(Option<Arc<Holder>>, &[u8]), RecordError> {
    match record.first() {
        Some(&OF_USER) => {
            let mut reader = versioned(record, OF_USER)?;
            match reader.str()? {
                "" => Err(RecordError::Malformed("a user has no name")),
                name => Ok((Some(Arc::new(Holder::new(name))), reader.rest())),
            }
        }
        Some(&later) if later > OF_USER => Err(RecordError::version(later, OF_USER)),
        _ => Ok((None, record)),
    }
}

/// Appends a stamp, which is not [`Stamp::NONE`].
fn put_stamp(stamp: Stamp, out: &mut Vec<u8>) {
    put_varint(stamp.time, out);
    out.extend_from_slice(&stamp.origin.to_be_bytes());
}

fn stamp(reader: &mut Reader<'_>) -> Result<Stamp, RecordError> {
    let stamp = Stamp { time: reader.varint()?, origin: reader.u64_be()? };
    let is_one = stamp != Stamp::NONE;
    is_one.then_some(stamp).ok_or(RecordError::Malformed("a stamp is empty"))
}

/// Checks the version of a record, and returns a reader of the rest.
fn versioned(record: &[u8], known: u8) -> Result<Reader<'_>, RecordError> {
    let mut reader = Reader::new(record);
    match reader.u8()? {
        version if version == known => Ok(reader),
        version => Err(RecordError::version(version, known)),
    }
}

/// Appends a version of the state store's clock.
fn put_state_version(version: Version, out: &mut Vec<u8>) {
    put_varint(version.wall, out);
    put_varint(version.counter.into(), out);
}

fn state_version(reader: &mut Reader<'_>) -> Result<Version, RecordError> {
    Ok(Version { wall: reader.varint()?, counter: reader.narrow()? })
}

/// Reads the lowest two bits as a QoS.
fn qos(flags: u8) -> Result<QoS, RecordError> {
    QoS::try_from(flags & 0b11).map_err(|_| RecordError::Malformed("a QoS is 3"))
}

/// Refuses flags that this version does not know.
fn known_flags(flags: u8, known: u8) -> Result<(), RecordError> {
    if flags & !known == 0 { Ok(()) } else { Err(RecordError::Malformed("a flag is unknown")) }
}
