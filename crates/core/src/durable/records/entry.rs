//! An entry in the queue of a session.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{RecordError, qos, versioned};
use crate::durable::wire::{Reader, flag, put_str, put_varint};
use crate::ids::PacketId;
use crate::session::{EntryRecord, Phase};
use crate::time::MonoTime;

const VERSION: u8 = 1;

// The lower two bits are the QoS, the upper two the phase.
const RETAIN: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const IDENTIFIERS: u8 = 1 << 4;
const SHARED: u8 = 1 << 5;
const PHASE_SHIFT: u32 = 6;

const WAITING: u8 = 0;
const SENT: u8 = 1;
const RELEASED: u8 = 2;

impl EntryRecord {
    /// Appends the record. Of a released entry only the packet identifier is kept.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        let (phase, packet_id) = match self.phase {
            Phase::Waiting => (WAITING, None),
            Phase::Sent(id) => (SENT, Some(id)),
            Phase::Released(id) => {
                out.push(RELEASED << PHASE_SHIFT);
                out.extend_from_slice(&id.to_be_bytes());
                return;
            }
        };
        out.push(
            self.qos as u8
                | flag(self.retain, RETAIN)
                | flag(self.expires_at.is_some(), EXPIRES)
                | flag(!self.identifiers.is_empty(), IDENTIFIERS)
                | flag(self.shared.is_some(), SHARED)
                | phase << PHASE_SHIFT,
        );
        if let Some(id) = packet_id {
            out.extend_from_slice(&id.to_be_bytes());
        }
        put_varint(self.message, out);
        put_varint(self.size.into(), out);
        put_varint(self.queued_at.as_millis(), out);
        if let Some(at) = self.expires_at {
            put_varint(at.as_millis(), out);
        }
        if !self.identifiers.is_empty() {
            put_varint(self.identifiers.len() as u64, out);
            for identifier in &self.identifiers {
                put_varint(identifier.get().into(), out);
            }
        }
        if let Some(shared) = &self.shared {
            put_str(shared, out);
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let flags = reader.u8()?;
        let phase = match flags >> PHASE_SHIFT {
            WAITING => Phase::Waiting,
            SENT => Phase::Sent(packet_id(&mut reader)?),
            RELEASED if flags == RELEASED << PHASE_SHIFT => {
                let released = Self::released(packet_id(&mut reader)?);
                return reader.finish().map(|()| released);
            }
            _ => return Err(RecordError::Malformed("an entry is in a phase that there is not")),
        };
        let read = Self {
            qos: qos(flags)?,
            retain: flags & RETAIN != 0,
            phase,
            message: reader.varint()?,
            size: reader.narrow()?,
            queued_at: MonoTime::from_millis(reader.varint()?),
            expires_at: if flags & EXPIRES != 0 {
                Some(MonoTime::from_millis(reader.varint()?))
            } else {
                None
            },
            identifiers: if flags & IDENTIFIERS != 0 {
                identifiers(&mut reader)?
            } else {
                SmallVec::new()
            },
            shared: if flags & SHARED != 0 { Some(Arc::from(reader.str()?)) } else { None },
        };
        reader.finish().map(|()| read)
    }
}

fn packet_id(reader: &mut Reader<'_>) -> Result<PacketId, RecordError> {
    match reader.u16_be()? {
        0 => Err(RecordError::Malformed("a packet identifier is 0")),
        id => Ok(id),
    }
}

fn identifiers(reader: &mut Reader<'_>) -> Result<SmallVec<[NonZeroU32; 1]>, RecordError> {
    let count = reader.varint()?;
    if count == 0 {
        return Err(RecordError::Malformed("it says that it has identifiers and has none"));
    }
    let mut identifiers = SmallVec::new();
    for _ in 0..count {
        identifiers.push(identifier(reader)?);
    }
    Ok(identifiers)
}

/// Reads a subscription identifier.
pub(super) fn identifier(reader: &mut Reader<'_>) -> Result<NonZeroU32, RecordError> {
    let identifier = NonZeroU32::new(reader.narrow()?);
    identifier.ok_or(RecordError::Malformed("a subscription identifier is 0"))
}
