//! A message session: everything that belongs to one session id.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::due::NEVER;
use super::ready::Ready;
use super::{LockToken, Mode, ReceiverId, SequenceNumber};
use crate::queue::{Numbered, Queue};
use crate::time::WallTime;

/// The stream, the lock and the state of one session. The session exists as long as it has any of them. Most sessions
/// have one message and nothing else, so the rest is boxed.
#[derive(Debug)]
pub(super) struct MessageSession {
    ready: Queue<Ready>,
    /// No ready message expires before this time.
    soonest: WallTime,
    /// Deferred and scheduled messages.
    aside: BTreeSet<SequenceNumber>,
    pub hold: Option<Box<Hold>>,
    pub state: Option<Box<SessionState>>,
    /// The session's index in the list of sessions that are listed.
    pub listed: Option<u32>,
}

/// The lock on all messages of a session, present and future.
#[derive(Debug)]
pub(super) struct Hold {
    pub receiver: ReceiverId,
    pub mode: Mode,
    /// The number of the lock.
    pub number: u64,
    pub until: WallTime,
    /// The messages that the receiver has.
    pub in_flight: BTreeSet<SequenceNumber>,
    /// Whether the receiver wants more messages than there were.
    pub hungry: bool,
}

/// The state that the users of a session have set.
#[derive(Debug)]
pub(super) struct SessionState {
    pub bytes: Arc<[u8]>,
    pub updated_at: WallTime,
}

impl Default for MessageSession {
    fn default() -> Self {
        Self {
            ready: Queue::default(),
            soonest: NEVER,
            aside: BTreeSet::new(),
            hold: None,
            state: None,
            listed: None,
        }
    }
}

impl MessageSession {
    /// Whether the session has anything, and therefore exists.
    pub fn exists(&self) -> bool {
        !self.ready.is_empty()
            || !self.aside.is_empty()
            || self.hold.is_some()
            || self.state.is_some()
    }

    /// Whether the session has ready messages, messages that its receiver has, or a state.
    pub fn is_listed(&self) -> bool {
        !self.ready.is_empty() || self.in_flight().next().is_some() || self.state.is_some()
    }

    /// The session's first message, if a receiver that asks for any session may get this one.
    pub fn available(&self) -> Option<SequenceNumber> {
        if self.hold.is_some() {
            return None;
        }
        self.ready.front().map(Ready::number)
    }

    /// Puts a message into its place in the stream. Returns the receiver that has to be told, if it is hungry.
    pub fn put_back(&mut self, ready: Ready) -> Option<ReceiverId> {
        self.soonest = self.soonest.min(ready.expires_at());
        self.ready.put_back(ready);
        let hold = self.hold.as_deref_mut()?;
        std::mem::take(&mut hold.hungry).then_some(hold.receiver)
    }

    /// Takes the first message.
    pub fn pop(&mut self) -> Option<SequenceNumber> {
        let ready = self.ready.pop()?;
        if self.ready.is_empty() {
            self.soonest = NEVER;
        }
        Some(ready.number())
    }

    /// Whether the session may have expired messages.
    pub fn may_expire(&self, now: WallTime) -> bool {
        self.soonest <= now
    }

    /// Takes all ready messages if at least one of them has expired. Looks at each.
    pub fn take_expired(&mut self, now: WallTime) -> Vec<SequenceNumber> {
        let first = self.ready.iter().map(Ready::expires_at).min().unwrap_or(NEVER);
        if first > now {
            self.soonest = first;
            return Vec::new();
        }
        self.soonest = NEVER;
        std::mem::take(&mut self.ready).iter().map(Ready::number).collect()
    }

    /// Adds a deferred or scheduled message.
    pub fn set_aside(&mut self, number: SequenceNumber) {
        self.aside.insert(number);
    }

    /// Removes a message that is no longer deferred or scheduled.
    pub fn unset_aside(&mut self, number: SequenceNumber) {
        self.aside.remove(&number);
    }

    /// Whether the lock has ended without having been removed.
    pub fn lock_has_ended(&self, now: WallTime) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.until <= now)
    }

    /// Returns whether the token is that of a message under the session's lock.
    pub fn holds(&self, token: LockToken) -> bool {
        let hold = self.hold.as_ref().filter(|hold| hold.number == token.lock());
        hold.is_some_and(|hold| hold.in_flight.contains(&token.number()))
    }

    pub fn is_in_flight(&self, number: SequenceNumber) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.in_flight.contains(&number))
    }

    /// The messages with this number or a greater one, in order, at most `max`.
    pub fn starting_at(&self, number: SequenceNumber, max: usize) -> Vec<SequenceNumber> {
        let ready = self.ready.starting_at(number).map(Ready::number).take(max);
        let in_flight = self.hold.iter().flat_map(|hold| hold.in_flight.range(number..)).take(max);
        let aside = self.aside.range(number..).take(max);
        let mut numbers: Vec<_> = ready.chain(in_flight.copied()).chain(aside.copied()).collect();
        numbers.sort_unstable();
        // A deferred message may also be in flight.
        numbers.dedup();
        numbers.truncate(max);
        numbers
    }

    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    pub fn in_flight(&self) -> impl Iterator<Item = &SequenceNumber> {
        self.hold.iter().flat_map(|hold| hold.in_flight.iter())
    }

    pub fn aside(&self) -> usize {
        self.aside.len()
    }

    /// Clears the session when all its messages are removed; the lock and the state stay.
    pub fn clear(&mut self) {
        self.ready = Queue::default();
        self.soonest = NEVER;
        self.aside.clear();
        if let Some(hold) = &mut self.hold {
            hold.in_flight.clear();
        }
    }
}
