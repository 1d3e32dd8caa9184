//! The commands of the model, and their expected results.

use barid_core::entity::{Accepted, Part, Refusal, State};
use barid_core::time::WallTime;

use super::super::op::How;
use super::super::{LOCK, TIME_TO_LIVE, WINDOW, id};
use super::{Delivered, Lock, Message, Model, PlainReceiver, Waiter};

impl Model {
    /// Returns the state of the new message; `None` if it is a duplicate.
    pub fn send(
        &mut self,
        (uid, session): (u64, u8),
        ttl: Option<u8>,
        delay: Option<u8>,
        known_as: Option<u8>,
        in_memory: bool,
    ) -> Option<State> {
        let now = self.now;
        if let Some(id) = known_as {
            if self.kept.seen.get(&id).is_some_and(|until| *until > now) {
                return None;
            }
            self.kept.seen.insert(id, now + WINDOW);
        }
        let at = now + u64::from(delay.unwrap_or(0));
        let mut message = Message::new(uid, session, in_memory, now);
        message.expires_at = Some(at + u64::from(ttl.unwrap_or(TIME_TO_LIVE).min(TIME_TO_LIVE)));
        if at > now {
            message.state = State::Scheduled { at: WallTime::from_millis(at) };
        }
        let state = message.state;
        self.main().push(message);
        if state == State::Active {
            self.grant();
        }
        Some(state)
    }

    pub fn dead_letter_incoming(&mut self, part: Part, uid: u64, session: u8, in_memory: bool) {
        let now = self.now;
        let message = Message::new(uid, session, in_memory, now);
        let expires_at = Some(now + u64::from(TIME_TO_LIVE));
        self.part_mut(part).push(Message { expires_at, ..message });
    }

    pub fn accept(
        &mut self,
        receiver: u64,
        session: Option<u8>,
        until: WallTime,
        delete: bool,
    ) -> Result<Accepted, Refusal> {
        self.end_locks();
        if !self.sessionful {
            return Err(Refusal::SessionsNotSupported);
        }
        if let Some(session) = session {
            if self.holders.iter().any(|holder| holder.session == session) {
                return Err(Refusal::SessionCannotBeLocked);
            }
            self.expire_session(session);
        }
        let Some(session) = session.or_else(|| self.next_session()) else {
            self.waiting.push(Waiter { receiver, until: until.as_millis(), delete });
            return Ok(Accepted::Waiting);
        };
        let locked_until = self.hold(receiver, session, delete);
        Ok(Accepted::Now { session: id(session), locked_until })
    }

    pub fn open(&mut self, receiver: u64, part: Part, delete: bool) -> Result<(), Refusal> {
        if self.sessionful && part == Part::Main {
            return Err(Refusal::SessionsRequired);
        }
        self.plain.insert(receiver, PlainReceiver { part, delete });
        Ok(())
    }

    pub fn take(&mut self, receiver: u64, max: usize) -> Result<Vec<Delivered>, Refusal> {
        self.end_locks();
        if let Some(plain) = self.plain.get(&receiver) {
            return Ok(self.take_plain(*plain, max));
        }
        let holder = *self.holder(receiver).ok_or(Refusal::SessionLockLost)?;
        self.expire_session(holder.session);
        let mut taken = Vec::new();
        let is_next = |one: &&Message| one.waits() && one.session == holder.session;
        while taken.len() < max
            && let Some(uid) = self.part(Part::Main).iter().find(is_next).map(|one| one.uid)
        {
            taken.push(self.deliver(Part::Main, uid, holder.delete, holder.lock()));
        }
        Ok(taken)
    }

    fn take_plain(&mut self, receiver: PlainReceiver, max: usize) -> Vec<Delivered> {
        let PlainReceiver { part, delete } = receiver;
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(position) = self.part(part).iter().position(Message::waits)
        {
            let message = &self.part(part)[position];
            if part == Part::Main && message.is_expired(self.now) {
                self.expire(position);
            } else {
                let (uid, lock) = (message.uid, self.new_lock());
                taken.push(self.deliver(part, uid, delete, lock));
            }
        }
        taken
    }

    pub fn receive_deferred(
        &mut self,
        receiver: u64,
        part: Part,
        uids: &[u64],
        delete: bool,
    ) -> Result<Vec<Delivered>, Refusal> {
        self.end_locks();
        let mut holder = None;
        if self.sessionful && part == Part::Main {
            holder = Some(*self.holder(receiver).ok_or(Refusal::SessionLockLost)?);
        }
        let is_there = |uid: &u64| {
            self.part(part).iter().any(|one| {
                let is_its = holder.is_none_or(|holder| holder.session == one.session);
                one.uid == *uid && one.state == State::Deferred && one.lock.is_none() && is_its
            })
        };
        if !uids.iter().all(is_there) {
            return Err(Refusal::MessageNotFound);
        }
        let mut received = Vec::new();
        for uid in uids {
            let lock = holder.map_or_else(|| self.new_lock(), |holder| holder.lock());
            received.push(self.deliver(part, *uid, delete, lock));
        }
        Ok(received)
    }

    pub fn settle(&mut self, delivered: Delivered, how: How) -> Result<(), Refusal> {
        self.end_locks();
        let Delivered { part, lock, .. } = delivered;
        let Some(position) = self.under_its_lock(delivered) else {
            let of = |lock: Lock| self.holders.iter().any(|one| one.instance == lock.instance);
            let in_session = self.sessionful && part == Part::Main;
            return Err(match in_session && !lock.is_some_and(of) {
                true => Refusal::SessionLockLost,
                false => Refusal::MessageLockLost,
            });
        };
        if part != Part::Main && how == How::DeadLetter {
            return Err(Refusal::DeadLetteredAlready);
        }
        match how {
            How::Complete => _ = self.part_mut(part).remove(position),
            How::Abandon => self.fail(part, position),
            How::Release => self.part_mut(part)[position].lock = None,
            How::Defer => {
                let message = &mut self.part_mut(part)[position];
                (message.lock, message.state) = (None, State::Deferred);
                message.count += u32::from(part == Part::Main);
            }
            How::DeadLetter => {
                let message = self.part_mut(part).remove(position);
                self.dead_letter(message);
            }
        }
        Ok(())
    }

    pub fn renew_session(&mut self, receiver: u64) -> Result<WallTime, Refusal> {
        self.end_locks();
        let until = self.now + LOCK;
        let holder = self.holders.iter_mut().find(|holder| holder.receiver == receiver);
        holder.ok_or(Refusal::SessionLockLost)?.until = until;
        Ok(WallTime::from_millis(until))
    }

    /// Renews the lock of a message. The lock of a session is not renewed through one of its
    /// messages.
    pub fn renew_message(&mut self, delivered: Delivered) -> Result<WallTime, Refusal> {
        self.end_locks();
        let is_its_own = delivered.lock.is_some_and(|lock| lock.until.is_some());
        let position = self.under_its_lock(delivered).filter(|_| is_its_own);
        let until = self.now + LOCK;
        let message =
            &mut self.part_mut(delivered.part)[position.ok_or(Refusal::MessageLockLost)?];
        message.lock.as_mut().unwrap().until = Some(until);
        Ok(WallTime::from_millis(until))
    }

    pub fn close(&mut self, receiver: u64) {
        self.end_locks();
        self.plain.remove(&receiver);
        self.waiting.retain(|waiter| waiter.receiver != receiver);
        if self.holder(receiver).is_some() {
            self.free(receiver, false);
            self.grant();
        }
    }

    pub fn set_state(&mut self, receiver: u64, len: Option<u8>) -> Result<(), Refusal> {
        self.end_locks();
        let session = self.holder(receiver).ok_or(Refusal::SessionLockLost)?.session;
        match len.filter(|len| *len > 0) {
            Some(len) => _ = self.kept.states.insert(session, (len, self.now)),
            None => _ = self.kept.states.remove(&session),
        }
        Ok(())
    }

    pub fn cancel(&mut self, uids: &[u64]) -> Result<(), Refusal> {
        let is_scheduled = |uid: &u64| {
            self.part(Part::Main).iter().any(|one| one.uid == *uid && one.is_scheduled())
        };
        if !uids.iter().all(is_scheduled) {
            return Err(Refusal::MessageNotFound);
        }
        self.main().retain(|message| !uids.contains(&message.uid));
        Ok(())
    }

    pub fn resubmit(&mut self, part: Part, uid: u64) -> Result<(), Refusal> {
        self.end_locks();
        let mut messages = self.part(part).iter();
        let position = messages.position(|one| one.uid == uid && one.lock.is_none());
        let message = self.part_mut(part).remove(position.ok_or(Refusal::MessageNotFound)?);
        let (enqueued_at, count, state) = (self.now, 0, State::Active);
        let life = |until: u64| until.saturating_sub(message.enqueued_at);
        let expires_at = message.expires_at.map(|until| enqueued_at + life(until));
        let resubmitted = message.resubmitted + 1;
        let message = Message { enqueued_at, count, state, expires_at, resubmitted, ..message };
        self.main().push(message);
        self.grant();
        Ok(())
    }

    /// Returns how many messages there were.
    pub fn purge(&mut self, part: Part) -> usize {
        std::mem::take(self.part_mut(part)).len()
    }

    pub fn on_time(&mut self) {
        self.end_locks();
        let enqueue_at = |message: &Message| match message.state {
            State::Scheduled { at } => Some(at.as_millis()),
            _ => None,
        };
        for uid in self.due(Part::Main, enqueue_at) {
            let position = self.position(Part::Main, uid);
            let message = self.main().remove(position);
            let (state, enqueued_at) = (State::Active, self.now);
            self.main().push(Message { state, enqueued_at, ..message });
        }
        self.grant();
        self.time_out();
        if !self.sessionful {
            for uid in self.due(Part::Main, |one| one.expires_at.filter(|_| one.waits())) {
                let position = self.position(Part::Main, uid);
                self.expire(position);
            }
        }
        let now = self.now;
        self.kept.seen.retain(|_, until| *until > now);
    }

    pub fn forget_locks(&mut self) {
        for message in self.kept.parts.iter_mut().flatten() {
            message.lock = None;
            message.in_memory = false;
        }
        self.holders.clear();
        self.waiting.clear();
        self.plain.clear();
    }
}
