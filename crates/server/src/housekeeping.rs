//! One thread for what is due at a time and belongs to no connection: wills with a delay, sessions that
//! expire, what is due in queues, `$SYS`, memory that can be given back.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use barid_core::entity::LockToken;
use barid_core::ids::StoredAs;
use barid_core::session::Waiting;
use barid_core::time::Timestamp;
use mqtt_proto::ReasonCode;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::budget::Budget;
use crate::clock::Clock;
use crate::durable::Commits;
use crate::entities::{Alarm, Mover, Queue};
use crate::lifecycle::Context;
use crate::progress::{Sources, WaitSet, Waiter};
use crate::session::{Session, SessionRef};
use crate::sys::{self, Sys};
use crate::tenant::Tenant;

/// How often expired retained messages and stale routes are looked for.
const SWEEP: Duration = Duration::from_secs(10);

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
    /// Messages of shared subscriptions that were taken from a session are to be given to others.
    Give {
        /// From whom.
        session: SessionRef,
        /// Whether that session is over.
        ended: bool,
        /// What.
        taken: Vec<Waiting>,
        /// What has to be durable, too, before the session may forget.
        commits: Commits,
    },
    /// Keys of the state store expire.
    ExpireKeys {
        /// Whose.
        tenant: Weak<Tenant>,
        /// The shard that they belong to.
        shard: u16,
        /// When, by the clock on the wall.
        wall: Timestamp,
    },
    /// The session is to end, whoever has it.
    End {
        /// Which.
        session: SessionRef,
        /// Told when it has ended.
        done: oneshot::Sender<()>,
    },
    /// Something in a queue is due.
    WakeQueue {
        /// Which.
        queue: Weak<Queue>,
        /// When.
        at: Timestamp,
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
    Tell(oneshot::Sender<()>),
}

/// Where tasks are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Housekeeping(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: a test moves the time, and both clocks with it.
    clock: Option<Clock>,
    agenda: Mutex<Agenda>,
    changed: Condvar,
    sources: Sources,
    after: Mutex<WaitSet<After>>,
}

#[derive(Debug, Default)]
struct Agenda {
    tasks: BinaryHeap<Scheduled>,
    /// What something is to be noted after may be durable.
    has_durable: bool,
    closed: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: Timestamp,
    task: Task,
}

impl Housekeeping {
    /// By this clock; what is to be noted later waits for these sources.
    pub fn new(clock: Clock, sources: Sources) -> Self {
        Self::with(Some(clock), sources)
    }

    /// By the hand of a test.
    #[cfg(test)]
    pub fn by_hand(sources: Sources) -> Self {
        Self::with(None, sources)
    }

    fn with(clock: Option<Clock>, sources: Sources) -> Self {
        let (agenda, after) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { clock, agenda, changed: Condvar::new(), sources, after }))
    }

    /// Has a task done when the operating system's clock shows a time.
    pub fn schedule_by_wall(&self, wall: Timestamp, task: Task) {
        let at = self.0.clock.map_or(wall, |clock| clock.when(wall));
        self.schedule(at, task);
    }

    /// Has a task done at a time.
    pub fn schedule(&self, at: Timestamp, task: Task) {
        let mut agenda = self.0.agenda.lock();
        let is_next = agenda.tasks.peek().is_none_or(|next| at < next.at);
        agenda.tasks.push(Scheduled { at, task });
        if is_next {
            self.0.changed.notify_one();
        }
    }

    /// Has something noted when `commits` are durable.
    pub fn after(&self, commits: Commits, what: After) {
        let waiter = Arc::downgrade(&self.0);
        let now = self.0.after.lock().push(commits, what, &self.0.sources, &waiter);
        if let Some(what) = now {
            let task = Task::Note(what);
            self.schedule(Timestamp::default(), task);
        }
    }

    /// What was to be noted after commits that are durable now. Who waits for what has failed is let go.
    pub fn take_durable(&self) -> Vec<After> {
        let waiter = Arc::downgrade(&self.0);
        let is_told = |what: &After| matches!(what, After::Tell(_));
        self.0.after.lock().take(&self.0.sources, &waiter, is_told)
    }

    /// Notes what was to be noted after commits that are durable now.
    fn note_after(&self, context: &Context) {
        self.take_durable().into_iter().for_each(|what| note(context, what));
    }

    /// Starts the thread.
    pub fn start(&self, mut context: Context) -> JoinHandle<()> {
        let housekeeping = self.clone();
        thread::Builder::new()
            .name("barid-housekeeping".into())
            .spawn(move || housekeeping.run(&mut context))
            .expect("the operating system has room for a thread")
    }

    /// Lets the thread end.
    pub fn close(&self) {
        self.0.agenda.lock().closed = true;
        self.0.changed.notify_all();
    }

    fn run(&self, context: &mut Context) {
        let shared = Arc::clone(&context.shared);
        let mut sys = Sys::default();
        let mut next_sweep = shared.clock.now().after(SWEEP);
        loop {
            context.worker.now = shared.clock.now();
            let now = context.worker.now;
            while let Some(task) = self.due(now) {
                perform(context, task);
                context.router.flush(&context.worker, &mut Budget::unbounded());
            }
            sys.publish_if_due(context);
            if now >= next_sweep {
                self.forget_void();
                sweep(context);
                next_sweep = now.after(SWEEP);
            }
            context.router.flush(&context.worker, &mut Budget::unbounded());
            // One slice: tasks that come due meanwhile wait for it.
            context.departures.go_on(&mut Budget::new(Instant::now(), 1));
            let wake_at = sys.due().map_or(next_sweep, |due| due.min(next_sweep));
            self.note_after(context);
            let mut agenda = self.0.agenda.lock();
            if agenda.closed {
                return;
            }
            if std::mem::take(&mut agenda.has_durable) {
                continue;
            }
            let wake_at = agenda.tasks.peek().map_or(wake_at, |next| next.at.min(wake_at));
            let wake_at = if context.departures.is_empty() { wake_at } else { now };
            let wait = wake_at.since(shared.clock.now());
            if !wait.is_zero() {
                self.0.changed.wait_for(&mut agenda, wait);
            }
        }
    }

    /// Forgets tasks of clients that have come back, and of sessions that have ended: so many as there
    /// were disconnections since the last time.
    fn forget_void(&self) {
        let tasks = std::mem::take(&mut self.0.agenda.lock().tasks);
        let mut tasks = tasks.into_vec();
        tasks.retain(|scheduled| scheduled.task.may_be_due());
        tasks.shrink_to(tasks.len() * 2);
        self.0.agenda.lock().tasks.append(&mut tasks.into());
    }

    /// The next task whose time has come.
    pub fn due(&self, now: Timestamp) -> Option<Task> {
        let mut agenda = self.0.agenda.lock();
        if agenda.tasks.peek()?.at > now {
            return None;
        }
        agenda.tasks.pop().map(|scheduled| scheduled.task)
    }
}

impl Alarm for Housekeeping {
    fn wake(&self, queue: Weak<Queue>, at: Timestamp) {
        self.schedule_by_wall(at, Task::WakeQueue { queue, at });
    }

    fn move_on(&self, mover: Weak<Mover>) {
        self.schedule(Timestamp::default(), Task::Move(mover));
    }

    fn complete(&self, commits: Commits, mover: Arc<Mover>, done: SmallVec<[LockToken; 8]>) {
        self.after(commits, After::Complete(mover, done));
    }
}

impl Waiter for Inner {
    fn wake(&self) {
        self.agenda.lock().has_durable = true;
        self.changed.notify_one();
    }
}

/// Notes what was to be noted after something that is durable now.
fn note(context: &Context, what: After) {
    match what {
        After::StoreSession(session) => {
            if let Some(session) = SessionRef::upgrade(&session) {
                session.store(&session.state());
            }
        }
        After::ForgetGiven(session, given) => session.forget_given(&given),
        After::ForgetBequest(session, given) => session.forget_bequest(&given),
        After::Complete(mover, done) => mover.complete(&done, context.wall()),
        // The request may have been given up.
        After::Tell(done) => drop(done.send(())),
    }
}

fn perform(context: &mut Context, task: Task) {
    match task {
        Task::Expire { session, epoch } => {
            let Some(session) = SessionRef::upgrade(&session) else { return };
            context.end_absent_session(&session, epoch);
        }
        Task::Note(what) => note(context, what),
        Task::PublishSys(tenant) => sys::publish(context, &tenant),
        Task::SumUpDenials(tenant) => {
            if let Some(tenant) = tenant.upgrade() {
                context.sum_up_denials(&tenant);
            }
        }
        Task::PublishWill { session, epoch } => {
            let Some(session) = SessionRef::upgrade(&session) else { return };
            context.publish_will(&session, epoch);
        }
        Task::Give { session, ended, taken, commits } => {
            context.give_now(&session, ended, taken, commits);
        }
        Task::ExpireKeys { tenant, shard, wall } => {
            let tenant = tenant.upgrade().filter(|tenant| tenant.has_alarm(shard, wall));
            if let Some(tenant) = tenant {
                context.expire_keys(&tenant, shard);
            }
        }
        Task::WakeQueue { queue, at } => {
            if let Some(queue) = queue.upgrade() {
                queue.wake(at, context.wall());
            }
        }
        Task::Move(mover) => {
            if let Some(mover) = mover.upgrade() {
                mover.run(context.wall());
            }
        }
        Task::End { session, done } => {
            let commits = context.end_session(&session, ReasonCode::AdministrativeAction);
            context.shared.housekeeping.after(commits, After::Tell(done));
        }
    }
}

fn sweep(context: &mut Context) {
    context.router.forget_stale();
    let shared = &context.shared;
    shared.request_times.turn(shared.clock.uptime());
    for tenant in context.shared.tenants.all() {
        context.remove_expired_retained(&tenant);
        context.expire_overdue_keys(&tenant);
        if let Some(entities) = tenant.used_entities() {
            entities.wake_overdue(context.wall());
        }
    }
    let shared = &context.shared;
    shared.tenants.remove_unused(shared.clock.wall());
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
