//! Locks on sessions and messages, as clients know them.

use std::collections::BTreeMap;

use crate::packets::entities::{EntityId, Handle, MessageNumber, SessionId, Token};

/// Locks as their holders know them. No two may hold the same at a time.
#[derive(Default)]
pub struct Locks {
    sessions: BTreeMap<(EntityId, SessionId), (Handle, u64)>,
    /// Of dead letters.
    messages: BTreeMap<MessageNumber, (Token, u64)>,
}

impl Locks {
    /// A receiver is told that it has a session until then.
    pub fn granted(
        &mut self,
        entity: EntityId,
        session: SessionId,
        (handle, until): (Handle, u64),
        now: u64,
    ) -> Result<(), String> {
        if until <= now {
            // It was told too late.
            return Ok(());
        }
        let before = self.sessions.insert((entity, session), (handle, until));
        match before.filter(|(_, until)| now < *until) {
            Some((other, _)) => Err(format!("r{other} and r{handle} have the same session")),
            None => Ok(()),
        }
    }

    /// Whether a receiver has a session.
    pub fn holds(&self, entity: EntityId, session: SessionId, handle: Handle, now: u64) -> bool {
        let held = self.sessions.get(&(entity, session));
        held.is_some_and(|(of, until)| *of == handle && now < *until)
    }

    /// A receiver is told that it has its session until then. If it had to take it for lost, it still does.
    pub fn renewed(&mut self, handle: Handle, until: u64, now: u64) {
        let held = self.sessions.values_mut().filter(|(of, until)| *of == handle && now < *until);
        held.for_each(|held| held.1 = until);
    }

    /// A receiver goes, or is told that it has no session any more.
    pub fn ended(&mut self, handle: Handle) {
        self.sessions.retain(|_, (of, _)| *of != handle);
    }

    /// A dead letter comes, locked until then.
    pub fn took(
        &mut self,
        message: MessageNumber,
        (token, until): (Token, u64),
        now: u64,
    ) -> Result<(), String> {
        let before = self.messages.insert(message, (token, until));
        match before.filter(|(_, until)| now < *until) {
            Some(_) => Err(format!("two have m{message} at a time")),
            None => Ok(()),
        }
    }

    /// A dead letter is given back or settled.
    pub fn gave_up(&mut self, message: MessageNumber) {
        self.messages.remove(&message);
    }

    /// The process has ended, and all locks with it.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
