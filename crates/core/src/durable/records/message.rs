//! An Application Message: one that entries refer to, a retained message or a will.

use super::{RecordError, known_flags, qos, versioned};
use crate::durable::wire::{flag, put_varint};
use crate::message::Message;
use crate::time::MonoTime;

const VERSION: u8 = 1;

// The lower two bits are the QoS.
const RETAIN: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;

/// Appends `message` as a record.
pub fn encode(message: &Message, out: &mut Vec<u8>) {
    let expires_at = message.expires_at();
    out.push(VERSION);
    out.push(
        message.qos() as u8 | flag(message.retain(), RETAIN) | flag(expires_at.is_some(), EXPIRES),
    );
    if let Some(at) = expires_at {
        put_varint(at.as_millis(), out);
    }
    put_varint(message.topic_len().into(), out);
    put_varint(message.properties_len().into(), out);
    out.extend_from_slice(message.bytes());
}

/// Reads a record, copying topic, properties and payload once.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(record: &[u8]) -> Result<Message, RecordError> {
    let mut reader = versioned(record, VERSION)?;
    let flags = reader.u8()?;
    known_flags(flags, 0b11 | RETAIN | EXPIRES)?;
    let expires_at = match flags & EXPIRES {
        0 => None,
        _ => Some(MonoTime::from_millis(reader.varint()?)),
    };
    let (topic_len, properties_len) = (reader.narrow()?, reader.narrow()?);
    let bytes = reader.rest();
    Message::from_parts(
        bytes,
        topic_len,
        properties_len,
        qos(flags)?,
        flags & RETAIN != 0,
        expires_at,
    )
    .ok_or(RecordError::Malformed("a message has no topic"))
}
