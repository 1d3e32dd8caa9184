//! Consequences of a command: changes of the store, and notifications of receivers.

use std::sync::Arc;

use super::{Entry, Part, ReceiverId, SequenceNumber};
use crate::time::WallTime;

/// Receives the consequences of a command, in order, while the entity is locked.
///
/// The consequences of one command must be durable together or not at all: the implementation holds the shard from the
/// first call to the last.
pub trait Effects {
    /// Stores the bytes of a new message. Its entry follows.
    fn put_body(&mut self, id: u64, bytes: &Arc<[u8]>);

    /// Removes the bytes of a message that was removed.
    fn remove_body(&mut self, id: u64);

    /// Stores the entry of a message, in place of the one with the same number.
    fn put_entry(&mut self, part: Part, entry: &Entry);

    /// Removes an entry. The body may still belong to an entry with another number.
    fn remove_entry(&mut self, part: Part, number: SequenceNumber);

    /// Stores the state of a session.
    fn put_state(&mut self, session: &Arc<str>, state: &Arc<[u8]>, updated_at: WallTime);

    /// Removes the state of a session.
    fn remove_state(&mut self, session: &Arc<str>);

    /// Stores the id of a message: messages with this id are dropped until then.
    fn put_seen(&mut self, message_id: &Arc<str>, until: WallTime);

    /// Removes the id of a message, which is no longer a duplicate.
    fn remove_seen(&mut self, message_id: &Arc<str>);

    /// Stores a reservation: after a crash no number below `reserved` may be assigned.
    fn put_numbers(&mut self, part: Part, reserved: SequenceNumber);

    /// Whether the bytes of a message that arrives now stay in memory as well.
    fn keeps_in_memory(&self) -> bool;

    /// Notes that messages and states that took `before` bytes in memory now take `after`.
    fn memory(&mut self, before: usize, after: usize);

    /// Tells a hungry receiver, which took less than it wanted, that there is a message to take. Called once, and again
    /// only after the receiver has taken less than it wanted again.
    fn ready(&mut self, receiver: ReceiverId);

    /// Grants a session to a receiver that waited for one.
    fn granted(&mut self, receiver: ReceiverId, session: &Arc<str>, locked_until: WallTime);

    /// Tells a receiver that no session became free in time. The receiver counts as closed.
    fn timed_out(&mut self, receiver: ReceiverId);

    /// Tells a receiver that its lock on its session has expired. The receiver counts as closed.
    fn lock_lost(&mut self, receiver: ReceiverId);
}
