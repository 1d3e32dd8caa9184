//! Sending of messages.

use std::sync::Arc;

use hashbrown::HashSet;

use super::entity::explain;
use super::footprint;
use super::{
    Body, Effects, Entity, Entry, ID_LEN_MAX, Incoming, Part, Refusal, Sent, SequenceNumber, State,
};
use crate::queue::Room;
use crate::time::WallTime;

impl Entity {
    /// Checks whether all of these messages may be sent, one after the other. Refuses what
    /// [`Entity::send`] would refuse, so that many messages can be sent to this and other entities
    /// all or none.
    pub fn check<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Incoming>,
    ) -> Result<(), Refusal> {
        let mut room = self.room();
        let mut new_sessions = HashSet::new();
        for message in messages {
            self.check_one(message, &mut room)?;
            if let (Some(id), Some(sessions)) = (&message.session, &self.sessions)
                && sessions.get(id).is_none()
                && new_sessions.insert(id)
            {
                let is_one_too_many =
                    sessions.len() + new_sessions.len() > self.properties.max_sessions;
                let size = footprint::session(id);
                if is_one_too_many || size > room.bytes {
                    return Err(Refusal::QuotaExceeded);
                }
                room.bytes -= size;
            }
        }
        Ok(())
    }

    /// Accepts a message, to deliver it now or at its scheduled time.
    ///
    /// # Errors
    /// [`Refusal::SessionIdMissing`], [`Refusal::IdTooLong`], [`Refusal::MessageTooLarge`],
    /// [`Refusal::QuotaExceeded`].
    pub fn send(
        &mut self,
        message: Incoming,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<Sent, Refusal> {
        self.check([&message])?;
        if let (Some(window), Some(id)) =
            (self.properties.duplicate_detection, message.message_id.as_ref())
        {
            if self.seen.knows(id, now) {
                return Ok(Sent::Duplicate);
            }
            self.seen.note(id, now.after(window), fx);
        }
        let scheduled_at = message.scheduled_at.filter(|at| *at > now);
        let mut entry = self.take_in(message, now, fx);
        let number = entry.number;
        let Some(at) = scheduled_at else {
            self.messages_mut(Part::Main).put(entry, fx);
            self.make_ready(Part::Main, number, fx);
            self.grant_waiting(now, fx);
            return Ok(Sent::Enqueued(number));
        };
        entry.state = State::Scheduled { at };
        let session = entry.session.clone();
        self.messages_mut(Part::Main).put(entry, fx);
        self.change_session(Part::Main, session.as_ref(), |session| session.set_aside(number));
        self.schedule.insert(at, number);
        Ok(Sent::Scheduled(number))
    }

    /// Accepts a message as a dead letter, into one of the two parts for those.
    ///
    /// # Errors
    /// [`Refusal::IdTooLong`], [`Refusal::MessageTooLarge`], [`Refusal::QuotaExceeded`].
    pub fn dead_letter_incoming(
        &mut self,
        part: Part,
        message: Incoming,
        reason: &str,
        description: &str,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<(), Refusal> {
        self.check_size(&message, &mut self.room())?;
        let mut entry = self.take_in(message, now, fx);
        if part == Part::TransferDeadLetter {
            explain(&mut entry, Some(reason), Some(description));
            self.bury(part, entry, fx);
        } else {
            self.dead_letter(entry, Some(reason), Some(description), fx);
        }
        Ok(())
    }

    /// Cancels scheduled messages before their time.
    ///
    /// # Errors
    /// [`Refusal::MessageNotFound`] if one of the numbers is not that of a scheduled message; then
    /// none is cancelled.
    pub fn cancel_scheduled(
        &mut self,
        numbers: &[SequenceNumber],
        fx: &mut dyn Effects,
    ) -> Result<(), Refusal> {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let scheduled = numbers.iter().map(|number| {
            match self.messages(Part::Main).get(*number).map(|entry| entry.state) {
                Some(State::Scheduled { at }) => Ok((at, *number)),
                _ => Err(Refusal::MessageNotFound),
            }
        });
        let scheduled: Vec<_> = scheduled.collect::<Result<_, _>>()?;
        for (at, number) in scheduled {
            self.schedule.remove(at, number);
            self.remove(Part::Main, number, fx);
        }
        Ok(())
    }

    pub(super) fn room(&self) -> Room {
        Room {
            messages: self.properties.max_messages.saturating_sub(self.len()),
            bytes: self.properties.max_bytes.saturating_sub(self.footprint()),
        }
    }

    fn check_one(&self, message: &Incoming, room: &mut Room) -> Result<(), Refusal> {
        if self.sessions.is_some() && message.session.is_none() {
            return Err(Refusal::SessionIdMissing);
        }
        self.check_size(message, room)
    }

    fn check_size(&self, message: &Incoming, room: &mut Room) -> Result<(), Refusal> {
        let mut ids = message.session.iter().chain(&message.message_id);
        if ids.any(|id| id.len() > ID_LEN_MAX) {
            return Err(Refusal::IdTooLong);
        }
        let size = message.bytes.len();
        if size > self.properties.max_message_size || u32::try_from(size).is_err() {
            return Err(Refusal::MessageTooLarge);
        }
        if !room.take(message.footprint()) {
            return Err(Refusal::QuotaExceeded);
        }
        Ok(())
    }

    /// Assigns a number to a message and stores its bytes.
    fn take_in(&mut self, message: Incoming, now: WallTime, fx: &mut dyn Effects) -> Entry {
        let number = self.messages_mut(Part::Main).new_number(fx);
        fx.put_body(number, &message.bytes);
        let size = message.bytes.len();
        let bytes = fx.keeps_in_memory().then_some(message.bytes);
        if bytes.is_some() {
            fx.memory(0, size);
        }
        let default = self.properties.default_time_to_live;
        let time_to_live = match (message.time_to_live, default) {
            (Some(own), Some(default)) => Some(own.min(default)),
            (own, default) => own.or(default),
        };
        let lives_from = message.scheduled_at.filter(|at| *at > now).unwrap_or(now);
        let session = message.session.map(|id| match &self.sessions {
            Some(sessions) => sessions.shared_id(&id),
            None => id,
        });
        Entry {
            number,
            session,
            message_id: message.message_id,
            enqueued_number: number,
            enqueued_at: now,
            expires_at: time_to_live.map(|time_to_live| lives_from.after(time_to_live)),
            delivery_count: 0,
            state: State::Active,
            body: Body { id: number, size: u32::try_from(size).expect("it was checked"), bytes },
            overlay: message.overlay.filter(|overlay| !overlay.is_empty()),
        }
    }
}

impl Body {
    /// Number of bytes of the body that are in memory.
    pub fn in_memory(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes: &Arc<[u8]>| bytes.len())
    }
}
