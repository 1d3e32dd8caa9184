//! A stream without sessions: each message has its own lock, whoever takes it.

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
    /// The front is always one of the messages; behind it there may be some that have gone.
    ready: Queue<Ready>,
    /// How many of them have gone.
    gone: usize,
    locks: HashMap<SequenceNumber, Lock, FixedState>,
    lock_ends: Due<SequenceNumber>,
    /// When those expire that are ready.
    expiries: Due<SequenceNumber>,
    /// Receivers that want more than there was.
    pub hungry: Turns<ReceiverId>,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    number: u64,
    until: WallTime,
}

impl Plain {
    /// A message waits in its place. It may expire here, if `expires`.
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

    /// The receiver whose turn it is, if there is something to take.
    pub fn offer(&mut self) -> Option<ReceiverId> {
        if self.ready.is_empty() {
            return None;
        }
        self.hungry.take_first().map(|(_, receiver)| receiver)
    }

    /// Takes the first message, with whether it has expired. `exists` knows which have not gone.
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

    /// When the next message expires.
    pub fn next_expiry(&self) -> Option<WallTime> {
        self.expiries.next()
    }

    /// A message that has expired where it waits. Whoever asks removes it, and says so by `forget`.
    pub fn take_expired(&mut self, now: WallTime) -> Option<SequenceNumber> {
        self.expiries.take(now)
    }

    /// A message has gone that waited. It is taken out of the middle of the queue only with many others.
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

    /// Whether the message is locked with this token.
    pub fn holds(&self, token: LockToken, now: WallTime) -> bool {
        let lock = self.locks.get(&token.number());
        lock.is_some_and(|lock| lock.number == token.lock() && lock.until > now)
    }

    pub fn unlock(&mut self, number: SequenceNumber) {
        if let Some(lock) = self.locks.remove(&number) {
            self.lock_ends.remove(lock.until, number);
        }
    }

    /// When the next lock ends.
    pub fn next_lock_end(&self) -> Option<WallTime> {
        self.lock_ends.next()
    }

    /// A message whose lock has just ended.
    pub fn take_lock_end(&mut self, now: WallTime) -> Option<SequenceNumber> {
        let number = self.lock_ends.take(now)?;
        self.locks.remove(&number);
        Some(number)
    }

    /// All messages have gone.
    pub fn clear(&mut self) {
        *self = Self { hungry: std::mem::take(&mut self.hungry), ..Self::default() };
    }
}
