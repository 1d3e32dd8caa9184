//! One shard: what it has to write, and what of that is on its way to the log.

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

/// What this thread changes is to be committed from the end of its round on ([`DurableShard::end_round`]), not
/// at once: one sync is for all that a round has to do.
pub fn commit_by_rounds() {
    COMMITS_BY_ROUNDS.set(true);
}

/// What all shards of the process have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// How many of them take nothing new.
    refusing: AtomicUsize,
    /// A thread that commits by rounds has changed something in one of them.
    changed_in_round: AtomicBool,
}

impl Common {
    pub(super) fn any_refuses(&self) -> bool {
        self.refusing.load(Ordering::Relaxed) > 0
    }

    /// Whether something was changed by rounds since the last time.
    pub(super) fn take_changed(&self) -> bool {
        self.changed_in_round.load(Ordering::Relaxed)
            && self.changed_in_round.swap(false, Ordering::AcqRel)
    }
}

/// The disk is full or broken …
const FAILING: u32 = 1;

/// … or the shard is not open: it is closed, or is being opened or closed.
const NOT_OPEN: u32 = 2;

/// A shard with its log and its store, for one tenure: from when it is opened until it is closed. Who has it for longer cannot
/// change anything any more: what is noted in a closed shard is [`LOST`].
pub struct DurableShard {
    index: u16,
    pub(super) log: Box<dyn Changelog>,
    /// Contains everything that is durable in `log`.
    pub(super) store: Arc<dyn Store>,
    pub(super) pending: Mutex<Pending>,
    changed: Condvar,
    /// Which batches are durable, and for which nobody should wait. The next tenure goes on with it.
    progress: Arc<Progress>,
    common: Arc<Common>,
    /// A thread that commits by rounds has changed something.
    changed_in_round: AtomicBool,
    /// The committer, until it is taken.
    pub(super) committer: Mutex<Option<Committer>>,
    /// Requests to read back from the store.
    pub(super) fetching: Fetching,
    /// Why it takes nothing new; 0: it does.
    refuses: AtomicU32,
    pub(super) commits: AtomicU64,
}

pub(super) struct Pending {
    pub shard: Shard,
    /// Batches in flight, in order: taken from the write set, and not known to be durable. Readers look here as well, because
    /// the store may not have them yet.
    pub in_flight: VecDeque<(u64, Arc<WriteSet>)>,
    /// Whether the batches in flight are durable is unknown: they are appended again …
    in_doubt: bool,
    /// … after this many more outcomes of the log.
    unanswered: usize,
    /// The log has a new holder: nothing becomes durable here any more.
    is_fenced: bool,
    /// Something was noted since the last batch was taken.
    touched: bool,
    /// The accumulating batch is to be committed now.
    ripe: bool,
    /// The batch that is taken next is the last.
    closing: bool,
    /// It was taken: what is noted is lost.
    is_cut: bool,
    /// What cannot be committed is given up.
    gives_up: bool,
}

/// The next step of a committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToDo {
    /// Append the batch that has accumulated.
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
    /// A shard whose store has not been read yet; what is appended to `log` is in `store` when it is done.
    pub fn new(index: ShardIndex, log: Box<dyn Changelog>, store: Arc<dyn Store>) -> Self {
        Self::begin(Shard::new(index), (log, store), Arc::default(), Arc::default(), 0)
    }

    /// One of several.
    pub(super) fn among(
        index: ShardIndex,
        storage: (Box<dyn Changelog>, Arc<dyn Store>),
        common: &Arc<Common>,
    ) -> Self {
        Self::begin(Shard::new(index), storage, Arc::default(), Arc::clone(common), 0)
    }

    /// The next tenure of a closed shard, over its log. It is not open yet.
    pub(super) fn successor(&self, log: Box<dyn Changelog>) -> Self {
        let mut shard = Shard::new(self.index);
        shard.continue_with(self.pending.lock().shard.batch());
        let (progress, common) = (Arc::clone(&self.progress), Arc::clone(&self.common));
        // It counts as the closed one did as one that takes nothing new.
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

    /// What the store has is known.
    pub fn install(&self, mut shard: Shard) {
        let mut pending = self.pending.lock();
        shard.continue_with(pending.shard.batch());
        pending.touched = !shard.pending().is_empty();
        pending.ripe = pending.touched;
        pending.shard = shard;
    }

    /// Which one it is.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Locks the write set. A leaf: whoever holds it takes no other lock.
    pub fn change(&self) -> ChangeGuard<'_> {
        let mut pending = self.pending.lock();
        pending.touched = !pending.is_cut;
        ChangeGuard { owner: self, pending }
    }

    /// A thread that [commits by rounds](commit_by_rounds) has ended one.
    pub fn end_round(&self) {
        if self.changed_in_round.swap(false, Ordering::AcqRel) {
            let mut pending = self.pending.lock();
            // Another thread may have had it committed meanwhile.
            pending.ripe = pending.touched;
            self.changed.notify_one();
        }
    }

    /// Says what a tenant is called, before anything of it is noted.
    pub fn name_tenant(&self, number: TenantNumber, name: &str) {
        self.pending.lock().shard.name_tenant(number, name);
    }

    /// Whether it is noted that a QoS 2 message was received.
    pub fn has_received(&self, session: SessionNumber, packet_id: PacketId) -> bool {
        self.pending.lock().shard.received(session, packet_id).is_some()
    }

    /// What it has received of clients whose sessions belong to a shard.
    pub fn received_of(&self, home: ShardIndex) -> Vec<ReceivedIn> {
        self.pending.lock().shard.received_of(home)
    }

    /// The batch that has all that was noted so far.
    pub fn last_change(&self) -> u64 {
        let pending = self.pending.lock();
        if pending.touched { pending.shard.batch() } else { pending.shard.batch() - 1 }
    }

    /// Which batches are durable.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Whether a batch is durable.
    pub fn is_durable(&self, batch: u64) -> bool {
        self.progress.is_done(batch)
    }

    /// Whether it takes nothing new for now: the disk is full or broken, or it is not open.
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) != 0
    }

    /// Whether its disk is full or broken.
    pub fn is_failing(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) & FAILING != 0
    }

    /// Whether it is open. One that has been closed never is again: its successor is.
    pub fn is_open(&self) -> bool {
        self.refuses.load(Ordering::Acquire) & NOT_OPEN == 0
    }

    /// From now on it is open, or not.
    pub(crate) fn set_open(&self, is_open: bool) {
        match is_open {
            true => self.end_refusing(NOT_OPEN),
            false => self.begin_refusing(NOT_OPEN),
        };
    }

    /// How many batches have been committed.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// About how many bytes wait for their commit.
    pub fn pending_bytes(&self) -> usize {
        let pending = self.pending.lock();
        let in_flight = pending.in_flight.iter().map(|(_, writes)| writes.bytes());
        pending.shard.pending().bytes() + in_flight.sum::<usize>()
    }

    /// Whether it is about to close.
    pub fn is_closing(&self) -> bool {
        self.pending.lock().closing
    }

    /// Whether what cannot be committed is not tried again.
    pub(super) fn gives_up(&self) -> bool {
        self.pending.lock().gives_up
    }

    /// Whether it is closed, and all that was noted before is durable.
    pub fn is_closed(&self) -> bool {
        let pending = self.pending.lock();
        pending.is_cut && pending.in_flight.is_empty()
    }

    /// Begins the next batch. What it has of the present one is on its way from now on.
    pub(super) fn take(&self) -> (u64, Arc<WriteSet>, Arc<TenantNames>) {
        let mut pending = self.pending.lock();
        pending.touched = false;
        pending.ripe = false;
        pending.is_cut |= pending.closing;
        let (number, writes) = pending.shard.take();
        let writes = Arc::new(writes);
        pending.in_flight.push_back((number, Arc::clone(&writes)));
        pending.unanswered += 1;
        (number, writes, pending.shard.tenant_names())
    }

    /// Waits for the next step of the committer, for at most `patience`. Returns `None` when there will be no more steps.
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
            if has_window && (pending.ripe || (pending.closing && pending.touched)) {
                return Some(ToDo::Commit);
            }
            if pending.closing && !pending.touched && pending.in_flight.is_empty() {
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

    /// Whether something has been noted since the last batch was taken.
    pub(super) fn has_changes(&self) -> bool {
        self.pending.lock().touched
    }

    /// Fails all waits for now, including those for the batch that accumulates: it would be appended behind the failed ones.
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
        // Nobody else has found it in the last moment.
        if let Some(mut writes) = Arc::into_inner(writes) {
            writes.clear();
            self.pending.lock().shard.reuse(writes);
        }
    }

    /// Closes it, and ends its threads when all that was noted is committed, and read. What is noted then is lost.
    pub fn close(&self) {
        self.fetching.close();
        let mut pending = self.pending.lock();
        pending.closing = true;
        pending.is_cut |= !pending.touched;
        drop(pending);
        self.changed.notify_all();
    }

    /// [Closes](Self::close) it at the end of the process: what cannot be committed now is not tried again.
    pub fn end(&self) {
        self.pending.lock().gives_up = true;
        self.close();
    }

    /// True: it did not refuse for that reason before.
    fn begin_refusing(&self, why: u32) -> bool {
        let before = self.refuses.fetch_or(why, Ordering::AcqRel);
        if before == 0 {
            self.common.refusing.fetch_add(1, Ordering::Relaxed);
        }
        before & why == 0
    }

    /// True: it did refuse for that reason before.
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
                "cannot commit: durable publishes are refused until it works again"
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
                // Also what will be noted from now on.
                self.progress.fail(u64::MAX);
                error!(shard = self.index, "somebody else has the log: nothing is stored any more");
            }
        }
        self.changed.notify_one();
    }
}

impl ChangeGuard<'_> {
    /// The number of the batch that what is noted now belongs to; [`LOST`] if the shard is closed.
    pub fn batch(&self) -> u64 {
        if self.is_lost() { LOST } else { self.pending.shard.batch() }
    }

    /// Whether what is noted now is lost: the shard is closed.
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
            // Told while it is locked: the committer, woken, finds it free a moment later.
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
