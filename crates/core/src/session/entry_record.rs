//! The stored form of an entry in the queue of a session.

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::QoS;
use smallvec::SmallVec;

use crate::ids::{MessageId, PacketId};
use crate::time::MonoTime;

/// The progress of an entry's delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Waits, without a packet identifier.
    #[default]
    Waiting,
    /// Sent as PUBLISH with this packet identifier; PUBACK or PUBREC was not received yet.
    Sent(PacketId),
    /// PUBREC was received, PUBCOMP was not. The client has the message, so it is no longer stored.
    Released(PacketId),
}

/// The stored form of one message on its way to one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    /// The stored message.
    pub message: MessageId,
    /// Bytes of its topic, properties and payload: what queue limits count.
    pub size: u32,
    /// The QoS with which the message is delivered.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Time at which the message expires, if ever.
    pub expires_at: Option<MonoTime>,
    /// Time at which the entry was queued.
    pub queued_at: MonoTime,
    /// Identifiers of the subscriptions that matched.
    pub identifiers: SmallVec<[NonZeroU32; 1]>,
    /// The shared subscription that chose this session, if one did.
    pub shared: Option<Arc<str>>,
    /// The progress of the delivery.
    pub phase: Phase,
}

impl EntryRecord {
    /// The record of an entry whose PUBREC was received. Only its packet identifier is set; all else is zero.
    pub fn released(packet_id: PacketId) -> Self {
        Self {
            message: 0,
            size: 0,
            qos: QoS::ExactlyOnce,
            retain: false,
            expires_at: None,
            queued_at: MonoTime::default(),
            identifiers: SmallVec::new(),
            shared: None,
            phase: Phase::Released(packet_id),
        }
    }

    /// The message that must be stored for this entry; `None` if the entry was released.
    pub fn refers_to(&self) -> Option<MessageId> {
        (!matches!(self.phase, Phase::Released(_))).then_some(self.message)
    }
}
