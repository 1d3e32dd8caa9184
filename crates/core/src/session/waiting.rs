//! A message on its way to a session, in memory or in the store only.

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::QoS;
use smallvec::SmallVec;

use super::Delivery;
use crate::ids::StoredAs;
use crate::message::Message;
use crate::queue::Queued;
use crate::session::{EntryRecord, Phase};
use crate::time::MonoTime;

/// Approximate overhead of a waiting message, in memory and on disk, in bytes: its place in the queue, the delivery
/// itself, and the keys under which it is stored.
pub const OVERHEAD: usize = 256;

/// Size of one additional Subscription Identifier, in bytes.
const IDENTIFIER: usize = 8;

/// A waiting delivery. A stored message need not be in memory as well: the payloads of a long backlog are fetched when
/// the client receives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The delivery with its message.
    Here(Delivery),
    /// The message is in the store only.
    Away(Stub),
}

/// The known attributes of a delivery whose message is in the store only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The records under which it is stored.
    pub stored: StoredAs,
    /// Bytes of topic, properties and payload.
    pub size: u32,
    /// Time at which the message expires, if ever.
    pub expires_at: Option<MonoTime>,
    /// Same as in [`Delivery`].
    pub queued_at: MonoTime,
    /// Same as in [`Delivery`].
    pub qos: QoS,
    /// Same as in [`Delivery`].
    pub retain: bool,
    /// Same as in [`Delivery`].
    pub identifiers: SmallVec<[NonZeroU32; 1]>,
    /// Same as in [`Delivery`].
    pub shared: Option<Arc<str>>,
}

impl Waiting {
    /// Converts a delivery, and drops its message from memory if it is stored.
    pub fn without_message(delivery: Delivery) -> Self {
        let Some(stored) = delivery.stored else { return Self::Here(delivery) };
        Self::Away(Stub {
            stored,
            size: u32::try_from(delivery.message.size()).expect("shorter than 256 MiB"),
            expires_at: delivery.message.publication().expires_at,
            queued_at: delivery.queued_at,
            qos: delivery.qos,
            retain: delivery.retain,
            identifiers: delivery.identifiers,
            shared: delivery.shared,
        })
    }

    /// Converts an entry that was read from the store.
    pub fn recovered(stored: StoredAs, record: EntryRecord) -> Self {
        Self::Away(Stub {
            stored,
            size: record.size,
            expires_at: record.expires_at,
            queued_at: record.queued_at,
            qos: record.qos,
            retain: record.retain,
            identifiers: record.identifiers,
            shared: record.shared,
        })
    }

    /// The delivery, if its message is in memory.
    pub fn here(&self) -> Option<&Delivery> {
        match self {
            Self::Here(delivery) => Some(delivery),
            Self::Away(_) => None,
        }
    }

    /// The record of the message, if it is not in memory.
    pub fn away(&self) -> Option<StoredAs> {
        match self {
            Self::Here(_) => None,
            Self::Away(stub) => Some(stub.stored),
        }
    }

    /// Returns the delivery, with `message` if it lacked its message.
    pub fn with_message(mut self, message: Arc<Message>) -> Option<Delivery> {
        self.supply(message);
        match self {
            Self::Here(delivery) => Some(delivery),
            Self::Away(_) => None,
        }
    }

    /// Supplies the message.
    pub(super) fn supply(&mut self, message: Arc<Message>) {
        if let Self::Away(stub) = self {
            *self = Self::Here(Delivery {
                message,
                qos: stub.qos,
                retain: stub.retain,
                identifiers: std::mem::take(&mut stub.identifiers),
                shared: stub.shared.take(),
                stored: Some(stub.stored),
                queued_at: stub.queued_at,
                after: None,
            });
        }
    }

    /// The records under which the delivery is stored, if it is.
    pub fn stored(&self) -> Option<StoredAs> {
        match self {
            Self::Here(delivery) => delivery.stored,
            Self::Away(stub) => Some(stub.stored),
        }
    }

    /// The topic, if the message is in memory.
    pub fn topic(&self) -> Option<&str> {
        self.here().map(|delivery| delivery.message.publication().topic)
    }

    /// The QoS with which the message is delivered.
    pub fn qos(&self) -> QoS {
        match self {
            Self::Here(delivery) => delivery.qos,
            Self::Away(stub) => stub.qos,
        }
    }

    /// Bytes of topic, properties and payload.
    pub fn size(&self) -> usize {
        match self {
            Self::Here(delivery) => delivery.message.size(),
            Self::Away(stub) => stub.size as usize,
        }
    }

    /// Identifiers of the subscriptions that the message matched.
    fn identifiers(&self) -> &[NonZeroU32] {
        match self {
            Self::Here(delivery) => &delivery.identifiers,
            Self::Away(stub) => &stub.identifiers,
        }
    }

    /// Time since which the message waits.
    pub fn queued_at(&self) -> MonoTime {
        match self {
            Self::Here(delivery) => delivery.queued_at,
            Self::Away(stub) => stub.queued_at,
        }
    }

    /// The shared subscription that chose the session, if one did.
    pub fn shared(&self) -> Option<&Arc<str>> {
        match self {
            Self::Here(delivery) => delivery.shared.as_ref(),
            Self::Away(stub) => stub.shared.as_ref(),
        }
    }

    /// Whether the Message Expiry Interval has run out.
    pub fn is_expired(&self, now: MonoTime) -> bool {
        match self {
            Self::Here(delivery) => delivery.message.is_expired(now),
            Self::Away(stub) => stub.expires_at.is_some_and(|at| at <= now),
        }
    }
}

impl Queued for Waiting {
    type Time = MonoTime;

    fn size(&self) -> usize {
        OVERHEAD + Self::size(self) + IDENTIFIER * self.identifiers().len()
    }

    fn size_in_memory(&self) -> usize {
        self.here().map_or(0, |here| here.message.size())
    }

    fn is_expired(&self, now: MonoTime) -> bool {
        Self::is_expired(self, now)
    }

    fn is_refusable(&self) -> bool {
        self.qos() != QoS::AtMostOnce
    }
}

impl Delivery {
    /// Converts into the record of its entry, if it is stored.
    pub fn to_record(&self, phase: Phase) -> Option<EntryRecord> {
        Some(EntryRecord {
            message: self.stored?.message,
            size: u32::try_from(self.message.size()).expect("shorter than 256 MiB"),
            qos: self.qos,
            retain: self.retain,
            expires_at: self.message.publication().expires_at,
            queued_at: self.queued_at,
            identifiers: self.identifiers.clone(),
            shared: self.shared.clone(),
            phase,
        })
    }
}

impl From<Delivery> for Waiting {
    fn from(delivery: Delivery) -> Self {
        Self::Here(delivery)
    }
}
