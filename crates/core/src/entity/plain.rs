//! A stream without sessions: each message has its own lock, whichever receiver takes it.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::due::{Due, NEVER};
use super::ready::Ready;
use super::turns::Turns;
use super::{LockToken, ReceiverId, SequenceNumber};
use crate::queue::{Numbered, Queue, Queued};
use crate::time::WallTime;

/// The messages of a part that wait for any receiver, and the locks of those that were taken.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// Ready messages. The front always exists; behind it there may be messages that were removed.
    ready: Queue<Ready>,
    /// Number of ready messages that were removed.
    gone: usize,
    locks: HashMap<SequenceNumber, Lock, FixedState>,
    lock_ends: Due<SequenceNumber>,
    /// Expiry times of the ready messages.
    expiries: Due<SequenceNumber>,
    /// Receivers that want more messages than there were.
    pub hungry: Turns<ReceiverId>,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    number: u64,
    until: WallTime,
}

impl Plain {
    /// Puts a message into its place in the stream. It can expire there if `expires`.
    pub fn put_back(&mut self, ready: Ready, expires: bool) {
        if expires && ready.expires_at() != NEVER {
            self.expiries.insert(ready.expires_at(), ready.number());
        }
        self.ready.put_back(ready);
    }

    /// The first message.
    pub fn front(&self) -> Option<SequenceNumber> {
        self.ready.front().map(Ready::number)
    }

    /// Takes the turn of the next hungry receiver, if there is a message for it.
    pub fn offer(&mut self) -> Option<ReceiverId> {
        if self.ready.is_empty() {
            return None;
        }
        self.hungry.take_first().map(|(_, receiver)| receiver)
    }

    /// Takes the first message. Returns its number, and whether it has expired. `exists` tells which messages were not
    /// removed.
    pub fn pop(
        &mut self,
        now: WallTime,
        exists: impl Fn(SequenceNumber) -> bool,
    ) -> Option<(SequenceNumber, bool)> {
        let ready = self.ready.pop()?;
        let may_expire =
            ready.expires_at() != NEVER && self.expiries.remove(ready.expires_at(), ready.number());
        self.trim(exists);
        Some((ready.number(), may_expire && ready.is_expired(now)))
    }

    /// Time at which the next message expires.
    pub fn next_expiry(&self) -> Option<WallTime> {
        self.expiries.next()
    }

    /// Takes a waiting message that has expired. The caller removes it, and then calls `forget`.
    pub fn take_expired(&mut self, now: WallTime) -> Option<SequenceNumber> {
        self.expiries.take(now)
    }

    /// Notes that a waiting message was removed. Removed messages are taken out of the middle of the queue only when
    /// there are many.
    pub fn forget(&mut self, exists: impl Fn(SequenceNumber) -> bool) {
        self.gone += 1;
        self.trim(&exists);
        if self.gone > self.ready.len() / 2 {
            self.ready.take(|ready| !exists(ready.number()));
            self.gone = 0;
        }
    }

    fn trim(&mut self, exists: impl Fn(SequenceNumber) -> bool) {
        while self.gone > 0 && self.ready.front().is_some_and(|front| !exists(front.number())) {
            self.ready.pop();
            self.gone -= 1;
        }
    }

    pub fn lock(&mut self, token: LockToken, until: WallTime) {
        self.locks.insert(token.number(), Lock { number: token.lock(), until });
        self.lock_ends.insert(until, token.number());
    }

    pub fn is_locked(&self, number: SequenceNumber) -> bool {
        self.locks.contains_key(&number)
    }

    /// Returns whether the message is locked with this token.
    pub fn holds(&self, token: LockToken, now: WallTime) -> bool {
        let lock = self.locks.get(&token.number());
        lock.is_some_and(|lock| lock.number == token.lock() && lock.until > now)
    }

    pub fn unlock(&mut self, number: SequenceNumber) {
        if let Some(lock) = self.locks.remove(&number) {
            self.lock_ends.remove(lock.until, number);
        }
    }

    /// Time at which the next lock ends.
    pub fn next_lock_end(&self) -> Option<WallTime> {
        self.lock_ends.next()
    }

    /// Takes a message whose lock has just ended.
    pub fn take_lock_end(&mut self, now: WallTime) -> Option<SequenceNumber> {
        let number = self.lock_ends.take(now)?;
        self.locks.remove(&number);
        Some(number)
    }

    /// Clears the stream when all messages are removed; hungry receivers stay.
    pub fn clear(&mut self) {
        *self = Self { hungry: std::mem::take(&mut self.hungry), ..Self::default() };
    }
}
