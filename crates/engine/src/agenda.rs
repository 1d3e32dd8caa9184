//! The agenda: tasks that belong to no connection and are due at a time, or when something is durable.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Weak};

use barid_core::entity::LockToken;
use barid_core::ids::StoredAs;
use barid_core::message::Message;
use barid_core::session::Waiting;
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashMap;
use mqtt_proto::ReasonCode;
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::cluster::{Forgetting, LeftRun, Lost};
use crate::durable::Commits;
use crate::entities::{Alarm, Mover, Queue};
use crate::progress::{Sources, WaitSet, Waiter};
use crate::session::{Session, SessionRef, Will};
use crate::sync::{Condvar, Mutex};
use crate::tenant::Tenant;

/// A task that is due at a time.
#[derive(Debug)]
pub enum Task {
    /// Ends a session that expires, unless the client has reconnected since `epoch`.
    Expire {
        /// The session.
        session: Weak<Session>,
        /// The epoch of the outlet after the client disconnected: it identifies the absence.
        epoch: u32,
    },
    /// Publishes the Will Message of a session, unless the client has reconnected since `epoch`.
    PublishWill {
        /// The session of the will.
        session: Weak<Session>,
        /// The epoch of the outlet after the client disconnected: it identifies the absence.
        epoch: u32,
    },
    /// Publishes a Will Message whose session has ended, or has another will by now.
    PublishLeftWill {
        /// The session that the will belonged to.
        session: SessionRef,
        /// The will.
        will: Box<Will>,
    },
    /// Gives messages of shared subscriptions that were taken from a session to other members.
    Give {
        /// The session that the messages were taken from.
        session: SessionRef,
        /// Whether that session has ended.
        ended: bool,
        /// The messages.
        taken: Vec<Waiting>,
        /// The commits that must be durable before the session may forget the messages.
        commits: Commits,
    },
    /// Removes expired keys of the state store.
    ExpireKeys {
        /// The tenant of the keys.
        tenant: Weak<Tenant>,
        /// The shard that the keys belong to.
        shard: u16,
        /// The wall time that the task is scheduled for.
        wall: WallTime,
    },
    /// Ends a session, whether or not a client is connected.
    End {
        /// The session.
        session: SessionRef,
        /// The reason that its client is told.
        reason: ReasonCode,
        /// Called when the end of the session is durable.
        done: Tell,
    },
    /// Ends a session whose client has connected to another broker.
    EndOld {
        /// The session.
        session: SessionRef,
        /// When the client connected to the other broker, in microseconds since the Unix epoch.
        at: u64,
    },
    /// Wakes a queue in which something is due.
    WakeQueue {
        /// The queue.
        queue: Weak<Queue>,
        /// The wall time that the task is scheduled for.
        at: WallTime,
    },
    /// Runs a mover, which forwards messages of a queue.
    Move(Weak<Mover>),
    /// Logs how many denials of a tenant were counted instead of logged.
    SumUpDenials(Weak<Tenant>),
    /// Carries out a follow-up whose commits are durable.
    Note(After),
    /// Publishes a message of an operator.
    Publish {
        /// The tenant.
        tenant: Arc<Tenant>,
        /// The message.
        message: Arc<Message>,
        /// Called when the message is durable where it has to be.
        done: Tell,
    },
    /// Publishes the `$SYS` topics of a new tenant at once, before the next regular publication.
    PublishSys(Arc<Tenant>),
    /// Publishes the state of another broker of the cluster, below `$SYS`.
    PublishMember {
        /// The name of the broker.
        name: Box<str>,
        /// Its state.
        state: &'static str,
    },
    /// Gives messages for a broker that is down to another member of their shared subscription.
    ShareAgain(Box<LeftRun>),
    /// Counts messages for a broker that is down, by tenant.
    CountLost(HashMap<String, Lost>),
    /// Removes subscriptions of another broker that do not count any more.
    ForgetFilters(Box<Forgetting>),
    /// Publishes wills that this broker has kept for another one, which is down.
    PublishOrphans,
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
            | Self::PublishMember { .. }
            | Self::ShareAgain(_)
            | Self::CountLost(_)
            | Self::PublishOrphans
            | Self::ForgetFilters(_)
            | Self::PublishLeftWill { .. }
            | Self::Give { .. }
            | Self::End { .. }
            | Self::EndOld { .. }
            | Self::Move(_)
            | Self::Publish { .. }
            | Self::Note(_) => true,
        }
    }
}

/// A follow-up that must not be carried out before certain commits are durable.
#[derive(Debug)]
pub enum After {
    /// Notes the session in the store, as it is at that time.
    StoreSession(Weak<Session>),
    /// Forgets messages of the session that other sessions have by then.
    ForgetGiven(SessionRef, Vec<StoredAs>),
    /// Forgets the bequest of a session that has ended: these messages, and the record of the session.
    ForgetBequest(SessionRef, Vec<StoredAs>),
    /// Completes messages in the queue from which they were moved.
    Complete(Arc<Mover>, SmallVec<[LockToken; 8]>),
    /// Calls a waiter. It is dropped without a call if the commits have failed.
    Tell(Tell),
}

/// A callback that reports that something is done. If it is dropped without a call, that is not done and will
/// not be.
pub struct Tell(pub Box<dyn FnOnce() + Send>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// The queue of tasks for the housekeeping thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agenda(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    tasks: Mutex<Tasks>,
    changed: Condvar,
    sources: Sources,
    after: Mutex<WaitSet<After>>,
    /// Tasks that wait for a closed shard to be opened.
    until_open: Mutex<Vec<Task>>,
}

#[derive(Debug, Default)]
struct Tasks {
    heap: BinaryHeap<Scheduled>,
    /// Whether commits that a follow-up waits for may have become durable.
    has_durable: bool,
    closed: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: MonoTime,
    task: Task,
}

impl Agenda {
    /// Creates an empty agenda. Follow-ups wait for these sources.
    pub fn new(clock: Clock, sources: Sources) -> Self {
        let (tasks, after) = (Mutex::default(), Mutex::default());
        let until_open = Mutex::default();
        let changed = Condvar::new();
        Self(Arc::new(Inner { clock, tasks, changed, sources, after, until_open }))
    }

    /// Schedules a task for a wall time.
    pub(crate) fn schedule_by_wall(&self, wall: WallTime, task: Task) {
        self.schedule(self.0.clock.when(wall), task);
    }

    /// Schedules a task.
    pub fn schedule(&self, at: MonoTime, task: Task) {
        let mut tasks = self.0.tasks.lock();
        let is_next = tasks.heap.peek().is_none_or(|next| at < next.at);
        tasks.heap.push(Scheduled { at, task });
        if is_next {
            self.0.changed.notify_one();
        }
    }

    /// Schedules a task for when a closed shard is open again.
    pub(crate) fn schedule_when_open(&self, task: Task) {
        self.0.until_open.lock().push(task);
    }

    /// Schedules the tasks that wait for a closed shard at once. To be called when a shard is open again, and
    /// from time to time: a task may wait for an entity that was deleted or changed meanwhile.
    pub fn opened(&self) {
        let waiting = std::mem::take(&mut *self.0.until_open.lock());
        waiting.into_iter().for_each(|task| self.schedule(MonoTime::default(), task));
    }

    /// Carries out a follow-up when `commits` are durable. If `commits` are lost, the follow-up is dropped;
    /// only a mover is told to go on, with nothing to complete.
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

    /// Takes out the follow-ups whose commits are durable now. Drops each [`Tell`] whose commits have failed,
    /// without calling it.
    pub(crate) fn take_durable(&self) -> Vec<After> {
        let waiter = Arc::downgrade(&self.0);
        let is_told = |what: &After| matches!(what, After::Tell(_));
        self.0.after.lock().take(&self.0.sources, &waiter, is_told)
    }

    /// Wakes the housekeeping thread and lets it end.
    pub fn close(&self) {
        self.0.tasks.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// Waits until a task is due, until commits of a follow-up may be durable, or until `until`, which may
    /// have passed. Returns false if the agenda is closed.
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

    /// Removes tasks of clients that have reconnected and of sessions that have ended. Otherwise one task
    /// would remain for each disconnection until it is due.
    pub(crate) fn forget_void(&self) {
        let tasks = std::mem::take(&mut self.0.tasks.lock().heap);
        let mut tasks = tasks.into_vec();
        tasks.retain(|scheduled| scheduled.task.may_be_due());
        tasks.shrink_to(tasks.len() * 2);
        self.0.tasks.lock().heap.append(&mut tasks.into());
    }

    /// Takes out the next task that is due.
    pub fn due(&self, now: MonoTime) -> Option<Task> {
        let mut tasks = self.0.tasks.lock();
        if tasks.heap.peek()?.at > now {
            return None;
        }
        tasks.heap.pop().map(|scheduled| scheduled.task)
    }
}

impl Alarm for Agenda {
    fn wall(&self) -> WallTime {
        self.0.clock.wall()
    }

    fn wake(&self, queue: Weak<Queue>, at: WallTime) {
        self.schedule_by_wall(at, Task::WakeQueue { queue, at });
    }

    fn move_on(&self, mover: Weak<Mover>) {
        self.schedule(MonoTime::default(), Task::Move(mover));
    }

    fn move_when_open(&self, mover: Weak<Mover>) {
        self.schedule_when_open(Task::Move(mover));
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
