//! Queries that change nothing.

use std::sync::Arc;

use super::{Entity, Entry, Part, SequenceNumber, SessionDetails};
use crate::time::WallTime;

impl Entity {
    /// Shows up to `max` messages of a part, from the sequence number `from` on, in order, until `visit` returns false;
    /// including those that are locked, deferred, scheduled or expired. With a `session`, shows only its messages;
    /// parts other than the main one, and entities without sessions, have none.
    pub fn peek(
        &self,
        part: Part,
        from: SequenceNumber,
        max: usize,
        session: Option<&str>,
        mut visit: impl FnMut(&Entry) -> bool,
    ) {
        let messages = self.messages(part);
        let Some(session) = session else {
            _ = messages.from(from).take(max).all(visit);
            return;
        };
        let Some(session) = self.sessions_of(part).and_then(|sessions| sessions.get(session))
        else {
            return;
        };
        for number in session.starting_at(from, max) {
            if !visit(messages.get(number).expect("what a session has is here")) {
                return;
            }
        }
    }

    /// Lists sessions: those that have active messages or a state, in no particular order; or those whose state was set
    /// after a time, the earliest first. The second costs as much as `skip`.
    pub fn sessions(
        &self,
        updated_after: Option<WallTime>,
        skip: usize,
        top: usize,
    ) -> Vec<Arc<str>> {
        let Some(sessions) = &self.sessions else { return Vec::new() };
        match updated_after {
            None => sessions.listed().iter().skip(skip).take(top).cloned().collect(),
            Some(at) => sessions.updated_after(at).skip(skip).take(top).cloned().collect(),
        }
    }

    /// The ids of all sessions, including those that are merely locked, in no particular order.
    pub fn session_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sessions.iter().flat_map(|sessions| sessions.ids())
    }

    /// Returns the details of a session, if it exists.
    pub fn session_details(&self, session: &str) -> Option<SessionDetails> {
        let (id, session) = self.sessions.as_ref()?.get_with_id(session)?;
        let state = session.state.as_ref();
        Some(SessionDetails {
            id: Arc::clone(id),
            active: session.ready(),
            locked: session.in_flight().count(),
            set_aside: session.aside(),
            locked_until: session.hold.as_ref().map(|hold| hold.until),
            state_size: state.map(|state| state.bytes.len()),
            state_updated_at: state.map(|state| state.updated_at),
        })
    }
}
