//! Reads back messages of a session that are in the store only, when its client is about to take them.

use std::sync::Arc;

use barid_core::ids::StoredAs;
use barid_core::message::Message;
use barid_store::StoreError;

use super::outlet::Outlet;
use super::{Session, SessionRef};
use crate::durable::{DurableShard, Fetch, SessionJournal};
use crate::worker::Worker;

/// Maximum number of messages that are read back at a time, and their approximate maximum size in bytes.
const FETCHED: usize = 128;
const FETCHED_BYTES: usize = 256 * 1024;

/// A request for the messages that a session has to send next.
struct Wanted {
    session: SessionRef,
    /// The records of the messages, in the order in which the messages will be sent.
    stored: Vec<StoredAs>,
    /// The messages that have been read so far. `None`: the message is lost.
    fetched: Vec<(StoredAs, Option<Arc<Message>>)>,
}

impl Session {
    /// Requests the next messages that are in the store only, unless a request is under way.
    pub(super) fn fetch(&self, outlet: &mut Outlet) {
        let (Some(durable), Some(session)) = (self.durable(), SessionRef::upgrade(&self.me)) else {
            return;
        };
        if !std::mem::replace(&mut outlet.fetching, true) {
            let stored = outlet.outbound.missing(FETCHED, FETCHED_BYTES);
            durable.shard.fetch(Box::new(Wanted { session, stored, fetched: Vec::new() }));
        }
    }

    /// Supplies the outlet with messages that were read back.
    fn supply(&self, worker: &Worker, fetched: &[(StoredAs, Option<Arc<Message>>)]) {
        self.with(|outlet| {
            outlet.fetching = false;
            let mut journal = SessionJournal::new(self.durable());
            outlet.outbound.supply(fetched, &mut journal, |reason, lost| {
                self.dropped(worker, reason, lost.topic());
            });
            drop(journal);
            outlet.wake_owner();
        });
    }
}

impl Fetch for Wanted {
    fn fetch(&mut self, shard: &DurableShard, worker: &Worker) -> Result<(), StoreError> {
        let Some(durable) = self.session.durable() else { return Ok(()) };
        for stored in &self.stored[self.fetched.len()..] {
            let tenant = &self.session.account.name;
            let message = shard.message(durable.tenant, tenant, stored.message)?;
            self.fetched.push((*stored, message));
        }
        self.session.supply(worker, &self.fetched);
        Ok(())
    }
}
