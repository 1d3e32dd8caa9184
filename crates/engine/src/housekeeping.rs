//! Housekeeping: work that is due at a time and belongs to no connection, such as delayed wills, session
//! expiry, tasks of queues, `$SYS`, and the release of memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use barid_core::time::MonoTime;

use crate::agenda::{After, Agenda, Task, Tell};
use crate::budget::Budget;
use crate::context::Context;
use crate::lifecycle::HELD_AGAIN;
use crate::retaining;
use crate::router::Publisher;
use crate::session::{Session, SessionRef};
use crate::sys::{self, Sys};
use crate::tenant::Tenant;

/// Interval between two sweeps, which remove expired retained messages, overdue keys, stale routes, void
/// tasks and unused tenants, and try again what waits for closed shards.
const SWEEP: Duration = Duration::from_secs(10);

/// The state of the housekeeping thread.
pub struct Housekeeper {
    context: Context,
    sys: Sys,
    next_sweep: MonoTime,
}

impl Housekeeper {
    /// Creates the housekeeper with its context.
    pub fn new(context: Context) -> Self {
        let next_sweep = context.engine.clock.now().after(SWEEP);
        Self { context, sys: Sys::default(), next_sweep }
    }

    /// The agenda whose tasks it carries out.
    pub fn agenda(&self) -> Agenda {
        self.context.engine.agenda.clone()
    }

    /// Carries out everything that is due. Returns the time of the next call at the latest; it is due earlier
    /// if [the agenda](Agenda::wait) says so.
    pub fn act(&mut self) -> MonoTime {
        let Self { context, sys, next_sweep } = self;
        let engine = Arc::clone(&context.engine);
        let (agenda, clock) = (&engine.agenda, engine.clock);
        let _round = engine.rounds.begin(context.worker.id);
        let now = clock.now();
        context.worker.now = now;
        while let Some(task) = agenda.due(now) {
            perform(context, task);
            context.router.flush(&context.worker, &mut Budget::unbounded());
        }
        sys.publish_if_due(context);
        if now >= *next_sweep {
            agenda.forget_void();
            agenda.opened();
            sweep(context);
            *next_sweep = now.after(SWEEP);
        }
        context.router.flush(&context.worker, &mut Budget::unbounded());
        // Limited to one slice, because tasks that become due meanwhile must wait for it.
        context.departures.go_on(&mut Budget::from_now(clock));
        for what in agenda.take_durable() {
            note(context, what);
        }
        if !context.departures.is_empty() {
            return now;
        }
        sys.due().map_or(*next_sweep, |due| due.min(*next_sweep))
    }
}

/// Carries out a follow-up whose commits are durable.
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
        After::Tell(Tell(tell)) => tell(),
    }
}

fn perform(context: &mut Context, task: Task) {
    if publishes(&task) && context.engine.must_not_publish() {
        context.engine.agenda.schedule(context.worker.now.after(HELD_AGAIN), task);
        return;
    }
    match task {
        Task::Expire { session, epoch } => {
            let Some((tenant, session)) = found(context, &session) else { return };
            context.end_absent_session(&tenant, &session, epoch);
        }
        Task::Note(what) => note(context, what),
        Task::Publish { tenant, message, done } => {
            let publisher = Publisher { session: 0, client_id: "", holder: None };
            let commits = context.publish_message(&tenant, publisher, &message.publication());
            context.engine.agenda.after(commits, After::Tell(done));
        }
        Task::EndOld { session, at } => {
            let Some(tenant) = context.tenant_of(&session) else { return };
            context.end_old_session(&tenant, &session, at + 1);
        }
        Task::PublishSys(tenant) => sys::publish(context, &tenant),
        Task::PublishMember { name, state } => sys::publish_member(context, &name, state),
        Task::ShareAgain(run) => context.share_again(*run),
        Task::CountLost(lost) => context.count_lost(&lost),
        Task::PublishOrphans => context.publish_orphans(),
        Task::ForgetFilters(mut forgetting) => {
            let engine = &context.engine;
            if engine.cluster.as_ref().is_some_and(|cluster| cluster.forget(&mut forgetting)) {
                let next = context.worker.now.after(Duration::from_millis(1));
                engine.agenda.schedule(next, Task::ForgetFilters(forgetting));
            }
        }
        Task::SumUpDenials(tenant) => {
            if let Some(tenant) = tenant.upgrade() {
                context.sum_up_denials(&tenant);
            }
        }
        Task::PublishWill { session, epoch } => {
            let Some((tenant, session)) = found(context, &session) else { return };
            context.publish_will(&tenant, &session, epoch);
        }
        Task::PublishLeftWill { session, will } => {
            let Some(tenant) = context.tenant_of(&session) else { return };
            context.publish_left_will(&tenant, &session, will);
        }
        Task::Give { session, ended, taken, commits } => {
            let Some(tenant) = context.tenant_of(&session) else { return };
            context.give_now((&tenant, &session), ended, taken, commits);
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
        Task::End { session, reason, done } => {
            let Some(tenant) = context.tenant_of(&session) else { return };
            let commits = context.end_session(&tenant, &session, reason);
            context.engine.agenda.after(commits, After::Tell(done));
        }
    }
}

/// Whether a task hands messages to sessions, or may have a session leave some to others.
fn publishes(task: &Task) -> bool {
    matches!(
        task,
        Task::Publish { .. }
            | Task::Expire { .. }
            | Task::ShareAgain(_)
            | Task::PublishOrphans
            | Task::PublishWill { .. }
            | Task::PublishLeftWill { .. }
            | Task::Give { .. }
    )
}

/// Returns the session, if it still exists, and its tenant.
fn found(context: &Context, session: &Weak<Session>) -> Option<(Arc<Tenant>, SessionRef)> {
    let session = SessionRef::upgrade(session)?;
    Some((context.tenant_of(&session)?, session))
}

fn sweep(context: &mut Context) {
    context.router.forget_stale();
    let engine = &context.engine;
    engine.request_times.turn(engine.clock.uptime());
    for tenant in context.engine.tenants.all() {
        retaining::remove_expired(&tenant, context.worker.now);
        context.expire_overdue_keys(&tenant);
        tenant.quotas.sweep(context.worker.now);
        if let Some(entities) = tenant.used_entities() {
            entities.wake_overdue(context.wall());
            entities.delete_idle(context.worker.now, context.wall());
        }
    }
    let engine = &context.engine;
    if let Some(cluster) = &engine.cluster {
        cluster.forget_published(engine.clock.now());
    }
    engine.forget_tombstones();
    engine.tenants.remove_unused(engine.clock.now(), engine.clock.wall());
}
