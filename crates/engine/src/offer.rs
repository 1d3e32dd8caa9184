//! Offers: messages that are handed to a session.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use mqtt_proto::QoS;

/// Messages of a run that are offered to one session, and how to deliver them.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// Indexes of the messages in the run.
    pub range: Range<usize>,
    /// The QoS to deliver with.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Subscription Identifiers to send.
    pub identifiers: &'a [NonZeroU32],
    /// The shared subscription that chose the session, if one did.
    pub shared: Option<&'a Arc<str>>,
    /// The point at which the messages are written to the client's socket, if the client is idle.
    pub writes: Writes,
}

/// The point at which messages are written to an idle client's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// At once: no other messages will be offered to the session soon.
    AtOnce,
    /// When enough bytes have accumulated, at the latest with the router's next flush.
    Together,
    /// With the router's next flush: the thread has used up its turn.
    WithFlush,
}
