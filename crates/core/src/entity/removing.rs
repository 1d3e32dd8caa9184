//! Everything goes.

use super::{Effects, Entity, Part, SequenceNumber};

impl Entity {
    /// Removes all messages of a part, whatever they wait for and whoever has them; answers how many.
    /// Locks on sessions, and states, stay.
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
        }
        numbers.len() as u64
    }

    /// The entity goes: removes all that was stored of it but the numbers of its parts.
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
        *sessions = Box::default();
    }
}
