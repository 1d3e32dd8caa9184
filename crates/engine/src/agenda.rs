//! Tasks that are due at a time, or when something is durable, and that belong to no connection.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Weak};

use barid_core::entity::LockToken;
use barid_core::ids::StoredAs;
use barid_core::session::Waiting;
use barid_core::time::{MonoTime, WallTime};
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::durable::Commits;
use crate::entities::{Alarm, Mover, Queue};
use crate::progress::{Sources, WaitSet, Waiter};
use crate::session::{Session, SessionRef, Will};
use crate::sync::{Condvar, Mutex};
use crate::tenant::Tenant;

/// Something to be done at a time.
#[derive(Debug)]
pub enum Task {
    /// The session expires, unless its client has come back since `epoch`.
    Expire {
        /// Which.
        session: Weak<Session>,
        /// When its client went.
        epoch: u32,
    },
    /// The Will Message is due, unless the client has come back since `epoch`.
    PublishWill {
        /// Whose.
        session: Weak<Session>,
        /// When its client went.
        epoch: u32,
    },
    /// The Will Message of a session that has ended, or has another one by now, is to be published.
    PublishLeftWill {
        /// Whose it was.
        session: SessionRef,
        /// The message.
        will: Box<Will>,
    },
    /// Messages of shared subscriptions that were taken from a session are to be given to others.
    Give {
        /// From whom.
        session: SessionRef,
        /// Whether that session is over.
        ended: bool,
        /// What.
        taken: Vec<Waiting>,
        /// Batches that must be durable before the session may forget the messages.
        commits: Commits,
    },
    /// Keys of the state store expire.
    ExpireKeys {
        /// Whose.
        tenant: Weak<Tenant>,
        /// The shard that they belong to.
        shard: u16,
        /// When, by the clock on the wall.
        wall: WallTime,
    },
    /// The session is to end, whoever has it.
    End {
        /// Which.
        session: SessionRef,
        /// Told when it has ended.
        done: Tell,
    },
    /// Something in a queue is due.
    WakeQueue {
        /// Which.
        queue: Weak<Queue>,
        /// When.
        at: WallTime,
    },
    /// Messages of a queue are to be moved on.
    Move(Weak<Mover>),
    /// The log is to say how much more was denied than it has told one by one.
    SumUpDenials(Weak<Tenant>),
    /// Something was to be noted when something else is durable, which it is.
    Note(After),
    /// The `$SYS` topics of a new tenant, which should not have to wait for their turn.
    PublishSys(Arc<Tenant>),
}

impl Task {
    fn may_be_due(&self) -> bool {
        match self {
            Self::Expire { session, epoch } | Self::PublishWill { session, epoch } => {
                session.upgrade().is_some_and(|session| session.is_away_since(*epoch))
            }
            Self::ExpireKeys { tenant, shard, wall } => {
                tenant.upgrade().is_some_and(|tenant| tenant.has_alarm(*shard, *wall))
            }
            Self::WakeQueue { queue, at } => {
                queue.upgrade().is_some_and(|queue| queue.wakes_at(*at))
            }
            Self::SumUpDenials(tenant) => tenant.strong_count() > 0,
            Self::PublishSys(_)
            | Self::PublishLeftWill { .. }
            | Self::Give { .. }
            | Self::End { .. }
            | Self::Move(_)
            | Self::Note(_) => true,
        }
    }
}

/// Something to be noted when something else is durable, and not before.
#[derive(Debug)]
pub enum After {
    /// The session as it is then.
    StoreSession(Weak<Session>),
    /// Messages that other sessions have now.
    ForgetGiven(SessionRef, Vec<StoredAs>),
    /// All that a session that has ended had for others.
    ForgetBequest(SessionRef, Vec<StoredAs>),
    /// Messages were moved elsewhere, and go from where they were.
    Complete(Arc<Mover>, SmallVec<[LockToken; 8]>),
    /// Somebody waits to be told; or to see that nobody will be, because the commits have failed.
    Tell(Tell),
}

/// Tells somebody that something is done. Dropped instead: it is not, and will not be.
pub struct Tell(pub Box<dyn FnOnce() + Send>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// Where tasks are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agenda(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    tasks: Mutex<Tasks>,
    changed: Condvar,
    sources: Sources,
    after: Mutex<WaitSet<After>>,
    /// What waits for a closed shard.
    until_open: Mutex<Vec<Task>>,
}

#[derive(Debug, Default)]
struct Tasks {
    heap: BinaryHeap<Scheduled>,
    /// What something is to be noted after may be durable.
    has_durable: bool,
    closed: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: MonoTime,
    task: Task,
}

impl Agenda {
    /// By this clock; what is to be noted later waits for these sources.
    pub fn new(clock: Clock, sources: Sources) -> Self {
        let (tasks, after) = (Mutex::default(), Mutex::default());
        let until_open = Mutex::default();
        let changed = Condvar::new();
        Self(Arc::new(Inner { clock, tasks, changed, sources, after, until_open }))
    }

    /// Has a task done when the operating system's clock shows a time.
    pub fn schedule_by_wall(&self, wall: WallTime, task: Task) {
        self.schedule(self.0.clock.when(wall), task);
    }

    /// Has a task done at a time.
    pub fn schedule(&self, at: MonoTime, task: Task) {
        let mut tasks = self.0.tasks.lock();
        let is_next = tasks.heap.peek().is_none_or(|next| at < next.at);
        tasks.heap.push(Scheduled { at, task });
        if is_next {
            self.0.changed.notify_one();
        }
    }

    /// Has a task done when a shard that is closed is open again.
    pub fn schedule_when_open(&self, task: Task) {
        self.0.until_open.lock().push(task);
    }

    /// A shard is open again.
    pub fn opened(&self) {
        let waiting = std::mem::take(&mut *self.0.until_open.lock());
        waiting.into_iter().for_each(|task| self.schedule(MonoTime::default(), task));
    }

    /// Has something noted when `commits` are durable. If they never will be, nothing is: but a mover goes on.
    pub fn after(&self, commits: Commits, what: After) {
        if commits.are_lost() {
            if let After::Complete(mover, _) = what {
                let task = Task::Note(After::Complete(mover, SmallVec::new()));
                self.schedule(MonoTime::default(), task);
            }
            return;
        }
        let waiter = Arc::downgrade(&self.0);
        let now = self.0.after.lock().push(commits, what, &self.0.sources, &waiter);
        if let Some(what) = now {
            let task = Task::Note(what);
            self.schedule(MonoTime::default(), task);
        }
    }

    /// Takes what was to be noted after commits that are durable now. Who waits to be told of commits that have failed is
    /// let go untold.
    pub fn take_durable(&self) -> Vec<After> {
        let waiter = Arc::downgrade(&self.0);
        let is_told = |what: &After| matches!(what, After::Tell(_));
        self.0.after.lock().take(&self.0.sources, &waiter, is_told)
    }

    /// Ends the wait of the thread of housekeeping, and with it the thread.
    pub fn close(&self) {
        self.0.tasks.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// Waits until a task is due, something is durable, or `until`, which may be now. False: closed.
    pub fn wait(&self, until: MonoTime) -> bool {
        let mut tasks = self.0.tasks.lock();
        if tasks.closed {
            return false;
        }
        if !std::mem::take(&mut tasks.has_durable) {
            let until = tasks.heap.peek().map_or(until, |next| next.at.min(until));
            let wait = until.since(self.0.clock.now());
            if !wait.is_zero() {
                self.0.changed.wait_for(&mut tasks, wait);
            }
        }
        true
    }

    /// Forgets tasks of clients that have come back, and of sessions that have ended: so many as there
    /// were disconnections since the last time.
    pub fn forget_void(&self) {
        let tasks = std::mem::take(&mut self.0.tasks.lock().heap);
        let mut tasks = tasks.into_vec();
        tasks.retain(|scheduled| scheduled.task.may_be_due());
        tasks.shrink_to(tasks.len() * 2);
        self.0.tasks.lock().heap.append(&mut tasks.into());
    }

    /// The next task whose time has come.
    pub fn due(&self, now: MonoTime) -> Option<Task> {
        let mut tasks = self.0.tasks.lock();
        if tasks.heap.peek()?.at > now {
            return None;
        }
        tasks.heap.pop().map(|scheduled| scheduled.task)
    }
}

impl Alarm for Agenda {
    fn wake(&self, queue: Weak<Queue>, at: WallTime) {
        self.schedule_by_wall(at, Task::WakeQueue { queue, at });
    }

    fn move_on(&self, mover: Weak<Mover>) {
        self.schedule(MonoTime::default(), Task::Move(mover));
    }

    fn complete(&self, commits: Commits, mover: Arc<Mover>, done: SmallVec<[LockToken; 8]>) {
        self.after(commits, After::Complete(mover, done));
    }
}

impl Waiter for Inner {
    fn wake(&self) {
        self.tasks.lock().has_durable = true;
        self.changed.notify_one();
    }
}

/// The task that is due first is the greatest.
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Scheduled {}
