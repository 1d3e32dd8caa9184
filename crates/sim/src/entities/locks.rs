//! Locks on sessions and messages, as clients know them.

use std::collections::BTreeMap;

use crate::packets::entities::{EntityId, Handle, MessageNumber, SessionId, Token};

/// The locks, as their holders know them. No two holders may have the same lock at the same time.
#[derive(Default)]
pub struct Locks {
    sessions: BTreeMap<(EntityId, SessionId), (Handle, u64)>,
    /// Locks on messages that are received without a session: dead letters, and messages of an entity without
    /// sessions.
    messages: BTreeMap<MessageNumber, (Token, u64)>,
}

impl Locks {
    /// Records that a receiver is told that it holds a session until then.
    pub fn granted(
        &mut self,
        entity: EntityId,
        session: SessionId,
        (handle, until): (Handle, u64),
        now: u64,
    ) -> Result<(), String> {
        if until <= now {
            // The lock had expired before the receiver was told.
            return Ok(());
        }
        let before = self.sessions.insert((entity, session), (handle, until));
        match before.filter(|(_, until)| now < *until) {
            Some((other, _)) => Err(format!("r{other} and r{handle} have the same session")),
            None => Ok(()),
        }
    }

    /// Whether a receiver holds a session.
    pub fn holds(&self, entity: EntityId, session: SessionId, handle: Handle, now: u64) -> bool {
        let held = self.sessions.get(&(entity, session));
        held.is_some_and(|(of, until)| *of == handle && now < *until)
    }

    /// Records that a receiver is told that it holds its session until then. This does not change a lock that
    /// the receiver had to take for lost.
    pub fn renewed(&mut self, handle: Handle, until: u64, now: u64) {
        let held = self.sessions.values_mut().filter(|(of, until)| *of == handle && now < *until);
        held.for_each(|held| held.1 = until);
    }

    /// Records that a receiver detaches, or is told that it holds no session any more.
    pub fn ended(&mut self, handle: Handle) {
        self.sessions.retain(|_, (of, _)| *of != handle);
    }

    /// Records that a message without a session is delivered, locked until then.
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

    /// Records that a message without a session is returned or settled.
    pub fn gave_up(&mut self, message: MessageNumber) {
        self.messages.remove(&message);
    }

    /// Removes all locks, because the process has ended.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
