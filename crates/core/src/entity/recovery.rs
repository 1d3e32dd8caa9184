//! Recovery of an entity from its stored records.

use std::sync::Arc;

use super::message_session::SessionState;
use super::ready::Ready;
use super::{Effects, Entity, Entry, Part, SequenceNumber, State};
use crate::time::WallTime;

impl Entity {
    /// Recovers a stored message. Those of a part come in the order of their numbers.
    pub fn recover_entry(&mut self, part: Part, mut entry: Entry) {
        let (number, ready, state) = (entry.number, Ready::from(&entry), entry.state);
        entry.session = entry.session.map(|id| match self.sessions_of(part) {
            Some(sessions) => sessions.shared_id(&id),
            None => id,
        });
        let session = entry.session.clone();
        let messages = self.messages_mut(part);
        messages.recover_numbers(number + 1);
        messages.restore(entry);
        if let State::Scheduled { at } = state {
            self.schedule.insert(at, number);
        }
        let is_active = state == State::Active;
        let kept = self.change_session(part, session.as_ref(), |session| match is_active {
            true => _ = session.put_back(ready),
            false => session.set_aside(number),
        });
        if kept.is_none() && is_active {
            self.plain_mut(part).put_back(ready, part == Part::Main);
        }
    }

    /// Recovers the stored state of a session.
    pub fn recover_state(&mut self, session: &Arc<str>, bytes: Arc<[u8]>, updated_at: WallTime) {
        if let Some(sessions) = &mut self.sessions {
            let session = sessions.shared_id(session);
            sessions.set_state(&session, Some(SessionState { bytes, updated_at }));
        }
    }

    /// Recovers a message id: messages with this id are dropped until then.
    pub fn recover_seen(&mut self, message_id: &Arc<str>, until: WallTime) {
        self.seen.recover(message_id, until);
    }

    /// Ensures that no number below `reserved` is assigned in the part.
    pub fn recover_numbers(&mut self, part: Part, reserved: SequenceNumber) {
        self.messages_mut(part).recover_numbers(reserved);
    }

    /// Starts the entity when it is new, or when all of it has been recovered. The reservation stored here must be
    /// durable before the first message is delivered: it prevents numbers from being assigned twice.
    pub fn start(&mut self, fx: &mut dyn Effects) {
        Part::ALL.into_iter().for_each(|part| self.messages_mut(part).reserve_numbers(fx));
    }

    /// Gives up the reservations of numbers, when the process ends in an orderly way and no more messages arrive. Then
    /// no numbers are skipped.
    pub fn note_numbers(&mut self, fx: &mut dyn Effects) {
        Part::ALL.into_iter().for_each(|part| self.messages_mut(part).release_numbers(fx));
    }
}
