//! Opening and closing of receivers, and their locks on sessions.

use std::sync::Arc;

use super::entity::Receiver;
use super::message_session::Hold;
use super::sessions::{Sessions, Waiter};
use super::timing::AT_ONCE_MAX;
use super::{
    Accept, Accepted, Changes, Effects, Entity, ID_LEN_MAX, LockToken, Mode, Part, ReceiverId,
    Refusal,
};
use crate::time::WallTime;

impl Entity {
    /// Opens a receiver without session.
    ///
    /// # Errors
    /// [`Refusal::SessionsRequired`].
    pub fn open(&mut self, receiver: ReceiverId, part: Part, mode: Mode) -> Result<(), Refusal> {
        if self.sessions_of(part).is_some() {
            return Err(Refusal::SessionsRequired);
        }
        self.receivers.insert(receiver, Receiver::Plain { part, mode, turn: None });
        Ok(())
    }

    /// Opens a receiver that asks for a session. The receiver must be new.
    ///
    /// # Errors
    /// [`Refusal::SessionsNotSupported`], [`Refusal::SessionCannotBeLocked`], [`Refusal::IdTooLong`],
    /// [`Refusal::QuotaExceeded`] if the session would exceed the maximum number of sessions.
    pub fn accept(
        &mut self,
        receiver: ReceiverId,
        mode: Mode,
        accept: Accept,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<Accepted, Refusal> {
        self.end_locks(now, fx);
        let Some(sessions) = &self.sessions else { return Err(Refusal::SessionsNotSupported) };
        let session = match accept {
            Accept::Session(id) => {
                let id = sessions.shared_id(&id);
                if self.session(&id).is_some_and(|session| session.lock_has_ended(now)) {
                    self.end_lock_of(&id, fx);
                }
                let sessions = self.sessions.as_ref().expect("it was just seen");
                self.check_free(sessions, &id)?;
                self.expire_session(&id, now, fx);
                id
            }
            Accept::Next { until } => match self.next_session(now, fx) {
                Some(id) => id,
                None => {
                    let turn = self.sessions_mut().wait(Waiter { receiver, mode, until });
                    self.receivers.insert(receiver, Receiver::Waiting { turn });
                    return Ok(Accepted::Waiting);
                }
            },
        };
        let locked_until = self.hold(receiver, mode, &session, now);
        Ok(Accepted::Now { session, locked_until })
    }

    /// Closes a receiver of any kind. If it holds a session, its unsettled messages return to their places without
    /// raising their delivery counts, and the session is free. Messages that it took without session stay locked until
    /// their locks end.
    pub fn close(&mut self, receiver: ReceiverId, now: WallTime, fx: &mut dyn Effects) {
        // Locks that have ended count as ended, not as closed.
        self.end_locks(now, fx);
        match self.receivers.remove(&receiver) {
            None => {}
            Some(Receiver::Plain { part, turn, .. }) => {
                turn.inspect(|turn| _ = self.plain_mut(part).hungry.leave(*turn));
                self.offer(part, fx);
            }
            Some(Receiver::Waiting { turn }) => self.sessions_mut().stop_waiting(turn),
            Some(Receiver::Holder { session }) => {
                let failed = self.session(&session).is_some_and(|one| one.lock_has_ended(now));
                self.free(&session, failed, fx);
                self.grant_waiting(now, fx);
            }
        }
    }

    /// The session that a receiver holds, and when its lock ends.
    pub fn session_of(&self, receiver: ReceiverId) -> Option<(&Arc<str>, WallTime)> {
        let Some(Receiver::Holder { session }) = self.receivers.get(&receiver) else { return None };
        let hold = self.session(session)?.hold.as_ref()?;
        Some((session, hold.until))
    }

    /// The session whose lock has issued a token.
    pub fn session_locked_by(&self, token: LockToken) -> Option<&Arc<str>> {
        self.sessions.as_ref()?.locked(token.lock())
    }

    /// Renews the lock on a session, for the lock duration from now. Returns when it ends.
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`].
    pub fn renew_session(
        &mut self,
        receiver: ReceiverId,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<WallTime, Refusal> {
        let session = self.held(receiver, now, fx)?;
        let until = now.after(self.properties.lock_duration);
        self.sessions_mut().renew(&session, until);
        Ok(until)
    }

    /// Returns the session that a receiver holds now.
    pub(super) fn held(
        &mut self,
        receiver: ReceiverId,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<Arc<str>, Refusal> {
        self.end_locks(now, fx);
        match self.receivers.get(&receiver) {
            Some(Receiver::Holder { session })
                if !self.session(session).is_some_and(|one| one.lock_has_ended(now)) =>
            {
                Ok(Arc::clone(session))
            }
            _ => Err(Refusal::SessionLockLost),
        }
    }

    /// Grants free sessions to the receivers that have waited longest.
    pub(super) fn grant_waiting(&mut self, now: WallTime, fx: &mut dyn Effects) {
        while self.sessions.as_ref().is_some_and(|sessions| sessions.is_waited_for())
            && let Some(session) = self.next_session(now, fx)
        {
            let waiter = self.sessions_mut().take_waiter().expect("there is one");
            let until = self.hold(waiter.receiver, waiter.mode, &session, now);
            fx.granted(waiter.receiver, &session, until);
        }
    }

    /// Ends locks that have expired, and frees their sessions. If many messages return at once, the rest follows in
    /// [`Entity::on_time`]; until then those stay locked, without a valid token.
    pub(super) fn end_locks(&mut self, now: WallTime, fx: &mut dyn Effects) {
        let mut left = AT_ONCE_MAX;
        for part in Part::ALL {
            while left > 0
                && let Some(number) = self.plain_mut(part).take_lock_end(now)
            {
                self.unlock(part, number);
                self.fail(part, number, Changes::new(), fx);
                left -= 1;
            }
        }
        let mut freed = false;
        while left > 0
            && let Some(session) =
                self.sessions.as_mut().and_then(|sessions| sessions.take_lock_end(now))
        {
            left = left.saturating_sub(1 + self.end_lock_of(&session, fx));
            freed = true;
        }
        if freed {
            self.grant_waiting(now, fx);
        }
    }

    /// Ends the lock of a session. Returns how many messages return.
    fn end_lock_of(&mut self, session: &Arc<str>, fx: &mut dyn Effects) -> usize {
        let hold = self.session(session).and_then(|session| session.hold.as_ref());
        let hold = hold.expect("a lock that ends is one");
        let (receiver, in_flight) = (hold.receiver, hold.in_flight.len());
        self.receivers.remove(&receiver);
        self.free(session, true, fx);
        fx.lock_lost(receiver);
        in_flight
    }

    /// Returns the free session that has waited longest. Sessions whose messages have expired are skipped; if there are
    /// many of them, the search continues in [`Entity::on_time`].
    fn next_session(&mut self, now: WallTime, fx: &mut dyn Effects) -> Option<Arc<str>> {
        for _ in 0..AT_ONCE_MAX {
            let number = self.sessions.as_ref()?.next_available()?;
            let entry = self.messages(Part::Main).get(number).expect("what is ready is here");
            let session = entry.session.clone().expect("every message has a session here");
            self.expire_session(&session, now, fx);
            if self.sessions.as_ref()?.next_available() == Some(number) {
                return Some(session);
            }
        }
        self.searches = true;
        None
    }

    fn hold(
        &mut self,
        receiver: ReceiverId,
        mode: Mode,
        session: &Arc<str>,
        now: WallTime,
    ) -> WallTime {
        let until = now.after(self.properties.lock_duration);
        let number = self.new_lock();
        let in_flight = Default::default();
        let hold = Hold { receiver, mode, number, until, in_flight, hungry: false };
        self.sessions_mut().lock(session, hold);
        self.receivers.insert(receiver, Receiver::Holder { session: Arc::clone(session) });
        until
    }

    /// Frees a session. The messages that its receiver had return to their places; if `failed`, their deliveries count
    /// as failed.
    fn free(&mut self, session: &Arc<str>, failed: bool, fx: &mut dyn Effects) {
        let held = self.change_session(Part::Main, Some(session), |session| {
            let hold = session.hold.as_mut().expect("what is freed is held");
            hold.hungry = false;
            hold.in_flight.iter().copied().collect::<Vec<_>>()
        });
        for number in held.into_iter().flatten() {
            self.unlock(Part::Main, number);
            if failed {
                self.fail(Part::Main, number, Changes::new(), fx);
            } else {
                self.give_back(Part::Main, number, fx);
            }
        }
        self.sessions_mut().unlock(session);
    }

    fn check_free(&self, sessions: &Sessions, id: &str) -> Result<(), Refusal> {
        match sessions.get(id) {
            Some(session) if session.hold.is_some() => Err(Refusal::SessionCannotBeLocked),
            Some(_) => Ok(()),
            None if id.len() > ID_LEN_MAX => Err(Refusal::IdTooLong),
            None if sessions.len() >= self.properties.max_sessions => Err(Refusal::QuotaExceeded),
            None => Ok(()),
        }
    }

    pub(super) fn sessions_mut(&mut self) -> &mut Sessions {
        self.sessions.as_mut().expect("whoever waits for a session or holds one does so here")
    }
}
