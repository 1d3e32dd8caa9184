//! A session: its owner, its expiry, and the retained messages that its client has yet to get.

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::QoS;

use super::entry::identifier;
use super::{RecordError, decode_message, encode_message, known_flags, qos, versioned};
use crate::durable::wire::{Reader, flag, put_str, put_varint};
use crate::ids::SessionNumber;
use crate::message::Message;
use crate::time::MonoTime;

/// Format version of a record without a former number.
const VERSION: u8 = 1;

/// Format version of a record that ends with the number under which the state store knows the session.
const MOVED: u8 = 2;

const USER: u8 = 1 << 0;
const AWAY: u8 = 1 << 1;
const WILL: u8 = 1 << 2;
const WILL_EXPIRES: u8 = 1 << 3;

// Flags of a replay. The lower two bits are the QoS.
const IDENTIFIER: u8 = 1 << 2;
const AFTER: u8 = 1 << 3;

/// The stored record of a session, without its subscriptions, its queue and the QoS 2 messages
/// received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Identifies the session in all other keys.
    pub number: SessionNumber,
    /// The user that the session belongs to, if users are configured: no other user may take it
    /// over.
    pub user: Option<Box<str>>,
    /// Session Expiry Interval in seconds; `u32::MAX`: the session does not expire.
    pub expiry: u32,
    /// Time since which the session has had no client; `None`: a client is connected.
    pub away_since: Option<MonoTime>,
    /// The Will Message, until published or discarded.
    pub will: Option<WillRecord>,
    /// The replays that are not finished: retained messages that the client has yet to get.
    pub replays: Vec<ReplayRecord>,
    /// The number under which the state store notes its answers to the session, if that is not `number`: the session
    /// has come from another broker.
    pub answered_as: Option<SessionNumber>,
}

/// A Will Message (MQTT 5 §3.1.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WillRecord {
    /// The message to publish. Its expiry starts to run when it is published.
    pub message: Arc<Message>,
    /// Message Expiry Interval, in seconds.
    pub expiry: Option<u32>,
    /// Will Delay Interval, in seconds.
    pub delay: u32,
}

/// The replay of one subscription: how far it has got through the retained messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRecord {
    /// The topic filter.
    pub filter: Box<str>,
    /// The QoS granted.
    pub qos: QoS,
    /// The Subscription Identifier.
    pub identifier: Option<NonZeroU32>,
    /// The topic of the last message that was sent; `None`: no message was sent.
    pub after: Option<Box<str>>,
}

impl SessionRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let will_expiry = self.will.as_ref().and_then(|will| will.expiry);
        out.push(if self.answered_as.is_some() { MOVED } else { VERSION });
        out.push(
            flag(self.user.is_some(), USER)
                | flag(self.away_since.is_some(), AWAY)
                | flag(self.will.is_some(), WILL)
                | flag(will_expiry.is_some(), WILL_EXPIRES),
        );
        out.extend_from_slice(&self.number.to_be_bytes());
        put_varint(self.expiry.into(), out);
        if let Some(user) = &self.user {
            put_str(user, out);
        }
        if let Some(since) = self.away_since {
            put_varint(since.as_millis(), out);
        }
        if let Some(will) = &self.will {
            will.encode(out);
        }
        put_varint(self.replays.len() as u64, out);
        for replay in &self.replays {
            replay.encode(out);
        }
        if let Some(number) = self.answered_as {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let is_moved = record.first() != Some(&VERSION);
        let mut reader = versioned(record, if is_moved { MOVED } else { VERSION })?;
        let flags = reader.u8()?;
        known_flags(flags, USER | AWAY | WILL | WILL_EXPIRES)?;
        let number = reader.u64_be()?;
        let expiry = reader.narrow()?;
        let user = match flags & USER {
            0 => None,
            _ => Some(reader.str()?.into()),
        };
        let away_since = match flags & AWAY {
            0 => None,
            _ => Some(MonoTime::from_millis(reader.varint()?)),
        };
        let will = match flags & (WILL | WILL_EXPIRES) {
            0 => None,
            WILL_EXPIRES => return Err(RecordError::Malformed("there is no will to expire")),
            will => Some(WillRecord::read(&mut reader, will & WILL_EXPIRES != 0)?),
        };
        let mut replays = Vec::new();
        for _ in 0..reader.varint()? {
            replays.push(ReplayRecord::read(&mut reader)?);
        }
        let answered_as = if is_moved { Some(reader.u64_be()?) } else { None };
        reader.finish()?;
        Ok(Self { number, user, expiry, away_since, will, replays, answered_as })
    }
}

impl WillRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(expiry) = self.expiry {
            put_varint(expiry.into(), out);
        }
        put_varint(self.delay.into(), out);
        let mut message = Vec::new();
        encode_message(&self.message, &mut message);
        put_varint(message.len() as u64, out);
        out.extend_from_slice(&message);
    }

    fn read(reader: &mut Reader<'_>, expires: bool) -> Result<Self, RecordError> {
        let expiry = if expires { Some(reader.narrow()?) } else { None };
        let delay = reader.narrow()?;
        let len = reader.narrow()?;
        let message = Arc::new(decode_message(reader.take(len)?)?);
        Ok(Self { message, expiry, delay })
    }
}

impl ReplayRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(
            self.qos as u8
                | flag(self.identifier.is_some(), IDENTIFIER)
                | flag(self.after.is_some(), AFTER),
        );
        put_str(&self.filter, out);
        if let Some(identifier) = self.identifier {
            put_varint(identifier.get().into(), out);
        }
        if let Some(after) = &self.after {
            put_str(after, out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let flags = reader.u8()?;
        known_flags(flags, 0b11 | IDENTIFIER | AFTER)?;
        Ok(Self {
            qos: qos(flags)?,
            filter: reader.str()?.into(),
            identifier: match flags & IDENTIFIER {
                0 => None,
                _ => Some(identifier(reader)?),
            },
            after: match flags & AFTER {
                0 => None,
                _ => Some(reader.str()?.into()),
            },
        })
    }
}
