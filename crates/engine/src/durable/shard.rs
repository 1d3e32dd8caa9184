//! One shard: its write set, and its batches on their way to the log.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::LOST;
use barid_core::durable::{ReceivedIn, Shard, TenantNames, WriteSet};
use barid_core::ids::{PacketId, SessionNumber, ShardIndex, TenantNumber};
use barid_store::changelog::{Changelog, Outcome, Sink};
use barid_store::{Store, StoreError};
use tracing::{error, info};

use super::committing::Committer;
use super::fetching::Fetching;
use crate::progress::Progress;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

thread_local! {
    static COMMITS_BY_ROUNDS: Cell<bool> = const { Cell::new(false) };
}

/// Lets the changes of this thread be committed from the end of its round on ([`DurableShard::end_round`]), and
/// not at once: one sync then serves the whole round.
pub fn commit_by_rounds() {
    COMMITS_BY_ROUNDS.set(true);
}

/// State that all shards of the process share.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Number of shards that take nothing new.
    refusing: AtomicUsize,
    /// A thread that commits by rounds has changed one of the shards.
    changed_in_round: AtomicBool,
}

impl Common {
    pub(super) fn any_refuses(&self) -> bool {
        self.refusing.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread that commits by rounds has changed a shard since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.changed_in_round.load(Ordering::Relaxed)
            && self.changed_in_round.swap(false, Ordering::AcqRel)
    }
}

/// Reason to refuse, as a bit: the disk is full or broken.
const FAILING: u32 = 1;

/// Reason to refuse, as a bit: the shard is not open. It is closed, or is being opened or closed.
const NOT_OPEN: u32 = 2;

/// A shard with its log and its store, for one tenure: from when it is opened until it is closed. Code that keeps
/// it for longer cannot change anything any more: what is noted in a closed shard is [`LOST`].
pub struct DurableShard {
    index: u16,
    pub(super) log: Box<dyn Changelog>,
    /// Contains everything that is durable in `log`.
    pub(super) store: Arc<dyn Store>,
    pub(super) pending: Mutex<Pending>,
    changed: Condvar,
    /// Which batches are durable, and which have failed so that nobody should wait for them. The next tenure
    /// continues with it.
    progress: Arc<Progress>,
    common: Arc<Common>,
    /// A thread that commits by rounds has changed this shard.
    changed_in_round: AtomicBool,
    /// The committer, until it is taken.
    pub(super) committer: Mutex<Option<Committer>>,
    /// Requests to read back from the store.
    pub(super) fetching: Fetching,
    /// The reasons for which nothing new is taken, as bits; 0: there are none.
    refuses: AtomicU32,
    /// Number of batches that were committed, except for empty ones.
    pub(super) commits: AtomicU64,
}

/// What the lock of the write set protects.
pub(super) struct Pending {
    pub shard: Shard,
    /// Batches in flight, in order: taken from the write set, and not known to be durable. Readers look here as
    /// well, because the store may not have them yet.
    pub in_flight: VecDeque<(u64, Arc<WriteSet>)>,
    /// Whether the batches in flight are durable is unknown. They are appended again when `unanswered` is 0.
    in_doubt: bool,
    /// Number of appended batches whose outcome the log has not reported.
    unanswered: usize,
    /// The log has a new holder: no batch of this one becomes durable any more.
    is_fenced: bool,
    /// Something was noted since the last batch was taken.
    touched: bool,
    /// The accumulating batch is to be committed now.
    ripe: bool,
    /// The shard is closing: the next batch is the last.
    closing: bool,
    /// The last batch was taken: what is noted now is lost.
    is_cut: bool,
    /// A batch that cannot be committed is not tried again.
    gives_up: bool,
}

/// The next step of a committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToDo {
    /// Seal the batch that has accumulated.
    Seal,
    /// Append the sealed batch, or else the one that has accumulated.
    Commit,
    /// Append all batches in flight again: whether they are durable is unknown.
    AppendAgain,
    /// Ask the log whether there is room.
    Look,
}

/// The locked write set of a shard. Dropping it lets the committer take what was noted.
pub struct ChangeGuard<'a> {
    owner: &'a DurableShard,
    pending: MutexGuard<'a, Pending>,
}

impl DurableShard {
    /// Creates a shard whose store has not been read yet. A batch that `log` reports as done must be in `store`.
    pub fn new(index: ShardIndex, log: Box<dyn Changelog>, store: Arc<dyn Store>) -> Self {
        Self::begin(Shard::new(index), (log, store), Arc::default(), Arc::default(), 0)
    }

    /// Creates one of several shards, which share `common`.
    pub(super) fn among(
        index: ShardIndex,
        storage: (Box<dyn Changelog>, Arc<dyn Store>),
        common: &Arc<Common>,
    ) -> Self {
        Self::begin(Shard::new(index), storage, Arc::default(), Arc::clone(common), 0)
    }

    /// Creates the next tenure of a closed shard, over `log`. It is not open yet.
    pub(super) fn successor(&self, log: Box<dyn Changelog>) -> Self {
        let mut shard = Shard::new(self.index);
        shard.continue_with(self.pending.lock().shard.batch());
        let (progress, common) = (Arc::clone(&self.progress), Arc::clone(&self.common));
        // It takes the place of the closed tenure in the number of shards that take nothing new.
        Self::begin(shard, (log, Arc::clone(&self.store)), progress, common, NOT_OPEN)
    }

    fn begin(
        shard: Shard,
        (log, store): (Box<dyn Changelog>, Arc<dyn Store>),
        progress: Arc<Progress>,
        common: Arc<Common>,
        refuses: u32,
    ) -> Self {
        Self {
            index: shard.index(),
            log,
            store,
            pending: Mutex::new(Pending {
                shard,
                in_flight: VecDeque::new(),
                in_doubt: false,
                unanswered: 0,
                is_fenced: false,
                touched: false,
                ripe: false,
                closing: false,
                is_cut: false,
                gives_up: false,
            }),
            changed: Condvar::new(),
            progress,
            common,
            changed_in_round: AtomicBool::new(false),
            committer: Mutex::new(Some(Committer::default())),
            fetching: Fetching::default(),
            refuses: AtomicU32::new(refuses),
            commits: AtomicU64::new(0),
        }
    }

    /// Installs the state that was read from the store.
    pub fn install(&self, mut shard: Shard) {
        let mut pending = self.pending.lock();
        shard.continue_with(pending.shard.batch());
        pending.touched = !shard.pending().is_empty();
        pending.ripe = pending.touched;
        pending.shard = shard;
    }

    /// The index of the shard.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The store of the shard.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Locks the write set. The lock is a leaf: its holder takes no other lock.
    pub fn change(&self) -> ChangeGuard<'_> {
        let mut pending = self.pending.lock();
        pending.touched = !pending.is_cut;
        ChangeGuard { owner: self, pending }
    }

    /// Commits the changes of a thread that [commits by rounds](commit_by_rounds) and has ended a round.
    pub fn end_round(&self) {
        if self.changed_in_round.swap(false, Ordering::AcqRel) {
            let mut pending = self.pending.lock();
            // The changes may have been committed meanwhile, for another thread.
            pending.ripe = pending.touched;
            self.changed.notify_one();
        }
    }

    /// Tells the shard the name of a tenant. Must be called before anything of the tenant is noted.
    pub fn name_tenant(&self, number: TenantNumber, name: &str) {
        self.pending.lock().shard.name_tenant(number, name);
    }

    /// Whether it is noted in this shard that a QoS 2 message was received.
    pub fn has_received(&self, session: SessionNumber, packet_id: PacketId) -> bool {
        self.pending.lock().shard.received(session, packet_id).is_some()
    }

    /// Returns the QoS 2 messages noted in this shard whose clients have their sessions in the shard `home`.
    pub fn received_of(&self, home: ShardIndex) -> Vec<ReceivedIn> {
        self.pending.lock().shard.received_of(home)
    }

    /// The number of the batch with the last noted change. All earlier changes are in it or in earlier batches.
    pub fn last_change(&self) -> u64 {
        let pending = self.pending.lock();
        if pending.touched { pending.shard.batch() } else { pending.shard.batch() - 1 }
    }

    /// The progress of the batches: which are durable.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Whether a batch is durable.
    pub fn is_durable(&self, batch: u64) -> bool {
        self.progress.is_done(batch)
    }

    /// Whether the shard takes nothing new for now: the disk is full or broken, or the shard is not open.
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) != 0
    }

    /// Whether the disk is full or broken.
    pub fn is_failing(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) & FAILING != 0
    }

    /// Whether the shard is open. A tenure that was closed is never opened again; its successor is.
    pub fn is_open(&self) -> bool {
        self.refuses.load(Ordering::Acquire) & NOT_OPEN == 0
    }

    /// Opens the shard for new work, or begins to refuse it.
    pub(crate) fn set_open(&self, is_open: bool) {
        match is_open {
            true => self.end_refusing(NOT_OPEN),
            false => self.begin_refusing(NOT_OPEN),
        };
    }

    /// The number of batches that were committed, except for empty ones.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// The approximate number of bytes that wait for their commit.
    pub fn pending_bytes(&self) -> usize {
        let pending = self.pending.lock();
        let in_flight = pending.in_flight.iter().map(|(_, writes)| writes.bytes());
        let sealed = pending.shard.sealed().map_or(0, WriteSet::bytes);
        pending.shard.pending().bytes() + sealed + in_flight.sum::<usize>()
    }

    /// Whether the shard is closing, or closed.
    pub fn is_closing(&self) -> bool {
        self.pending.lock().closing
    }

    /// Whether a batch that cannot be committed is not tried again.
    pub(super) fn gives_up(&self) -> bool {
        self.pending.lock().gives_up
    }

    /// Whether the shard is closed, and all that was noted before is durable.
    pub fn is_closed(&self) -> bool {
        let pending = self.pending.lock();
        pending.is_cut && pending.in_flight.is_empty()
    }

    /// Seals the current batch: [`Self::take`] will take it, and what is noted from now on is in the next one.
    pub(super) fn seal(&self) {
        let mut pending = self.pending.lock();
        if pending.touched && pending.shard.sealed().is_none() {
            pending.touched = false;
            pending.ripe = false;
            pending.shard.seal();
        }
    }

    /// Whether a batch is sealed and not taken yet.
    pub(super) fn has_sealed(&self) -> bool {
        self.pending.lock().shard.sealed().is_some()
    }

    /// Takes the sealed batch; or else the current one, and begins the next one. The batch is in flight from now on.
    /// Returns the number of the batch, its changes, and the names of the tenants.
    pub(super) fn take(&self) -> (u64, Arc<WriteSet>, Arc<TenantNames>) {
        let mut pending = self.pending.lock();
        if pending.shard.sealed().is_none() {
            pending.touched = false;
            pending.ripe = false;
        }
        pending.is_cut |= pending.closing && !pending.touched;
        let (number, writes) = pending.shard.take();
        let writes = Arc::new(writes);
        pending.in_flight.push_back((number, Arc::clone(&writes)));
        pending.unanswered += 1;
        (number, writes, pending.shard.tenant_names())
    }

    /// Waits for the next step of the committer, for at most `patience`. Returns `None` when there will be no more
    /// steps.
    pub(super) fn wait(&self, patience: Duration) -> Option<ToDo> {
        let mut pending = self.pending.lock();
        loop {
            if pending.is_fenced {
                return None;
            }
            if pending.in_doubt && pending.unanswered == 0 {
                return Some(ToDo::AppendAgain);
            }
            let has_window = !pending.in_doubt && pending.in_flight.len() < self.log.window();
            let has_sealed = pending.shard.sealed().is_some();
            let is_ripe = pending.ripe || (pending.closing && pending.touched);
            if has_window && (has_sealed || is_ripe) {
                return Some(ToDo::Commit);
            }
            let has_batch = has_sealed || pending.touched || !pending.in_flight.is_empty();
            if pending.closing && !has_batch {
                return None;
            }
            if self.changed.wait_for(&mut pending, patience).timed_out() {
                return Some(ToDo::Look);
            }
        }
    }

    /// Notes that the batches in doubt are about to be appended again.
    pub(super) fn end_doubt(&self) {
        let mut pending = self.pending.lock();
        pending.in_doubt = false;
        pending.unanswered = pending.in_flight.len();
    }

    /// Whether something has been noted that no batch in flight contains.
    pub(super) fn has_changes(&self) -> bool {
        let pending = self.pending.lock();
        pending.touched || pending.shard.sealed().is_some()
    }

    /// Fails all waits for now, including those for the batch that accumulates: it would be appended behind the
    /// failed ones.
    pub(super) fn give_up(&self) {
        self.progress.fail(self.last_change());
    }

    fn on_done(&self, number: u64) {
        let (first, writes) = {
            let mut pending = self.pending.lock();
            pending.unanswered -= 1;
            pending.in_flight.pop_front().expect("it was taken")
        };
        debug_assert_eq!(first, number, "batches become durable in their order");
        self.progress.advance(number);
        // If no reader has the write set, its memory is used again.
        if let Some(mut writes) = Arc::into_inner(writes) {
            writes.clear();
            self.pending.lock().shard.reuse(writes);
        }
    }

    /// Closes the shard. Its threads end when all that was noted is committed, and all requests to the loader are
    /// done. What is noted afterwards is lost.
    pub fn close(&self) {
        self.fetching.close();
        let mut pending = self.pending.lock();
        pending.closing = true;
        pending.is_cut |= !pending.touched && pending.shard.sealed().is_none();
        drop(pending);
        self.changed.notify_all();
    }

    /// [Closes](Self::close) the shard at the end of the process: a batch that cannot be committed now is not
    /// tried again.
    pub fn end(&self) {
        self.pending.lock().gives_up = true;
        self.close();
    }

    /// Adds a reason to refuse. Returns whether it is new.
    fn begin_refusing(&self, why: u32) -> bool {
        let before = self.refuses.fetch_or(why, Ordering::AcqRel);
        if before == 0 {
            self.common.refusing.fetch_add(1, Ordering::Relaxed);
        }
        before & why == 0
    }

    /// Removes a reason to refuse. Returns whether it was there.
    fn end_refusing(&self, why: u32) -> bool {
        let before = self.refuses.fetch_and(!why, Ordering::AcqRel);
        if before == why {
            self.common.refusing.fetch_sub(1, Ordering::Relaxed);
        }
        before & why != 0
    }

    pub(super) fn refuse(&self, error: &StoreError) {
        if self.begin_refusing(FAILING) {
            error!(
                shard = self.index,
                %error,
                "cannot commit: durable publishes are refused until commits work again"
            );
        }
    }

    pub(super) fn accept_again(&self) {
        if self.end_refusing(FAILING) {
            info!(shard = self.index, "commits work again");
        }
    }
}

impl Sink for DurableShard {
    fn on_outcome(&self, number: u64, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => self.on_done(number),
            Outcome::Undecided(error) => {
                {
                    let mut pending = self.pending.lock();
                    pending.in_doubt = true;
                    pending.unanswered -= 1;
                }
                self.refuse(&error);
            }
            Outcome::Fenced => {
                self.pending.lock().is_fenced = true;
                self.begin_refusing(FAILING);
                // This includes all batches to come.
                self.progress.fail(u64::MAX);
                error!(
                    shard = self.index,
                    "another process holds the log: nothing is stored any more"
                );
            }
        }
        self.changed.notify_one();
    }
}

impl ChangeGuard<'_> {
    /// The number of the batch that changes noted now belong to; [`LOST`] if the shard is closed.
    pub fn batch(&self) -> u64 {
        if self.is_lost() { LOST } else { self.pending.shard.batch() }
    }

    /// Whether changes noted now are lost, because the shard is closed.
    pub fn is_lost(&self) -> bool {
        self.pending.is_cut
    }
}

impl Deref for ChangeGuard<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.pending.shard
    }
}

impl DerefMut for ChangeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.pending.shard
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        if self.pending.is_cut {
            self.pending.shard.discard();
        } else if COMMITS_BY_ROUNDS.get() {
            self.owner.changed_in_round.store(true, Ordering::Release);
            if !self.owner.common.changed_in_round.load(Ordering::Relaxed) {
                self.owner.common.changed_in_round.store(true, Ordering::Release);
            }
        } else {
            // Notified under the lock: when the committer has woken up, the lock is free.
            self.pending.ripe = true;
            self.owner.changed.notify_one();
        }
    }
}

impl std::fmt::Debug for DurableShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableShard").field("index", &self.index).finish_non_exhaustive()
    }
}
