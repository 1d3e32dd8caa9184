//! What has to be stored of what is on its way to a session.

use super::Delivery;
use crate::ids::{PacketId, StoredAs};

/// Hears each change of a session's stored deliveries, in order. A session that is not stored has one
/// that does nothing: `()`.
///
/// A delivery is stored if [`Delivery::stored`] says so. Each is told once with [`Journal::put`], then
/// perhaps as sent, perhaps as released, and at the end as removed.
pub trait Journal {
    /// A delivery waits (`sent` is none), or has been admitted with a packet identifier.
    fn put(&mut self, delivery: &Delivery, sent: Option<PacketId>);

    /// A delivery that waited has got a packet identifier. A PUBLISH of QoS 2 may leave only when this
    /// is durable: after a crash it has to be repeated with the same identifier.
    fn sent(&mut self, delivery: &Delivery, id: PacketId);

    /// The client has received a QoS 2 message (PUBREC). PUBREL may leave only when this is durable:
    /// afterwards the client takes a repeated PUBLISH for a new message.
    fn released(&mut self, stored: StoredAs, id: PacketId);

    /// A delivery is over: acknowledged, dropped, or given to another session.
    fn removed(&mut self, stored: StoredAs, released: bool);
}

impl Journal for () {
    fn put(&mut self, _: &Delivery, _: Option<PacketId>) {}
    fn sent(&mut self, _: &Delivery, _: PacketId) {}
    fn released(&mut self, _: StoredAs, _: PacketId) {}
    fn removed(&mut self, _: StoredAs, _: bool) {}
}
