//! A message session: what belongs to one session id.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::due::NEVER;
use super::ready::Ready;
use super::{LockToken, Mode, ReceiverId, SequenceNumber};
use crate::queue::{Numbered, Queue};
use crate::time::WallTime;

/// The stream, the lock and the state of one session. It exists as long as it has any of them; most have
/// one message and nothing else, so that is all they have room for.
#[derive(Debug)]
pub(super) struct MessageSession {
    ready: Queue<Ready>,
    /// No message that is ready expires before.
    soonest: WallTime,
    /// Deferred and scheduled messages.
    aside: BTreeSet<SequenceNumber>,
    pub hold: Option<Box<Hold>>,
    pub state: Option<Box<SessionState>>,
    /// Its place among those that are listed.
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
    /// Whether the receiver wants more than there was.
    pub hungry: bool,
}

/// What the users of a session have noted.
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
    /// Whether anything belongs to it.
    pub fn exists(&self) -> bool {
        !self.ready.is_empty()
            || !self.aside.is_empty()
            || self.hold.is_some()
            || self.state.is_some()
    }

    /// Whether it has messages that wait for a receiver or that its receiver has, or a state.
    pub fn is_listed(&self) -> bool {
        !self.ready.is_empty() || self.in_flight().next().is_some() || self.state.is_some()
    }

    /// Its first message, if whoever asks for any session may have it.
    pub fn available(&self) -> Option<SequenceNumber> {
        if self.hold.is_some() {
            return None;
        }
        self.ready.front().map(Ready::number)
    }

    /// A message waits in its place. Answers the receiver to be told, if it waits for that.
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

    /// Whether it may have messages that have expired.
    pub fn may_expire(&self, now: WallTime) -> bool {
        self.soonest <= now
    }

    /// If one message that is ready has expired, all of them go. Looks at each.
    pub fn take_expired(&mut self, now: WallTime) -> Vec<SequenceNumber> {
        let first = self.ready.iter().map(Ready::expires_at).min().unwrap_or(NEVER);
        if first > now {
            self.soonest = first;
            return Vec::new();
        }
        self.soonest = NEVER;
        std::mem::take(&mut self.ready).iter().map(Ready::number).collect()
    }

    /// A message is deferred or scheduled.
    pub fn set_aside(&mut self, number: SequenceNumber) {
        self.aside.insert(number);
    }

    /// A message is deferred or scheduled no longer.
    pub fn unset_aside(&mut self, number: SequenceNumber) {
        self.aside.remove(&number);
    }

    /// Whether its lock has ended, and nobody has seen to that.
    pub fn lock_has_ended(&self, now: WallTime) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.until <= now)
    }

    /// Whether the token is of a message under its lock.
    pub fn holds(&self, token: LockToken) -> bool {
        let hold = self.hold.as_ref().filter(|hold| hold.number == token.lock());
        hold.is_some_and(|hold| hold.in_flight.contains(&token.number()))
    }

    pub fn is_in_flight(&self, number: SequenceNumber) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.in_flight.contains(&number))
    }

    /// The messages with this number or a greater one, in order: at most so many.
    pub fn starting_at(&self, number: SequenceNumber, max: usize) -> Vec<SequenceNumber> {
        let ready = self.ready.starting_at(number).map(Ready::number).take(max);
        let in_flight = self.hold.iter().flat_map(|hold| hold.in_flight.range(number..)).take(max);
        let aside = self.aside.range(number..).take(max);
        let mut numbers: Vec<_> = ready.chain(in_flight.copied()).chain(aside.copied()).collect();
        numbers.sort_unstable();
        // A deferred one may be in flight as well.
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

    /// All its messages have gone.
    pub fn clear(&mut self) {
        self.ready = Queue::default();
        self.soonest = NEVER;
        self.aside.clear();
        if let Some(hold) = &mut self.hold {
            hold.in_flight.clear();
        }
    }
}
