//! The end of connections and sessions: wills, subscriptions, and messages of shared subscriptions that other
//! members get.

use std::sync::Arc;
use std::time::Duration;

use barid_core::drop_reason::DropReason;
use barid_core::ids::StoredAs;
use barid_core::message::{Message, Publication};
use barid_core::session::{Delivery, Waiting};
use barid_core::topic_index::{Member, Members, SharedGroup};
use hashbrown::HashMap;
use mqtt_proto::{QoS, ReasonCode, topic};
use tracing::error;

use crate::agenda::{After, Task};
use crate::cluster::KeptWill;
use crate::context::Context;
use crate::durability::DurabilityClass;
use crate::durable::{Commits, DurableShard, READ_RETRY};
use crate::faults::{IfHolds as _, Rule, holds};
use crate::ids::ConnectionId;
use crate::router::Publisher;
use crate::run::Run;
use crate::session::{Detached, SessionRef, Will};
use crate::tenant::Tenant;

/// Maximum number of members of a shared subscription that are tried for one message. A member is tried in
/// vain only if it goes away between its choice and the hand-over. At the bound, the message is treated as if
/// there were no other member.
const GIVE_ATTEMPTS: usize = 16;

/// Number of wills of another broker's clients that are published before other tasks have their turn.
const ORPHANS: usize = 100;

/// Time after which a task is tried again that would publish while [nothing is published](crate::engine::Engine::is_held).
pub(crate) const HELD_AGAIN: Duration = Duration::from_millis(20);

/// The result of [`Context::retire`]: a session that has ended and whose removal from the store is noted.
pub struct Retired {
    /// When these commits are durable, the session cannot come back.
    pub commits: Commits,
    /// Messages of shared subscriptions that other members are to get.
    given: Vec<Waiting>,
}

impl Context {
    /// Detaches a session from a connection that has ended. `epoch` identifies the attachment to this
    /// connection. `will`: the connection did not end with a proper DISCONNECT, so the Will Message is due.
    pub fn connection_gone(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        connection: ConnectionId,
        epoch: u32,
        will: bool,
    ) {
        // The owner is checked under the lock of the session's state, as in a take-over: what a connection
        // that took over has written there must stay.
        let (epoch, expiry, expires_at, delay) = {
            let mut state = session.state();
            if !session.is_owned_by(connection) {
                return;
            }
            let Detached::Away { epoch } = session.detach(epoch) else { return };
            if !will && let Some(discarded) = state.will.take() {
                self.will_is_over(tenant, session, &discarded);
            }
            state.away_since = Some(self.worker.now);
            session.store(&state);
            let delay = state.will.as_ref().map(|will| will.delay);
            (epoch, state.expiry, state.expires_at(), delay)
        };
        if expiry == 0 {
            self.end_absent_session(tenant, session, epoch);
            return;
        }
        let now = self.worker.now;
        let agenda = &self.engine.agenda;
        if let Some(at) = expires_at {
            agenda.schedule(at, Task::Expire { session: session.downgrade(), epoch });
        }
        match delay {
            None => {}
            Some(0) => self.publish_will(tenant, session, epoch),
            // A session that ends before its will is due publishes it when it ends.
            Some(delay) => {
                let at = now.after(Duration::from_secs(u64::from(delay)));
                agenda.schedule(at, Task::PublishWill { session: session.downgrade(), epoch });
            }
        }
        self.redistribute(tenant, session);
    }

    /// Ends a session whose client has been away since `epoch`. Does nothing if the client has come back.
    pub fn end_absent_session(&mut self, tenant: &Arc<Tenant>, session: &SessionRef, epoch: u32) {
        // The lock of the client identifier prevents the client from coming back in the meantime.
        let ends = {
            let mut entry = tenant.sessions.entry(&session.client_id);
            // A session whose shard is closed does not end: it continues when the shard is open again.
            let ends = session.is_away_since(epoch)
                && !session.has_left()
                && entry.get().is_some_and(|present| present.id == session.id);
            ends && entry.remove().is_some()
        };
        if ends {
            self.end_session(tenant, session, ReasonCode::SessionTakenOver);
        }
    }

    /// Ends a session: disconnects its client, if it has one, with the reason; publishes its will; removes
    /// its subscriptions; gives its messages of shared subscriptions to other members. When the returned
    /// commits are durable, the session cannot come back.
    pub fn end_session(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        reason: ReasonCode,
    ) -> Commits {
        self.end_session_if(tenant, session, reason, || true)
    }

    /// Ends a session whose client has connected to another broker, unless it has connected to this one at `at` or since, in
    /// microseconds since the Unix epoch.
    pub(crate) fn end_old_session(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        at: u64,
    ) -> Commits {
        let is_old = || session.state().connected_at < at;
        self.end_session_if(tenant, session, ReasonCode::SessionTakenOver, is_old)
    }

    fn end_session_if(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        reason: ReasonCode,
        is_meant: impl FnOnce() -> bool,
    ) -> Commits {
        let retired = {
            // Under this lock clients connect.
            let mut entry = tenant.sessions.entry(&session.client_id);
            if session.has_left() {
                return session.lost();
            }
            if !is_meant() {
                return Commits::default();
            }
            if entry.get().is_some_and(|present| present.id == session.id) {
                entry.remove();
            }
            self.retire(tenant, session, reason)
        };
        let Some(retired) = retired else { return Commits::default() };
        let commits = retired.commits.clone();
        self.finish_session(tenant, session, retired);
        commits
    }

    /// Carries out the first half of a session's end: takes the session from its connection and notes its
    /// removal from the store. Returns `None` if the session had ended before.
    ///
    /// The caller holds the lock of the client identifier, because the store identifies the session by it,
    /// and the client's next session must be stored after the removal.
    pub fn retire(
        &mut self,
        tenant: &Tenant,
        session: &SessionRef,
        reason: ReasonCode,
    ) -> Option<Retired> {
        {
            let mut state = session.state();
            if !session.end(&mut state) {
                return None;
            }
            // Packets of the connection that arrive from now on must not take effect.
            session.set_owner(&mut state, ConnectionId::NONE);
        }
        session.close_connection(reason);
        let given = self.take_for_others(tenant, session, true);
        // Messages for other members stay in the store until these members have them. The will stays until it
        // is published.
        let is_bequeathed = given.iter().any(|waiting| waiting.stored().is_some())
            || session.is_giving()
            || session.state().will.is_some();
        session.begin_giving();
        Some(Retired { commits: session.forget(is_bequeathed), given })
    }

    /// Carries out the second half of a session's end, whose effects other clients notice.
    pub fn finish_session(&mut self, tenant: &Arc<Tenant>, session: &SessionRef, retired: Retired) {
        let store = tenant.used_state_store();
        if let Some(store) = store.if_holds(Rule::ForgetAnswersWithSession) {
            store.forget_session(tenant, session.answered_as());
        }
        if tenant.inquirers.had_any() {
            self.forget_inquiries(tenant, session);
        }
        if let Some(number) = session.stored_number() {
            tenant.answered_as.remove(number);
        }
        let subscriptions = std::mem::take(&mut session.state().subscriptions);
        self.departures.begin(tenant, session.id, subscriptions);
        let will = session.state().will.take();
        if let Some(will) = will {
            session.begin_giving();
            self.publish_left_will(tenant, session, will);
        }
        self.give((tenant, session), true, retired.given, Commits::default());
        session.clear(&self.worker);
    }

    /// Publishes a Will Message that its session no longer has. If a recipient's shard is closed, the will is
    /// published when it is open again. The caller has called
    /// [`begin_giving`](crate::session::Session::begin_giving).
    pub fn publish_left_will(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        will: Box<Will>,
    ) {
        if !self.waits(tenant, &will.message) {
            let commits = self.publish_will_message(tenant, session, &will);
            if !commits.are_lost() {
                self.end_giving(session, commits, Vec::new());
                return;
            }
            // A recipient's shard was closed in the meantime. Other recipients get the will twice.
        }
        self.wait_until_open(Task::PublishLeftWill { session: session.clone(), will });
    }

    /// Whether a will must wait: nothing is published now, or the shard of a recipient, or the shard that would store
    /// the will as a retained message, is closed. The recipient would miss the will.
    fn waits(&mut self, tenant: &Arc<Tenant>, will: &Message) -> bool {
        let publication = will.publication();
        let is_closed = |shard: Arc<DurableShard>| !shard.is_open();
        if self.engine.must_not_publish() {
            return true;
        }
        tenant.shards.any_refuses()
            && (self.router.reaches_closed(tenant, publication.topic)
                || publication.retain
                    && is_closed(tenant.shards.of(&tenant.name, publication.topic)))
    }

    fn wait_until_open(&self, task: Task) {
        if self.engine.must_not_publish() {
            self.engine.agenda.schedule(self.worker.now.after(HELD_AGAIN), task);
            return;
        }
        self.engine.agenda.schedule_when_open(task);
        if self.engine.shards.iter().all(|shard| shard.is_open()) {
            // The shards were opened in the meantime, so nothing else would schedule the task.
            self.engine.agenda.opened();
        }
    }

    /// Publishes the Will Message of a session and removes it from the session, if there is one and the
    /// client has been away since `epoch`.
    pub fn publish_will(&mut self, tenant: &Arc<Tenant>, session: &SessionRef, epoch: u32) {
        let will = {
            let state = session.state();
            state.will.clone().filter(|_| session.is_away_since(epoch) && !session.has_left())
        };
        if will.is_some_and(|will| self.waits(tenant, &will.message)) {
            self.wait_until_open(Task::PublishWill { session: session.downgrade(), epoch });
            return;
        }
        let will = {
            let mut state = session.state();
            let is_due = session.is_away_since(epoch) && !session.has_left();
            if is_due { state.will.take() } else { None }
        };
        if let Some(will) = will {
            let commits = self.publish_will_message(tenant, session, &will);
            if commits.are_lost() {
                // A recipient's shard was closed in the meantime. Other recipients get the will twice.
                let mut state = session.state();
                if session.is_away_since(epoch) {
                    state.will = Some(will);
                }
                self.wait_until_open(Task::PublishWill { session: session.downgrade(), epoch });
            } else if session.durable().is_some() {
                // The will is removed from the store only when the messages published from it are durable.
                let after = After::StoreSession(session.downgrade());
                self.engine.agenda.after(commits, after);
            }
        }
    }

    /// Publishes a Will Message of a session. Returns the commits that must be durable before it counts as
    /// published.
    fn publish_will_message(
        &mut self,
        tenant: &Arc<Tenant>,
        session: &SessionRef,
        will: &Will,
    ) -> Commits {
        let holder = session.state().holder().cloned();
        let publisher = Publisher {
            session: session.id,
            client_id: &session.client_id,
            holder: holder.as_ref(),
        };
        let commits = self.publish_as_will(tenant, publisher, (&will.message, will.expiry));
        if !commits.are_lost() {
            self.will_is_over(tenant, session, will);
        }
        commits
    }

    /// Publishes a Will Message with its Message Expiry Interval, in seconds.
    fn publish_as_will(
        &mut self,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        (message, expiry): (&Message, Option<u32>),
    ) -> Commits {
        let life = expiry.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let expires_at = life.map(|life| self.worker.now.after(life));
        let publication = Publication { expires_at, ..message.publication() };
        self.publish_message(tenant, publisher, &publication)
    }

    /// The will of a session has been published or discarded, and no other broker is to keep it.
    pub(crate) fn will_is_over(&self, tenant: &Tenant, session: &SessionRef, will: &Will) {
        if let Some(remote) = &tenant.remote
            && session.durable().is_none()
        {
            remote.will_is_over(&session.client_id, &will.message);
        }
    }

    /// Publishes some of the wills that this broker has kept for others, which are down.
    pub fn publish_orphans(&mut self) {
        let Some(cluster) = self.engine.cluster.clone() else { return };
        let mut waiting = Vec::new();
        let orphans = cluster.take_orphans(ORPHANS);
        if orphans.len() == ORPHANS {
            let later = self.worker.now.after(Duration::from_millis(1));
            self.engine.agenda.schedule(later, Task::PublishOrphans);
        }
        for orphan in orphans {
            let tenant = self.engine.tenants.recover(&orphan.tenant);
            let KeptWill { user, message, expiry, .. } = &orphan.will;
            let is_done = !self.waits(&tenant, message) && {
                let holder = (!user.is_empty()).then(|| tenant.quotas.holder(user));
                let client_id = &orphan.client_id;
                let publisher = Publisher { session: 0, client_id, holder: holder.as_ref() };
                let commits = self.publish_as_will(&tenant, publisher, (message, *expiry));
                !commits.are_lost()
            };
            if !is_done {
                waiting.push(orphan);
            }
        }
        if !waiting.is_empty() {
            cluster.return_orphans(waiting);
            self.wait_until_open(Task::PublishOrphans);
        }
    }

    /// Gives to other members the messages that shared subscriptions sent to a session whose client has gone.
    /// Messages that no other member can take stay in the session.
    fn redistribute(&mut self, tenant: &Tenant, session: &SessionRef) {
        let taken = self.take_for_others(tenant, session, false);
        session.begin_giving();
        self.give((tenant, session), false, taken, Commits::default());
    }

    /// Takes from a session without a client the messages that other members may have.
    fn take_for_others(&self, tenant: &Tenant, session: &SessionRef, ended: bool) -> Vec<Waiting> {
        if !holds(Rule::GiveToOthers) {
            return Vec::new();
        }
        let shares = || session.state().subscriptions.iter().any(|s| topic::is_shared(&s.filter));
        if !ended && !shares() {
            return Vec::new();
        }
        // The other members must be known before the session is locked: two sessions are never locked at
        // once.
        let mut others = Others::of(tenant, session, ended);
        let mut with_others = session.inspect(|outbound, _| outbound.shared());
        // If the session has ended, members whose shards are closed get their messages when these are open.
        with_others.retain(|name| {
            let may_be_away = ended && (others.any_has_left(name) || others.is_elsewhere(name));
            may_be_away || others.member(name).is_some()
        });
        if with_others.is_empty() {
            return Vec::new();
        }
        session.take_shared(|waiting| {
            // A message cannot move between two stores in one commit. With QoS 1 it may be in both for a
            // moment. A stored message of QoS 2 must not be, so it stays.
            let once = waiting.stored().is_some() && waiting.qos() == QoS::ExactlyOnce;
            !once && waiting.shared().is_some_and(|name| with_others.contains(name))
        })
    }

    /// Gives messages that were taken from a session to other members. The records that the session leaves in
    /// the store for this are removed when the other members have the messages durably and `commits` are
    /// durable, too.
    fn give(
        &mut self,
        (tenant, session): (&Tenant, &SessionRef),
        ended: bool,
        taken: Vec<Waiting>,
        commits: Commits,
    ) {
        if taken.iter().any(|waiting| waiting.stored().is_some())
            || !taken.is_empty() && self.engine.must_not_publish()
        {
            // Messages that are in the store only must be read, and no IO thread may wait for the disk.
            let task = Task::Give { session: session.clone(), ended, taken, commits };
            self.engine.agenda.schedule(self.worker.now, task);
            return;
        }
        self.give_now((tenant, session), ended, taken, commits);
    }

    /// Gives messages that were taken from a session to other members, like `give`, but on this thread, which
    /// may wait for the disk. Messages that cannot be read now are given later. Messages that only members in
    /// closed shards could get are given when these shards are open.
    pub fn give_now(
        &mut self,
        (tenant, session): (&Tenant, &SessionRef),
        ended: bool,
        taken: Vec<Waiting>,
        mut commits: Commits,
    ) {
        // The session may have ended since the messages were taken.
        let ended = ended || session.has_ended();
        if session.has_left() {
            // The messages are in the session's shard, and are given when the shard is open again.
            return;
        }
        let (mut given, mut later) = (Vec::new(), Vec::new());
        let mut until_open = false;
        let mut others = Others::of(tenant, session, ended);
        for waiting in taken {
            if !later.is_empty() {
                // A message must not overtake one that cannot be given yet.
                later.push(waiting);
                continue;
            }
            let stored = waiting.stored();
            let delivery = match session.read_back(waiting.clone()) {
                Ok(Some(delivery)) => delivery,
                Ok(None) => {
                    session.dropped(&self.worker, DropReason::StoreUnreadable, None);
                    given.extend(stored);
                    continue;
                }
                Err(error) => {
                    error!(%error, "cannot read back shared messages for other sessions; trying again");
                    later.push(waiting);
                    continue;
                }
            };
            match self.give_to_other(&mut others, &delivery) {
                Some(theirs) => {
                    commits.join(&theirs);
                    given.extend(stored);
                }
                None if ended && waiting.shared().is_some_and(|name| others.any_has_left(name)) => {
                    later.push(waiting);
                    until_open = true;
                }
                None if ended => {
                    let topic = Some(delivery.message.publication().topic);
                    session.dropped(&self.worker, DropReason::SessionEnded, topic);
                    given.extend(stored);
                }
                None => session.restore(waiting),
            }
        }
        let agenda = &self.engine.agenda;
        let commits = commits.if_holds(Rule::ForgetGivenWhenDurable);
        let is_all = later.is_empty();
        if !is_all {
            let (session, commits) = (session.clone(), commits.clone());
            let task = Task::Give { session, ended, taken: later, commits };
            if until_open {
                self.wait_until_open(task);
            } else {
                agenda.schedule(self.worker.now.after(READ_RETRY), task);
            }
        }
        if is_all {
            self.end_giving(session, commits, given);
        } else if !given.is_empty() {
            agenda.after(commits, After::ForgetGiven(session.clone(), given));
        }
    }

    /// Ends a hand-over: when `commits` are durable, other sessions have the messages `given`, and these are
    /// removed from the store. The end of the last hand-over of an ended session removes its whole bequest.
    fn end_giving(&self, session: &SessionRef, mut commits: Commits, given: Vec<StoredAs>) {
        let agenda = &self.engine.agenda;
        if session.end_giving() && session.has_ended() && session.has_bequest() {
            // Earlier messages of the session went to other members, whose shards may not have them durably
            // yet.
            commits.join(&self.engine.shards.last_changes().if_holds(Rule::ForgetGivenWhenDurable));
            agenda.after(commits, After::ForgetBequest(session.clone(), given));
        } else if !given.is_empty() {
            agenda.after(commits, After::ForgetGiven(session.clone(), given));
        }
    }

    /// Gives a message to another member of its shared subscription. Returns the commits that must be durable
    /// before the session forgets the message, or `None` if there is no other member.
    fn give_to_other(&self, others: &mut Others<'_>, delivery: &Delivery) -> Option<Commits> {
        let name = delivery.shared.as_ref()?;
        if others.goes_elsewhere(name) {
            let elsewhere = others.tenant.remote.as_ref()?;
            let publication = delivery.message.publication();
            let class = DurabilityClass::Memory;
            let (mut run, mut buffer) = Run::of(&publication, class, self.worker.now);
            let mut messages = run.in_buffer(&mut buffer, self.worker.now);
            if elsewhere.give((&self.worker, self.engine.shards.sources()), name, &mut messages, 0)
            {
                return Some(run.into_commits());
            }
        }
        // Members come and go in the meantime. A member that has just gone is not found again.
        for _ in 0..GIVE_ATTEMPTS {
            let member = others.member(name)?;
            let delivery = Delivery {
                qos: delivery.message.qos().min(member.options.qos),
                identifiers: member.options.identifier.into_iter().collect(),
                ..delivery.clone()
            };
            if let Some(commits) = member.subscriber.enqueue(&self.worker, delivery) {
                member.subscriber.flush(&self.worker);
                return Some(commits);
            }
        }
        None
    }
}

/// The other members of the shared subscriptions of a session: they may get its messages.
struct Others<'a> {
    tenant: &'a Tenant,
    session: &'a SessionRef,
    /// Whether the session has ended. Then others may get its messages even if they are offline.
    ended: bool,
    /// The groups of each filter that was asked for, by name. One filter may have ten thousand groups, so all
    /// of them are looked up together.
    groups: HashMap<String, HashMap<Box<str>, Arc<SharedGroup<SessionRef>>>>,
}

impl<'a> Others<'a> {
    fn of(tenant: &'a Tenant, session: &'a SessionRef, ended: bool) -> Self {
        Self { tenant, session, ended, groups: HashMap::new() }
    }

    /// Returns another member of the shared subscription of this name: the least busy one that is connected.
    /// If none is connected and the session has ended, returns any other member.
    fn member(&mut self, name: &str) -> Option<Member<SessionRef>> {
        let group = self.group(name)?;
        let here = || self.others(&group).filter(|member| !member.subscriber.has_left());
        here()
            .filter(|member| member.subscriber.is_online())
            .min_by_key(|member| member.subscriber.inspect(|outbound, _| outbound.depth()))
            .or_else(|| self.ended.then(|| here().next()).flatten())
            .cloned()
    }

    /// Whether a message of the session, which has ended, is for a member at another broker: the shared subscription has
    /// members there, and none that is connected here.
    fn goes_elsewhere(&mut self, name: &str) -> bool {
        self.ended
            && self.is_elsewhere(name)
            && self.member(name).is_none_or(|member| !member.subscriber.is_online())
    }

    /// Whether the shared subscription of this name has members at other brokers.
    fn is_elsewhere(&self, name: &str) -> bool {
        let Some(remote) = &self.tenant.remote else { return false };
        let Ok(Some(shared)) = topic::parse_shared(name) else { return false };
        remote.shares(&a_topic_of(shared.filter), name)
    }

    /// Whether the shared subscription of this name has another member whose shard is closed. That member can
    /// get messages when its shard is open.
    fn any_has_left(&mut self, name: &str) -> bool {
        let group = self.group(name);
        group.is_some_and(|group| self.others(&group).any(|other| other.subscriber.has_left()))
    }

    /// Returns the members of the shared subscription of this name.
    fn group(&mut self, name: &str) -> Option<Members<SessionRef>> {
        let shared = topic::parse_shared(name).ok().flatten()?;
        let tenant = self.tenant;
        let groups = self.groups.entry_ref(shared.filter);
        let groups = groups.or_insert_with(|| groups_of(tenant, shared.filter));
        Some(groups.get(shared.group)?.members())
    }

    fn others<'g>(
        &self,
        group: &'g Members<SessionRef>,
    ) -> impl Iterator<Item = &'g Member<SessionRef>> {
        let own = self.session.id;
        let others = group.iter().filter(move |member| member.subscriber.id != own);
        others.filter(|member| !member.subscriber.has_ended())
    }
}

/// Returns the shared subscriptions to a filter, by name.
fn groups_of(tenant: &Tenant, filter: &str) -> HashMap<Box<str>, Arc<SharedGroup<SessionRef>>> {
    let route = tenant.index.route(&a_topic_of(filter));
    let groups = route.groups().iter().filter(|group| group.filter() == filter);
    groups.map(|group| (group.name().into(), Arc::clone(group))).collect()
}

/// Returns a topic that a filter matches, and so one that has all shared subscriptions to the filter in its route: the
/// filter itself, with `+` for `#`.
fn a_topic_of(filter: &str) -> String {
    let levels = filter.split('/').map(|level| if level == "#" { "+" } else { level });
    levels.collect::<Vec<_>>().join("/")
}
