//! The state that users set for a session.

use std::sync::Arc;

use super::footprint;
use super::message_session::SessionState;
use super::{Effects, Entity, ReceiverId, Refusal};
use crate::time::WallTime;

impl Entity {
    /// The state of a session. The caller decides who may read it.
    pub fn state(&self, session: &str) -> Option<Arc<[u8]>> {
        Some(Arc::clone(&self.session(session)?.state.as_ref()?.bytes))
    }

    /// Sets or clears the state of the session that a receiver holds; an empty state clears it,
    /// too.
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`], [`Refusal::MessageTooLarge`], [`Refusal::QuotaExceeded`].
    pub fn set_state(
        &mut self,
        receiver: ReceiverId,
        state: Option<Arc<[u8]>>,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<(), Refusal> {
        let session = self.held(receiver, now, fx)?;
        let state = state.filter(|bytes| !bytes.is_empty());
        let before = self.session(&session).and_then(|session| session.state.as_ref());
        let counted = before.map_or(0, |state| footprint::state(&state.bytes));
        let will_count = state.as_ref().map_or(0, |bytes| footprint::state(bytes));
        let before = before.map_or(0, |state| state.bytes.len());
        let after = state.as_ref().map_or(0, |bytes| bytes.len());
        if after > self.properties.max_message_size {
            return Err(Refusal::MessageTooLarge);
        }
        let total = self.footprint() - counted + will_count;
        if will_count > counted && total > self.properties.max_bytes {
            return Err(Refusal::QuotaExceeded);
        }
        let state = state.map(|bytes| SessionState { bytes, updated_at: now });
        match &state {
            Some(state) => fx.put_state(&session, &state.bytes, now),
            None => fx.remove_state(&session),
        }
        fx.memory(before, after);
        self.sessions_mut().set_state(&session, state);
        Ok(())
    }
}
