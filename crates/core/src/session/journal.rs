//! The changes of a session's deliveries that must be stored.

use super::Delivery;
use crate::ids::{PacketId, StoredAs};

/// Receives each change of a session's stored deliveries, in order. The journal of a session that is not stored is
/// `()`, which does nothing.
///
/// A delivery is stored if [`Delivery::stored`] says so. Each is first passed to [`Journal::put`], then possibly to
/// `sent` and `released`, and at the end to `removed`.
pub trait Journal {
    /// Notes a delivery: one that waits (`sent` is `None`), or one that was admitted with a packet identifier.
    fn put(&mut self, delivery: &Delivery, sent: Option<PacketId>);

    /// Notes that a waiting delivery has got a packet identifier. A PUBLISH of QoS 2 may be sent only when this is
    /// durable: after a crash it has to be repeated with the same identifier.
    fn sent(&mut self, delivery: &Delivery, id: PacketId);

    /// Notes that the client has received a QoS 2 message (PUBREC). PUBREL may be sent only when this is durable: after
    /// PUBREL the client takes a repeated PUBLISH for a new message.
    fn released(&mut self, stored: StoredAs, id: PacketId);

    /// Notes the end of a delivery: acknowledged, dropped, or given to another session.
    fn removed(&mut self, stored: StoredAs, released: bool);
}

impl Journal for () {
    fn put(&mut self, _: &Delivery, _: Option<PacketId>) {}
    fn sent(&mut self, _: &Delivery, _: PacketId) {}
    fn released(&mut self, _: StoredAs, _: PacketId) {}
    fn removed(&mut self, _: StoredAs, _: bool) {}
}
