//! Removal of many messages at once.

use super::sessions::Sessions;
use super::{Effects, Entity, Part, SequenceNumber};
use crate::time::WallTime;

impl Entity {
    /// Removes all messages of a part, in whatever state, including locked ones. Returns how many. Locks on sessions,
    /// and states, stay.
    pub fn purge(&mut self, part: Part, fx: &mut dyn Effects) -> u64 {
        let numbers: Vec<SequenceNumber> =
            self.messages(part).from(0).map(|entry| entry.number).collect();
        for number in &numbers {
            let session = self.messages(part).get(*number).and_then(|entry| entry.session.clone());
            self.change_session(part, session.as_ref(), |session| session.clear());
            self.remove(part, *number, fx);
        }
        self.messages_mut(part).count_none_locked();
        self.plain_mut(part).clear();
        if part == Part::Main {
            self.schedule.clear();
            self.condemned.clear();
        }
        numbers.len() as u64
    }

    /// Removes the first messages of a part that wait for any receiver and were enqueued before a time, at most `max`.
    /// Returns how many. Removes none if messages belong to sessions.
    pub fn delete_before(
        &mut self,
        part: Part,
        max: usize,
        before: WallTime,
        fx: &mut dyn Effects,
    ) -> usize {
        let mut deleted = 0;
        while deleted < max {
            let (plain, messages) = self.plain_with_messages(part);
            let first = plain.front().and_then(|number| messages.get(number));
            if first.is_none_or(|first| first.enqueued_at >= before) {
                break;
            }
            let first = plain.pop(before, |number| messages.get(number).is_some());
            let (number, _) = first.expect("it was just seen");
            self.remove(part, number, fx);
            deleted += 1;
        }
        deleted
    }

    /// Removes all stored records of the entity, except the reserved numbers of its parts. Called when the entity is
    /// deleted.
    pub fn delete_all(&mut self, fx: &mut dyn Effects) {
        for part in Part::ALL {
            self.purge(part, fx);
        }
        self.seen.clear(fx);
        self.receivers.clear();
        let Some(sessions) = &mut self.sessions else { return };
        let bytes = sessions.state_bytes();
        sessions.all_with_state().for_each(|session| fx.remove_state(session));
        fx.memory(bytes, 0);
        **sessions = Sessions::default();
    }
}
