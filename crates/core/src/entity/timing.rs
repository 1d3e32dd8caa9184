//! Effects of passing time.

use std::sync::Arc;

use super::{Effects, Entity, Part, SequenceNumber, State};
use crate::time::WallTime;

/// Maximum number of messages that become active, expire, or are forgotten, and of locks that end, in one call of
/// [`Entity::on_time`]. If there are more, the entity is due again at once.
pub const AT_ONCE_MAX: usize = 1_000;

impl Entity {
    /// Time at which [`Entity::on_time`] must be called, if nothing else happens.
    pub fn due(&self) -> Option<WallTime> {
        if self.searches || !self.condemned.is_empty() {
            return Some(WallTime::default());
        }
        let main = self.plain(Part::Main);
        let sessions = self.sessions.as_ref();
        let due = Part::ALL.into_iter().map(|part| self.plain(part).next_lock_end()).chain([
            main.next_expiry(),
            self.schedule.next(),
            self.seen.next_due(),
            sessions.and_then(|sessions| sessions.next_lock_end()),
            sessions.and_then(|sessions| sessions.next_time_out()),
        ]);
        due.flatten().min()
    }

    /// Advances the time to `now`: locks end, scheduled messages become active, receivers stop waiting for a session,
    /// messages expire, ids are forgotten. Messages in sessions expire only when a receiver asks for them.
    pub fn on_time(&mut self, now: WallTime, fx: &mut dyn Effects) {
        self.searches = false;
        self.end_locks(now, fx);
        for _ in 0..AT_ONCE_MAX {
            let Some(number) = self.schedule.take(now) else { break };
            self.enqueue_scheduled(number, now, fx);
        }
        self.grant_waiting(now, fx);
        for _ in 0..AT_ONCE_MAX {
            let sessions = self.sessions.as_mut();
            let waiter = sessions.and_then(|sessions| sessions.take_timed_out(now));
            let Some(waiter) = waiter else { break };
            self.receivers.remove(&waiter.receiver);
            fx.timed_out(waiter.receiver);
        }
        for _ in 0..AT_ONCE_MAX {
            let Some(number) = self.condemned.pop_front() else { break };
            self.expire(number, fx);
        }
        for _ in 0..AT_ONCE_MAX {
            let Some(number) = self.plain_mut(Part::Main).take_expired(now) else { break };
            self.expire(number, fx);
            let (plain, messages) = self.plain_with_messages(Part::Main);
            plain.forget(|number| messages.get(number).is_some());
        }
        for _ in 0..AT_ONCE_MAX {
            if !self.seen.forget_due(now, fx) {
                break;
            }
        }
    }

    /// Enqueues a scheduled message whose time has come, with a new number.
    fn enqueue_scheduled(&mut self, number: SequenceNumber, now: WallTime, fx: &mut dyn Effects) {
        let mut entry = self.leave(Part::Main, number, fx);
        let messages = self.messages_mut(Part::Main);
        let number = messages.new_number(fx);
        entry.number = number;
        entry.enqueued_number = number;
        entry.enqueued_at = now;
        entry.state = State::Active;
        messages.put(entry, fx);
        self.make_ready(Part::Main, number, fx);
    }

    /// Removes all ready messages of a session if at least one of them has expired, so that nobody gets them any more.
    /// If there are many, [`Entity::on_time`] removes the rest.
    pub(super) fn expire_session(
        &mut self,
        session: &Arc<str>,
        now: WallTime,
        fx: &mut dyn Effects,
    ) {
        if !self.session(session).is_some_and(|session| session.may_expire(now)) {
            return;
        }
        let expired =
            self.change_session(Part::Main, Some(session), |session| session.take_expired(now));
        let mut expired = expired.into_iter().flatten();
        for number in expired.by_ref().take(AT_ONCE_MAX) {
            self.expire(number, fx);
        }
        self.condemned.extend(expired);
    }
}
