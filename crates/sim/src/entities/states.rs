//! The states of sessions, as their holders must find them.

use std::collections::BTreeMap;

use crate::packets::entities::{EntityId, Handle, Note, SessionId};

/// The possible states of each session. A session has one holder at a time, so the requests to set its state
/// happen in the order in which they were made, or not at all.
#[derive(Default)]
pub struct States {
    sessions: BTreeMap<(EntityId, SessionId), Vec<Candidate>>,
    asked: u32,
    /// The requests that receivers wait for: to read a state, or to set one.
    reads: BTreeMap<Handle, Asked>,
    sets: BTreeMap<Handle, Asked>,
}

/// A request: the session, and the number of the request.
type Asked = (EntityId, SessionId, u32);

/// A value that a state may have.
#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    /// Number of the request that set it.
    asked: u32,
    note: Option<Note>,
}

impl States {
    /// Records that a receiver asks for the state of a session, or sets it.
    pub fn ask(&mut self, handle: Handle, of: (EntityId, SessionId), set: Option<Option<Note>>) {
        self.asked += 1;
        let asked = self.asked;
        let pending = if set.is_some() { &mut self.sets } else { &mut self.reads };
        pending.insert(handle, (of.0, of.1, asked));
        if let Some(note) = set {
            self.of(of).push(Candidate { asked, note });
        }
    }

    /// Records that a receiver is told that the state is set, or that it is not.
    pub fn set(&mut self, handle: Handle, done: bool) {
        let Some((entity, session, asked)) = self.sets.remove(&handle) else { return };
        let candidates = self.of((entity, session));
        if done {
            // Earlier requests cannot happen after this one.
            candidates.retain(|candidate| candidate.asked >= asked);
        } else {
            candidates.retain(|candidate| candidate.asked != asked);
        }
    }

    /// Records that a receiver is told the state.
    pub fn told(&mut self, handle: Handle, note: Option<Note>) -> Result<(), String> {
        let Some((entity, session, asked)) = self.reads.remove(&handle) else { return Ok(()) };
        let candidates = self.of((entity, session));
        if !candidates.iter().any(|candidate| candidate.note == note) {
            let known: Vec<_> = candidates.iter().map(|candidate| candidate.note).collect();
            return Err(format!("r{handle} is told the state {note:?}, and not one of {known:?}"));
        }
        candidates.retain(|candidate| candidate.note == note || candidate.asked > asked);
        Ok(())
    }

    /// Forgets the requests of a receiver that waits no more.
    pub fn forget(&mut self, handle: Handle) {
        self.reads.remove(&handle);
        self.sets.remove(&handle);
    }

    fn of(&mut self, of: (EntityId, SessionId)) -> &mut Vec<Candidate> {
        let none = || vec![Candidate { asked: 0, note: None }];
        self.sessions.entry(of).or_insert_with(none)
    }
}
