//! One shard: what it has to write, who commits it, and who waits for that.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use barid_core::durable::{Shard, TenantNames, WriteSet, keys};
use barid_core::ids::{MessageId, QueueNumber, TenantNumber};
use barid_core::message::Message;
use barid_store::{Batch, Store, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tracing::{error, info};

use super::fetching::Fetching;
use crate::progress::Progress;

/// How long a shard that could not commit waits before it tries again.
const RETRY: Duration = Duration::from_millis(200);

/// How often a shard without anything to commit asks whether there is room: others fill disks, too, and what meets a
/// full one is worse off than what is refused.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// How long it tries before those are told who wait for what it cannot commit. What a disk refuses for a moment, as
/// when a file cannot be opened, is nobody else's affair.
const PATIENCE: Duration = Duration::from_secs(1);

/// When at least so many changes, and a good part of a batch, came to nothing because clients took their
/// messages at once, the next batch is given time: what vanishes need not be written at all. Who waits alone, or
/// for clients that are away, does not wait longer.
const BUSY: usize = 128;

/// How long.
const LINGER: Duration = Duration::from_millis(6);

/// When the last batch had so many changes, the next one begins not before [`PACE`] after it: many wait, and one
/// sync for more of them costs less. Who waits alone, or with few, does not wait longer.
const CROWD: usize = 16;

/// How far apart.
const PACE: Duration = Duration::from_micros(500);

thread_local! {
    static COMMITS_BY_ROUNDS: Cell<bool> = const { Cell::new(false) };
}

/// What this thread changes is to be committed from the end of its round on ([`DurableShard::end_round`]), not
/// at once: one sync is for all that a round has to do.
pub fn commit_by_rounds() {
    COMMITS_BY_ROUNDS.set(true);
}

/// A shard with its store.
pub struct DurableShard {
    index: u16,
    store: Arc<dyn Store>,
    pending: Mutex<Pending>,
    changed: Condvar,
    /// Held to read by those whose changes must all be in one batch, and to write when a batch ends. Taken
    /// before any lock of a session.
    boundary: RwLock<()>,
    /// Which batches are durable, and which have failed for longer than [`PATIENCE`].
    progress: Arc<Progress>,
    /// A thread that commits by rounds has changed something.
    changed_in_round: AtomicBool,
    /// What is being committed: nobody finds it in the write set any more, nor yet in the store.
    committing: RwLock<Option<Arc<WriteSet>>>,
    /// Requests to read back from the store.
    pub(super) fetching: Fetching,
    /// The store takes nothing new: the disk is full or broken.
    refuses: AtomicBool,
    commits: AtomicU64,
    /// Held while the store is written to.
    gate: Arc<RwLock<()>>,
}

struct Pending {
    shard: Shard,
    /// Somebody waits for the batch that accumulates, or will want it written.
    touched: bool,
    /// It is time to write it.
    ripe: bool,
    closing: bool,
}

/// The write set of a shard, locked. When it is let go, what was noted is on its way to the store.
pub struct ChangeGuard<'a> {
    owner: &'a DurableShard,
    pending: MutexGuard<'a, Pending>,
}

impl DurableShard {
    /// A shard whose store has not been read yet.
    pub fn new(index: u16, store: Arc<dyn Store>, gate: Arc<RwLock<()>>) -> Self {
        Self {
            index,
            store,
            pending: Mutex::new(Pending {
                shard: Shard::new(index),
                touched: false,
                ripe: false,
                closing: false,
            }),
            changed: Condvar::new(),
            boundary: RwLock::default(),
            progress: Arc::default(),
            changed_in_round: AtomicBool::new(false),
            committing: RwLock::default(),
            fetching: Fetching::default(),
            refuses: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            gate,
        }
    }

    /// What the store has is known.
    pub fn install(&self, shard: Shard) {
        let mut pending = self.pending.lock();
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
        pending.touched = true;
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

    /// Keeps the batch from ending. For moments only: the committer waits, and others behind it.
    pub fn stay_in_batch(&self) -> RwLockReadGuard<'_, ()> {
        self.boundary.read()
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

    /// Whether the store takes nothing new for now.
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    /// How many batches have been committed.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// About how many bytes wait for their commit.
    pub fn pending_bytes(&self) -> usize {
        self.pending.lock().shard.pending().bytes()
    }

    /// Whether the broker is about to end.
    pub fn is_closing(&self) -> bool {
        self.pending.lock().closing
    }

    /// A message of the shard, wherever it is; `None`: it is lost. Blocks for the disk.
    ///
    /// # Errors
    /// Those that may pass. A message that is damaged will not get better; a disk may.
    pub fn message(
        &self,
        tenant: TenantNumber,
        name: &str,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>, StoreError> {
        match self.find(tenant, name, id) {
            Err(error @ StoreError::Corrupt(_)) => {
                error!(shard = self.index, %error, "a message cannot be read back, and is lost");
                Ok(None)
            }
            found => found,
        }
    }

    fn find(
        &self,
        tenant: TenantNumber,
        name: &str,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>, StoreError> {
        let noted = self.noted(&self.pending.lock(), tenant, id);
        if noted.is_some() {
            return Ok(noted);
        }
        let stored = self.read(name, id)?;
        if stored.is_some() {
            return Ok(stored);
        }
        // It may have been on its way from one place to another: while this is locked, it stays.
        let pending = self.pending.lock();
        match self.noted(&pending, tenant, id) {
            None => self.read(name, id),
            noted => Ok(noted),
        }
    }

    /// The bytes of a message in a queue, wherever they are; `None`: they are lost. Blocks for the disk.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub fn body(
        &self,
        tenant: TenantNumber,
        name: &str,
        queue: QueueNumber,
        id: u64,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let noted = self.noted_body(&self.pending.lock(), tenant, queue, id);
        if noted.is_some() {
            return Ok(noted);
        }
        let stored = self.read_body(name, queue, id)?;
        if stored.is_some() {
            return Ok(stored);
        }
        // As for messages: it may have been on its way.
        let pending = self.pending.lock();
        match self.noted_body(&pending, tenant, queue, id) {
            None => self.read_body(name, queue, id),
            noted => Ok(noted),
        }
    }

    fn noted_body(
        &self,
        pending: &Pending,
        tenant: TenantNumber,
        queue: QueueNumber,
        id: u64,
    ) -> Option<Arc<[u8]>> {
        let found = pending.shard.pending().queue_body(tenant, queue, id).cloned();
        let committing = || self.committing.read().as_ref()?.queue_body(tenant, queue, id).cloned();
        found.or_else(committing)
    }

    fn read_body(
        &self,
        name: &str,
        queue: QueueNumber,
        id: u64,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let mut key = Vec::new();
        keys::QueueBodyKey { tenant: name, queue, id }.encode(&mut key);
        let Some(value) = self.store.get(keys::QUEUE_BODIES, &key)? else { return Ok(None) };
        match barid_core::durable::records::decode_body(&value) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => {
                error!(shard = self.index, %error, "a message cannot be read back, and is lost");
                Ok(None)
            }
        }
    }

    /// A message that is still to be written, or is being written.
    fn noted(
        &self,
        pending: &Pending,
        tenant: TenantNumber,
        id: MessageId,
    ) -> Option<Arc<Message>> {
        let found = pending.shard.pending().message(tenant, id).cloned();
        found.or_else(|| self.committing.read().as_ref()?.message(tenant, id).cloned())
    }

    fn read(&self, name: &str, id: MessageId) -> Result<Option<Arc<Message>>, StoreError> {
        let mut key = Vec::new();
        keys::MessageKey { tenant: name, message: id }.encode(&mut key);
        let Some(value) = self.store.get(keys::MESSAGES, &key)? else { return Ok(None) };
        let message = barid_core::durable::records::decode_message(&value);
        message.map(|message| Some(Arc::new(message))).map_err(|error| {
            StoreError::Corrupt(format!("message {id} of shard {}: {error}", self.index))
        })
    }

    /// Commits what was noted at the start, as long as there is no thread that does: nobody is told anything
    /// that depends on it before it is durable. If that fails, the thread will try again.
    pub fn commit_before_start(&self) {
        if self.pending.lock().touched
            && let Err(error) = self.commit(&mut Batch::default(), &mut 0)
        {
            self.refuse(&error);
        }
    }

    /// Starts the thread that commits.
    pub fn start(self: &Arc<Self>) -> JoinHandle<()> {
        let shard = Arc::clone(self);
        thread::Builder::new()
            .name(format!("barid-shard-{}", self.index))
            .spawn(move || shard.commit_until_closed())
            .expect("the operating system has room for a thread")
    }

    /// Lets its threads end when all is committed and read.
    pub fn close(&self) {
        self.fetching.close();
        self.pending.lock().closing = true;
        self.changed.notify_all();
    }

    fn commit_until_closed(&self) {
        let mut batch = Batch::default();
        let mut spared = 0;
        let mut begun = Instant::now();
        let mut failing_since = None;
        while self.wait() {
            if spared >= BUSY && spared >= batch.len() / 4 {
                thread::sleep(LINGER);
            } else if batch.len() >= CROWD {
                thread::sleep(PACE.saturating_sub(begun.elapsed()));
            }
            begun = Instant::now();
            if let Err(error) = self.commit(&mut batch, &mut spared) {
                self.refuse(&error);
                if failing_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                    self.give_up();
                }
                if self.is_closing() {
                    error!(shard = self.index, "what was not acknowledged is not stored");
                    return;
                }
                thread::sleep(RETRY);
                continue;
            }
            failing_since = None;
            match self.store.room() {
                Ok(()) => self.accept_again(),
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// Waits until there is something to commit, or it is time to ask for room again. False: there is
    /// nothing, and nothing more comes.
    fn wait(&self) -> bool {
        let mut pending = self.pending.lock();
        while !pending.ripe && !pending.closing {
            let patience = if self.refuses() { RETRY } else { ROOM_INTERVAL };
            if self.changed.wait_for(&mut pending, patience).timed_out() {
                return true;
            }
        }
        pending.touched
    }

    /// Commits what has accumulated, and wakes who waits for it.
    fn commit(&self, batch: &mut Batch, spared: &mut usize) -> Result<(), StoreError> {
        let (number, writes, names) = {
            let _boundary = self.boundary.write();
            let mut pending = self.pending.lock();
            pending.touched = false;
            pending.ripe = false;
            let (number, writes) = pending.shard.take();
            *spared = writes.spared();
            let writes = Arc::new(writes);
            *self.committing.write() = Some(Arc::clone(&writes));
            (number, writes, pending.shard.tenant_names())
        };
        if let Err(error) = self.write(&writes, &names, batch) {
            let mut pending = self.pending.lock();
            *self.committing.write() = None;
            let writes = Arc::into_inner(writes).expect("readers clone what they find in it");
            pending.shard.put_back(writes);
            pending.touched = true;
            pending.ripe = true;
            return Err(error);
        }
        *self.committing.write() = None;
        self.progress.advance(number);
        let mut writes = Arc::into_inner(writes).expect("readers clone what they find in it");
        writes.clear();
        self.pending.lock().shard.reuse(writes);
        Ok(())
    }

    /// Tells who waits that it is in vain for now.
    fn give_up(&self) {
        // All before the batch that accumulates is in the set that was put back.
        let last = self.pending.lock().shard.batch() - 1;
        self.progress.fail(last);
    }

    fn write(
        &self,
        writes: &WriteSet,
        names: &TenantNames,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        batch.clear();
        writes.encode(names, batch);
        // When there is too little room, nothing new comes. What is here already is let in, and so is what
        // clients need to take what waits for them: the reserve is for that.
        batch.set_urgent();
        self.commits.fetch_add(1, Ordering::Relaxed);
        // A backup sees all shards between two commits.
        let _gate = self.gate.read();
        self.store.commit(batch)
    }

    fn refuse(&self, error: &StoreError) {
        if !self.refuses.swap(true, Ordering::Relaxed) {
            error!(
                shard = self.index,
                %error,
                "cannot commit: durable publishes are refused until it works again"
            );
        }
    }

    fn accept_again(&self) {
        if self.refuses.swap(false, Ordering::Relaxed) {
            info!(shard = self.index, "commits work again");
        }
    }
}

impl ChangeGuard<'_> {
    /// The number of the batch that what is noted now belongs to.
    pub fn batch(&self) -> u64 {
        self.pending.shard.batch()
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
        if COMMITS_BY_ROUNDS.get() {
            self.owner.changed_in_round.store(true, Ordering::Release);
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
