//! The message sessions of an entity.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::due::Due;
use super::footprint;
use super::message_session::{Hold, MessageSession, SessionState};
use super::turns::Turns;
use super::{Mode, ReceiverId, SequenceNumber};
use crate::time::WallTime;

/// All sessions of an entity, and the receivers that wait for one.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: HashMap<Arc<str>, MessageSession>,
    /// The first messages of the free sessions.
    available: BTreeSet<SequenceNumber>,
    /// The session of each lock, by the lock's number.
    locks: HashMap<u64, Arc<str>, FixedState>,
    lock_ends: Due<u64>,
    /// Receivers that wait for a free session. While there are any, no session is free.
    waiting: Turns<Waiter>,
    time_outs: Due<u64>,
    /// Sessions with ready messages, with messages that a receiver has, or with a state.
    listed: Vec<Arc<str>>,
    /// Sessions with a state, by when it was set last.
    updated: BTreeSet<(WallTime, Arc<str>)>,
    state_bytes: usize,
    /// Bytes that count against the limit, without those of messages.
    footprint: usize,
}

/// A receiver that waits for a free session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub receiver: ReceiverId,
    pub mode: Mode,
    pub until: WallTime,
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The ids of all sessions, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_id.keys()
    }

    pub fn get(&self, id: &str) -> Option<&MessageSession> {
        self.by_id.get(id)
    }

    pub fn get_with_id(&self, id: &str) -> Option<(&Arc<str>, &MessageSession)> {
        self.by_id.get_key_value(id)
    }

    /// Returns the session's own copy of the id, so that all its messages share one allocation.
    pub fn shared_id(&self, id: &Arc<str>) -> Arc<str> {
        let (shared, _) = self.by_id.get_key_value(&**id).unzip();
        Arc::clone(shared.unwrap_or(id))
    }

    /// Changes a session, which is created if it is new, and updates the indexes of all sessions.
    pub fn change<R>(&mut self, id: &Arc<str>, change: impl FnOnce(&mut MessageSession) -> R) -> R {
        let session = match self.by_id.get_mut(&**id) {
            Some(session) => session,
            None => {
                self.footprint += footprint::session(id);
                self.by_id.entry(Arc::clone(id)).or_default()
            }
        };
        let before = session.available();
        let result = change(session);
        let (after, listed) = (session.available(), session.listed);
        let (is_listed, exists) = (session.is_listed(), session.exists());
        if before != after {
            if let Some(number) = before {
                self.available.remove(&number);
            }
            self.available.extend(after);
        }
        match listed {
            None if is_listed => {
                let place = u32::try_from(self.listed.len()).expect("fewer sessions than 2^32");
                session.listed = Some(place);
                self.listed.push(Arc::clone(id));
            }
            Some(place) if !is_listed => {
                session.listed = None;
                self.unlist(place);
            }
            _ => {}
        }
        if !exists {
            self.by_id.remove(&**id);
            self.footprint -= footprint::session(id);
        }
        result
    }

    /// Removes a session from the list; the last one takes its place.
    fn unlist(&mut self, place: u32) {
        self.listed.swap_remove(place as usize);
        if let Some(moved) = self.listed.get(place as usize) {
            let moved = self.by_id.get_mut(moved).expect("what is listed exists");
            moved.listed = Some(place);
        }
    }

    /// The first message of the free session that has waited longest.
    pub fn next_available(&self) -> Option<SequenceNumber> {
        self.available.first().copied()
    }

    pub fn lock(&mut self, id: &Arc<str>, hold: Hold) {
        self.locks.insert(hold.number, Arc::clone(id));
        self.lock_ends.insert(hold.until, hold.number);
        self.change(id, |session| session.hold = Some(Box::new(hold)));
    }

    pub fn unlock(&mut self, id: &Arc<str>) {
        if let Some(hold) = self.change(id, |session| session.hold.take()) {
            self.locks.remove(&hold.number);
            self.lock_ends.remove(hold.until, hold.number);
        }
    }

    /// Renews the lock of a session.
    pub fn renew(&mut self, id: &Arc<str>, until: WallTime) {
        let hold = self.by_id.get_mut(id).and_then(|session| session.hold.as_mut());
        let hold = hold.expect("who renews holds it");
        self.lock_ends.remove(hold.until, hold.number);
        self.lock_ends.insert(until, hold.number);
        hold.until = until;
    }

    /// The session with this lock.
    pub fn locked(&self, lock: u64) -> Option<&Arc<str>> {
        self.locks.get(&lock)
    }

    pub fn next_lock_end(&self) -> Option<WallTime> {
        self.lock_ends.next()
    }

    /// Takes a session whose lock has just ended; the session still has the lock.
    pub fn take_lock_end(&mut self, now: WallTime) -> Option<Arc<str>> {
        let lock = self.lock_ends.take(now)?;
        Some(Arc::clone(self.locks.get(&lock).expect("a lock that ends is one")))
    }

    /// Adds a receiver that waits for a session. Returns its turn.
    pub fn wait(&mut self, waiter: Waiter) -> u64 {
        let turn = self.waiting.join(waiter);
        self.time_outs.insert(waiter.until, turn);
        turn
    }

    pub fn stop_waiting(&mut self, turn: u64) {
        if let Some(waiter) = self.waiting.leave(turn) {
            self.time_outs.remove(waiter.until, turn);
        }
    }

    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the receiver that has waited longest.
    pub fn take_waiter(&mut self) -> Option<Waiter> {
        let (turn, waiter) = self.waiting.take_first()?;
        self.time_outs.remove(waiter.until, turn);
        Some(waiter)
    }

    pub fn next_time_out(&self) -> Option<WallTime> {
        self.time_outs.next()
    }

    /// Takes a receiver whose time to wait is over.
    pub fn take_timed_out(&mut self, now: WallTime) -> Option<Waiter> {
        let turn = self.time_outs.take(now)?;
        self.waiting.leave(turn)
    }

    /// Sets or clears the state of a session.
    pub fn set_state(&mut self, id: &Arc<str>, state: Option<SessionState>) {
        let updated_at = state.as_ref().map(|state| state.updated_at);
        if let Some(state) = &state {
            self.updated.insert((state.updated_at, Arc::clone(id)));
            self.state_bytes += state.bytes.len();
            self.footprint += footprint::state(&state.bytes);
        }
        let state = state.map(Box::new);
        let before = self.change(id, |session| std::mem::replace(&mut session.state, state));
        if let Some(before) = before {
            self.state_bytes -= before.bytes.len();
            self.footprint -= footprint::state(&before.bytes);
            if updated_at != Some(before.updated_at) {
                self.updated.remove(&(before.updated_at, Arc::clone(id)));
            }
        }
    }

    /// Bytes of all sessions and states that count against the limit.
    pub fn footprint(&self) -> usize {
        self.footprint
    }

    /// Bytes of all states.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// Sessions with ready messages, with messages that a receiver has, or with a state; in no
    /// particular order.
    pub fn listed(&self) -> &[Arc<str>] {
        &self.listed
    }

    pub fn all_with_state(&self) -> impl Iterator<Item = &Arc<str>> {
        self.updated.iter().map(|(_, id)| id)
    }

    /// Sessions whose state was set after `at`, in the order in which it was set.
    pub fn updated_after(&self, at: WallTime) -> impl Iterator<Item = &Arc<str>> {
        let later = WallTime::from_millis(at.as_millis().saturating_add(1));
        self.updated.range((later, Arc::from(""))..).map(|(_, id)| id)
    }
}
