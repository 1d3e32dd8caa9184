//! Resubmitting: a dead letter waits for receivers again.

use std::sync::Arc;

use super::entity::unexplain;
use super::footprint;
use super::{Effects, Entity, Entry, Part, Refusal, SequenceNumber, State};
use crate::time::WallTime;

impl Entity {
    /// Moves a dead letter out of its part, to the end of the main part. There it has a new number, a delivery count of
    /// 0, the time to live that it had at first, and no properties that say why it was a dead letter. Duplicate detection
    /// does not apply to it, and it needs no room: it counted before.
    ///
    /// # Errors
    /// [`Refusal::MessageNotFound`] if there is no message with this number, or if it is locked;
    /// [`Refusal::SessionIdMissing`]; [`Refusal::QuotaExceeded`] if its session would exceed a limit.
    pub fn resubmit(
        &mut self,
        part: Part,
        number: SequenceNumber,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<SequenceNumber, Refusal> {
        debug_assert!(part != Part::Main);
        self.end_locks(now, fx);
        let entry = self.messages(part).get(number);
        let entry = entry.filter(|_| !self.plain(part).is_locked(number));
        self.check_session_of(entry.ok_or(Refusal::MessageNotFound)?)?;
        let mut entry = self.leave(part, number, fx);
        if entry.state == State::Active {
            let (plain, messages) = self.plain_with_messages(part);
            plain.forget(|number| messages.get(number).is_some());
        }
        unexplain(&mut entry);
        let life = |until: WallTime| until.since(entry.enqueued_at);
        entry.expires_at = entry.expires_at.map(|until| now.after(life(until)));
        if let (Some(id), Some(sessions)) = (&entry.session, &self.sessions) {
            entry.session = Some(sessions.shared_id(id));
        }
        let number = self.messages_mut(Part::Main).new_number(fx);
        (entry.number, entry.enqueued_number, entry.enqueued_at) = (number, number, now);
        (entry.state, entry.delivery_count) = (State::Active, 0);
        self.messages_mut(Part::Main).put(entry, fx);
        self.make_ready(Part::Main, number, fx);
        self.grant_waiting(now, fx);
        Ok(number)
    }

    /// Checks that the session of a message may exist.
    fn check_session_of(&self, entry: &Entry) -> Result<(), Refusal> {
        let Some(sessions) = &self.sessions else { return Ok(()) };
        let id: &Arc<str> = entry.session.as_ref().ok_or(Refusal::SessionIdMissing)?;
        let has_room = sessions.len() < self.properties.max_sessions
            && footprint::session(id) <= self.room().bytes;
        if has_room || sessions.get(id).is_some() { Ok(()) } else { Err(Refusal::QuotaExceeded) }
    }
}
