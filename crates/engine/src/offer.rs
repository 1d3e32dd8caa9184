//! How messages are handed to a session.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use mqtt_proto::QoS;

/// How some messages are to be delivered to a session.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// Which messages of the run.
    pub range: Range<usize>,
    /// The QoS to deliver with.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Subscription Identifiers.
    pub identifiers: &'a [NonZeroU32],
    /// The shared subscription that chose the session.
    pub shared: Option<&'a Arc<str>>,
    /// When they are written to the client's socket, if it is idle.
    pub writes: Writes,
}

/// When messages are written to an idle client's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// At once: nothing else will be offered to the session soon.
    AtOnce,
    /// When enough bytes have come together, at the latest with the router's next flush.
    Together,
    /// With the router's next flush: the thread has written for long enough.
    WithFlush,
}
