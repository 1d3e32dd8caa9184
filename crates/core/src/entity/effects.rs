//! What else follows from a command.

use std::sync::Arc;

use super::{Entry, Part, ReceiverId, SequenceNumber};
use crate::time::WallTime;

/// Hears what follows from a command, in order, while the entity is locked.
///
/// What follows from one command must be durable together or not at all: whoever implements it holds the
/// shard from the first call to the last.
pub trait Effects {
    /// A message has come; its bytes are to be stored. Its entry follows.
    fn put_body(&mut self, id: u64, bytes: &Arc<[u8]>);

    /// A message has gone, and its bytes with it.
    fn remove_body(&mut self, id: u64);

    /// This is what is known of a message from now on.
    fn put_entry(&mut self, part: Part, entry: &Entry);

    /// No message has this number in the part any more. Its body may live on under another.
    fn remove_entry(&mut self, part: Part, number: SequenceNumber);

    /// The state of a session from now on.
    fn put_state(&mut self, session: &Arc<str>, state: &Arc<[u8]>, updated_at: WallTime);

    /// The session has no state any more.
    fn remove_state(&mut self, session: &Arc<str>);

    /// Messages with this id are dropped until then.
    fn put_seen(&mut self, message_id: &Arc<str>, until: WallTime);

    /// They are no longer.
    fn remove_seen(&mut self, message_id: &Arc<str>);

    /// No number below `reserved` is to be given after a crash.
    fn put_numbers(&mut self, part: Part, reserved: SequenceNumber);

    /// Whether the bytes of a message that comes now are to stay in memory as well.
    fn keeps_in_memory(&self) -> bool;

    /// Messages and states took so many bytes in memory before, and take so many now.
    fn memory(&mut self, before: usize, after: usize);

    /// There is something to take for a receiver that took less than it wanted. Told once: it is heard
    /// again when it has taken less again.
    fn ready(&mut self, receiver: ReceiverId);

    /// A receiver that waited for a session has this one.
    fn granted(&mut self, receiver: ReceiverId, session: &Arc<str>, locked_until: WallTime);

    /// No session came free for a receiver in its time. It is as if closed.
    fn timed_out(&mut self, receiver: ReceiverId);

    /// The receiver's lock on its session has expired. It is as if closed.
    fn lock_lost(&mut self, receiver: ReceiverId);
}
