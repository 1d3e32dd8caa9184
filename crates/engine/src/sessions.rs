//! The sessions of one tenant, by client identifier.

use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::random::Random;
use crate::session::SessionRef;
use crate::sync::{Mutex, MutexGuard};

const PARTS: usize = 16;

/// The sessions of one tenant, divided by hash, so that clients that connect at the same time do not wait for
/// each other.
#[derive(Debug)]
pub struct Sessions {
    hasher: SeedableRandomState,
    count: AtomicUsize,
    parts: [Mutex<HashTable<SessionRef>>; PARTS],
}

/// The part to which a client identifier belongs, locked. Only its holder may create, resume or end the
/// session of the identifier.
pub struct Entry<'a> {
    sessions: &'a Sessions,
    hash: u64,
    client_id: &'a str,
    part: MutexGuard<'a, HashTable<SessionRef>>,
}

impl Sessions {
    /// Creates an empty table.
    pub fn new(random: Random) -> Self {
        Self { hasher: random.hasher(), count: AtomicUsize::new(0), parts: Default::default() }
    }

    /// Locks the part to which a client identifier belongs.
    pub fn entry<'a>(&'a self, client_id: &'a str) -> Entry<'a> {
        let hash = self.hasher.hash_one(client_id);
        let part = self.parts[(hash >> 60) as usize % PARTS].lock();
        Entry { sessions: self, hash, client_id, part }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` for every session, with its part locked.
    pub fn for_each(&self, mut look: impl FnMut(&SessionRef)) {
        for part in &self.parts {
            part.lock().iter().for_each(&mut look);
        }
    }
}

impl Entry<'_> {
    /// The session of the client identifier, if there is one.
    pub fn get(&self) -> Option<&SessionRef> {
        self.part.find(self.hash, |session| &*session.client_id == self.client_id)
    }

    /// Makes `session` the session of the client identifier, which must have none.
    pub fn insert(&mut self, session: SessionRef) {
        debug_assert!(self.get().is_none());
        let hasher = &self.sessions.hasher;
        self.sessions.count.fetch_add(1, Ordering::Relaxed);
        self.part.insert_unique(self.hash, session, |session| hasher.hash_one(&*session.client_id));
    }

    /// Removes the session of the client identifier, and returns it if there was one.
    pub fn remove(&mut self) -> Option<SessionRef> {
        let entry = self
            .part
            .find_entry(self.hash, |session| &*session.client_id == self.client_id)
            .ok()?;
        self.sessions.count.fetch_sub(1, Ordering::Relaxed);
        Some(entry.remove().0)
    }
}
