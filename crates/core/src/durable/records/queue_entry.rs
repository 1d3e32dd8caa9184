//! An entry in the queue of an entity.
//!
//! The record is kept short: storage engines keep short values in memory, where a scan finds them at once.

use super::id::{id, put_id};
use super::overlay::{overlay, put_overlay};
use super::{RecordError, known_flags, versioned};
use crate::durable::wire::{flag, put_varint};
use crate::entity::{Body, Entry, SequenceNumber, State};
use crate::time::WallTime;

const VERSION: u8 = 1;

const SESSION: u8 = 1 << 0;
const MESSAGE_ID: u8 = 1 << 1;
const EXPIRES: u8 = 1 << 2;
const OVERLAY: u8 = 1 << 3;
/// The entry has had another number, or its body has another id.
const RENUMBERED: u8 = 1 << 4;
const STATE_SHIFT: u32 = 6;
const KNOWN: u8 = SESSION | MESSAGE_ID | EXPIRES | OVERLAY | RENUMBERED | 0b11 << STATE_SHIFT;

const ACTIVE: u8 = 0;
const DEFERRED: u8 = 1;
const SCHEDULED: u8 = 2;

/// Appends the record. The key contains the entry's number; the bytes of its body are a separate record.
pub fn encode(entry: &Entry, out: &mut Vec<u8>) {
    out.push(VERSION);
    let (state, due) = match entry.state {
        State::Active => (ACTIVE, None),
        State::Deferred => (DEFERRED, None),
        State::Scheduled { at } => (SCHEDULED, Some(at)),
    };
    let renumbered = (entry.enqueued_number, entry.body.id) != (entry.number, entry.number);
    out.push(
        flag(entry.session.is_some(), SESSION)
            | flag(entry.message_id.is_some(), MESSAGE_ID)
            | flag(entry.expires_at.is_some(), EXPIRES)
            | flag(entry.overlay.is_some(), OVERLAY)
            | flag(renumbered, RENUMBERED)
            | state << STATE_SHIFT,
    );
    put_varint(entry.enqueued_at.as_millis(), out);
    put_varint(entry.body.size.into(), out);
    put_varint(entry.delivery_count.into(), out);
    if let Some(at) = due {
        put_varint(at.as_millis(), out);
    }
    if let Some(at) = entry.expires_at {
        put_varint(at.as_millis(), out);
    }
    if renumbered {
        put_varint(entry.enqueued_number, out);
        put_varint(entry.body.id, out);
    }
    if let Some(session) = &entry.session {
        put_id(session, out);
    }
    if let Some(message_id) = &entry.message_id {
        put_id(message_id, out);
    }
    if let Some(overlay) = &entry.overlay {
        put_overlay(overlay, out);
    }
}

/// Reads the record of the entry with this number. The bytes of its body are left in the store.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(number: SequenceNumber, record: &[u8]) -> Result<Entry, RecordError> {
    let mut reader = versioned(record, VERSION)?;
    let flags = reader.u8()?;
    known_flags(flags, KNOWN)?;
    let has = |flag| flags & flag != 0;
    let enqueued_at = WallTime::from_millis(reader.varint()?);
    let (size, delivery_count) = (reader.narrow()?, reader.narrow()?);
    let state = match flags >> STATE_SHIFT {
        ACTIVE => State::Active,
        DEFERRED => State::Deferred,
        SCHEDULED => State::Scheduled { at: WallTime::from_millis(reader.varint()?) },
        _ => return Err(RecordError::Malformed("an entry is in a state that there is not")),
    };
    let expires_at = match has(EXPIRES) {
        true => Some(WallTime::from_millis(reader.varint()?)),
        false => None,
    };
    let (enqueued_number, body) = match has(RENUMBERED) {
        true => (reader.varint()?, reader.varint()?),
        false => (number, number),
    };
    if has(RENUMBERED) && (enqueued_number, body) == (number, number) {
        return Err(RecordError::Malformed("it says that it has other numbers and has none"));
    }
    let session = match has(SESSION) {
        true => Some(id(&mut reader)?.as_str().into()),
        false => None,
    };
    let message_id = match has(MESSAGE_ID) {
        true => Some(id(&mut reader)?.as_str().into()),
        false => None,
    };
    let overlay = match has(OVERLAY) {
        true => Some(overlay(&mut reader)?.into()),
        false => None,
    };
    reader.finish()?;
    Ok(Entry {
        number,
        session,
        message_id,
        enqueued_number,
        enqueued_at,
        expires_at,
        delivery_count,
        state,
        body: Body { id: body, size, bytes: None },
        overlay,
    })
}
