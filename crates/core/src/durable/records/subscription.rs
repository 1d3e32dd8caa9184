//! A subscription of a session.

use std::num::NonZeroU32;

use mqtt_proto::QoS;

use super::entry::identifier;
use super::{RecordError, known_flags, qos, versioned};
use crate::durable::wire::{flag, put_varint};

const VERSION: u8 = 1;

// The lower two bits are the QoS.
const NO_LOCAL: u8 = 1 << 2;
const RETAIN_AS_PUBLISHED: u8 = 1 << 3;
const IDENTIFIER: u8 = 1 << 4;

/// The options with which a session has subscribed to a topic filter (MQTT 5 §3.8.3.1). Retain Handling is not stored:
/// it matters only when the SUBSCRIBE is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// The QoS granted.
    pub qos: QoS,
    /// No Local.
    pub no_local: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// The Subscription Identifier.
    pub identifier: Option<NonZeroU32>,
}

impl SubscriptionRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(
            self.qos as u8
                | flag(self.no_local, NO_LOCAL)
                | flag(self.retain_as_published, RETAIN_AS_PUBLISHED)
                | flag(self.identifier.is_some(), IDENTIFIER),
        );
        if let Some(identifier) = self.identifier {
            put_varint(identifier.get().into(), out);
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let flags = reader.u8()?;
        known_flags(flags, 0b11 | NO_LOCAL | RETAIN_AS_PUBLISHED | IDENTIFIER)?;
        let read = Self {
            qos: qos(flags)?,
            no_local: flags & NO_LOCAL != 0,
            retain_as_published: flags & RETAIN_AS_PUBLISHED != 0,
            identifier: match flags & IDENTIFIER {
                0 => None,
                _ => Some(identifier(&mut reader)?),
            },
        };
        reader.finish().map(|()| read)
    }
}
