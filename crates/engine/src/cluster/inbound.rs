//! Messages of one thread of another broker.

use std::sync::{Arc, Weak};

use barid_core::commits::Commits;

use super::MemberRef;
use crate::ids::ConnectionId;
use crate::owner::Owner;
use crate::progress::{Gate, Polled, Sources, Waiter};
use crate::sync::Mutex;

/// The runs from one thread of another broker: which have arrived, and which are done.
pub struct Inbound {
    me: Weak<Self>,
    /// The broker that sends them.
    member: MemberRef,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last run that has arrived.
    arrived: u64,
    /// The last run of those that are done without a gap.
    done: u64,
    /// Runs that wait until what they have changed is durable.
    gate: Gate<u64>,
    /// The connection, with the thread that owns it.
    connection: Option<(Arc<dyn Owner>, ConnectionId)>,
}

impl Inbound {
    pub(super) fn new(member: MemberRef) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), member, state: Mutex::default() })
    }

    /// The broker that sends them.
    pub fn member(&self) -> MemberRef {
        self.member
    }

    /// A connection begins. Returns the one that it replaces, which must not handle any more runs.
    pub fn attach(&self, owner: &Arc<dyn Owner>, connection: ConnectionId) -> Option<ConnectionId> {
        let before = self.state.lock().connection.replace((Arc::clone(owner), connection));
        before.map(|(_, connection)| connection)
    }

    /// Ends the connection: the other broker is down, and nothing of it counts any more.
    pub(super) fn close(&self) {
        if let Some((owner, connection)) = self.state.lock().connection.take() {
            owner.drain(connection);
        }
    }

    /// Whether this is the present connection.
    pub fn is_attached(&self, connection: ConnectionId) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().is_some_and(|(_, present)| *present == connection)
    }

    /// A run arrives. Returns false if it has arrived before.
    pub fn arrives(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        let is_new = sequence > state.arrived;
        state.arrived = state.arrived.max(sequence);
        is_new
    }

    /// A run has been handed on. It is done when this is durable.
    pub fn handed_on(&self, sequence: u64, commits: Commits) {
        self.state.lock().gate.push(commits, sequence);
    }

    /// Returns the last run of those that are done without a gap. The owner of the connection is woken when there are
    /// more.
    pub fn done(&self, sources: &Sources) -> u64 {
        let mut state = self.state.lock();
        // A run whose commit has failed waits until the disk works again.
        while let Polled::Ready(sequence) = state.gate.poll(sources, &self.me, |_| true) {
            state.done = sequence;
        }
        state.done
    }
}

impl Waiter for Inbound {
    fn wake(&self) {
        if let Some((owner, connection)) = &self.state.lock().connection {
            owner.drain(*connection);
        }
    }
}

impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbound").finish_non_exhaustive()
    }
}
