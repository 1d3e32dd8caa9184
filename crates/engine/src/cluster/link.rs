//! Messages of one thread to one other broker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use barid_core::ids::ShardIndex;
use barid_peers::{Destination, Outgoing, Run, Told, ToldKind};

use super::MemberRef;
use crate::durable::Commits;
use crate::ids::ConnectionId;
use crate::owner::Owner;
use crate::progress::{Gate, Polled, Progress, Sources, Waiter};
use crate::sync::Mutex;

/// Number of waiting bytes above which publishers that wait for acknowledgements are not read from.
const CONGESTED: usize = 8 * 1024 * 1024;

/// The way from a thread to another broker. It exists whether or not there is a connection.
pub struct Link {
    me: Weak<Self>,
    member: MemberRef,
    state: Mutex<State>,
    /// The runs that have been acknowledged.
    progress: Arc<Progress>,
    /// The last run of those.
    advanced: Mutex<u64>,
    /// The number of `progress` among all sources.
    source: ShardIndex,
    /// Whether the owner has been woken and has not written since.
    is_woken: AtomicBool,
}

#[derive(Default)]
struct State {
    outgoing: Outgoing,
    /// Runs that must not leave before what they reveal is durable.
    held: Gate<HeldRun>,
    /// Bytes of these.
    held_bytes: usize,
    /// The last run that was held and has been added.
    last_released: u64,
    counts: LinkCounts,
    /// The connection, with the thread that owns it.
    connection: Option<(Arc<dyn Owner>, ConnectionId)>,
    /// Whether the other broker is out of the cluster, so that nothing is to wait for it.
    is_closed: bool,
}

/// A run that must not leave at once.
#[derive(Debug)]
pub(super) struct HeldRun {
    pub tenant: Arc<str>,
    pub publisher: Box<str>,
    pub to: HeldFor,
    pub is_v5: bool,
    pub packets: Box<[u8]>,
}

/// Whom such a run is for.
#[derive(Debug)]
pub(super) enum HeldFor {
    /// A client that has asked the state store.
    Inquirer(Told),
    /// All sessions with a subscription.
    Sessions,
    /// A member of a shared subscription, `$share/…`.
    Shared(Box<str>),
}

/// Counts of a link since the start of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages that were added.
    pub messages: u64,
    /// Messages of QoS 0 for which there was no room.
    pub lost: u64,
    /// Bytes that wait to be sent or acknowledged.
    pub waiting: u64,
}

impl Link {
    pub(super) fn new(member: MemberRef, source: ShardIndex) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            member,
            state: Mutex::default(),
            progress: Arc::default(),
            advanced: Mutex::default(),
            source,
            is_woken: AtomicBool::new(false),
        })
    }

    pub(super) fn member(&self) -> MemberRef {
        self.member
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(super) fn source(&self) -> ShardIndex {
        self.source
    }

    /// Whether there is room for messages that must not be lost.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.outgoing.has_room(false) && state.held_bytes <= CONGESTED
    }

    /// The last run that was added.
    pub(super) fn last(&self) -> u64 {
        self.state.lock().outgoing.last()
    }

    /// Whether everything up to this run has been acknowledged, and everything that was held.
    pub(super) fn is_drained(&self, last: u64) -> bool {
        let state = self.state.lock();
        state.held.is_empty() && self.progress.is_done(last.max(state.last_released))
    }

    /// Adds a run of `count` messages, and wakes the owner of the connection. Returns the sequence number, or `None` if
    /// the messages may be lost and there is no room. Others are added in any case: whoever adds them has asked whether
    /// there [is room](Self::has_room).
    ///
    /// If the other broker is out of the cluster by now, the run is not added, and the number is 0; unless `is_awaited` says
    /// that the broker is about to be in the cluster again.
    pub(super) fn add(
        &self,
        run: Run<'_>,
        count: usize,
        may_be_lost: bool,
        is_awaited: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_closed && !is_awaited() {
            return Some(0);
        }
        if may_be_lost && !state.outgoing.has_room(true) {
            state.counts.lost += count as u64;
            return None;
        }
        state.counts.messages += count as u64;
        let sequence = state.outgoing.add(run);
        self.progress.set_congested(state.outgoing.len() > CONGESTED);
        self.wake_owner(&state);
        Some(sequence)
    }

    fn wake_owner(&self, state: &State) {
        if let Some((owner, connection)) = &state.connection
            && !self.is_woken.swap(true, Ordering::AcqRel)
        {
            owner.drain(*connection);
        }
    }

    /// Adds a run that leaves when `after` is durable, and behind all runs that were added in this way before. Returns false if
    /// the other broker is out of the cluster by now, and not [awaited](Self::add).
    pub(super) fn add_after(
        &self,
        sources: &Sources,
        after: Commits,
        run: HeldRun,
        is_awaited: impl FnOnce() -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        if state.is_closed && !is_awaited() {
            return false;
        }
        state.held_bytes += run.packets.len();
        state.held.push(after, run);
        self.release(sources, &mut state);
        self.wake_owner(&state);
        true
    }

    /// Lets the held runs leave that may.
    fn release(&self, sources: &Sources, state: &mut State) {
        loop {
            let (held, has_failed) = match state.held.poll(sources, &self.me, |_| true) {
                Polled::Ready(held) => (Some(held), false),
                Polled::Failed => (state.held.pop_front(), true),
                Polled::Pending | Polled::Empty => (None, false),
            };
            let Some(HeldRun { tenant, publisher, mut to, is_v5, mut packets }) = held else {
                return;
            };
            state.held_bytes -= packets.len();
            if has_failed {
                // What it reveals has not happened, and may happen later. So the client has to ask again.
                let HeldFor::Inquirer(told) = &mut to else { continue };
                (told.kind, packets) = (ToldKind::Busy, Box::default());
            }
            let to = match &to {
                HeldFor::Inquirer(told) => Destination::Inquirer(*told),
                HeldFor::Sessions => Destination::Sessions,
                HeldFor::Shared(group) => Destination::Shared(group),
            };
            let run = Run::unnumbered(&tenant, &publisher, to, is_v5, &packets);
            state.last_released = state.outgoing.add(run);
        }
    }

    /// A connection begins. Everything that was not acknowledged is sent over it.
    pub fn attach(&self, owner: &Arc<dyn Owner>, connection: ConnectionId) {
        let mut state = self.state.lock();
        state.outgoing.restart();
        state.connection = Some((Arc::clone(owner), connection));
        self.is_woken.store(true, Ordering::Release);
        owner.drain(connection);
    }

    /// The connection has ended.
    pub fn detach(&self, connection: ConnectionId) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|(_, present)| *present == connection) {
            state.connection = None;
        }
    }

    /// Whether this is the present connection.
    pub fn is_attached(&self, connection: ConnectionId) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().is_some_and(|(_, present)| *present == connection)
    }

    /// Writes to the present connection: calls `write` with bytes until it takes fewer than it got, or until nothing is
    /// left. `write` must return at once.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write<E>(
        &self,
        sources: &Sources,
        mut write: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.is_woken.store(false, Ordering::Release);
        let mut state = self.state.lock();
        self.release(sources, &mut state);
        loop {
            let unsent = state.outgoing.unsent();
            if unsent.is_empty() {
                return Ok(());
            }
            let (wanted, taken) = (unsent.len(), write(unsent)?);
            state.outgoing.note_sent(taken);
            if taken < wanted {
                return Ok(());
            }
        }
    }

    /// The other broker has acknowledged all runs up to this one. Returns false if there is no such run.
    #[must_use]
    pub fn acknowledge(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        let is_possible = state.outgoing.acknowledge(sequence);
        self.progress.set_congested(state.outgoing.len() > CONGESTED);
        drop(state);
        if is_possible {
            self.advance(sequence);
        }
        is_possible
    }

    /// Gives up everything that waits: the other broker is down. Calls `given_up` with each run that might have left. Returns their
    /// number.
    pub(super) fn give_up(&self, given_up: impl FnMut(Run<'_>)) -> usize {
        let mut state = self.state.lock();
        (state.held, state.held_bytes) = (Gate::default(), 0);
        let (last, count) = state.outgoing.clear(given_up);
        state.is_closed = true;
        if let Some((owner, connection)) = state.connection.take() {
            owner.drain(connection);
        }
        self.progress.set_congested(false);
        drop(state);
        self.advance(last);
        count
    }

    /// The other broker is in the cluster again.
    pub(super) fn reopen(&self) {
        self.state.lock().is_closed = false;
    }

    fn advance(&self, sequence: u64) {
        // An acknowledgement may come while everything is given up, on another thread: progress must not go back.
        let mut advanced = self.advanced.lock();
        if sequence > *advanced {
            *advanced = sequence;
            self.progress.advance(sequence);
        }
    }

    /// The counts.
    pub fn counts(&self) -> LinkCounts {
        let state = self.state.lock();
        LinkCounts { waiting: state.outgoing.len() as u64, ..state.counts }
    }
}

impl Waiter for Link {
    fn wake(&self) {
        self.wake_owner(&self.state.lock());
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("member", &self.member).finish_non_exhaustive()
    }
}
