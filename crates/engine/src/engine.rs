//! The engine: the tenants, agenda, shards and clock that all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use barid_core::message::Message;
use barid_peers::Object;
use mqtt_proto::ReasonCode;

use crate::agenda::{Agenda, Task, Tell};
use crate::clock::Clock;
use crate::cluster::{Cluster, Forgetting, GivenUp, Home, MemberRef};
use crate::denials::AllLines;
use crate::durable::{Commits, Shards, Storage};
use crate::entities::{Alarm, Definitions, EntityError};
use crate::events::{Event, Events};
use crate::managed::Managed;
use crate::queued::Full;
use crate::random::Random;
use crate::replicated::{OnChange, Replicated};
use crate::rounds::Rounds;
use crate::session::SessionRef;
use crate::state_store::RequestTimes;
use crate::tenant::{SettingsOf, Tenant, Tenants};

/// The state that all threads share, except for connections and other parts of the server.
pub struct Engine {
    /// The clock.
    pub clock: Clock,
    /// The source of random numbers.
    pub random: Random,
    /// The tenants.
    pub tenants: Tenants,
    /// The objects of which all brokers of the cluster have replicas.
    pub replicated: Arc<Replicated>,
    /// The users, settings of tenants, bans and tokens that operators change while the broker runs.
    pub managed: Arc<Managed>,
    /// The tasks for the housekeeping thread.
    pub agenda: Agenda,
    /// The agenda, in the form that entities use.
    pub alarm: Arc<dyn Alarm>,
    /// Latency of requests to the state store.
    pub request_times: Arc<RequestTimes>,
    /// The bound on log lines about denials, for all tenants together.
    pub denial_lines: AllLines,
    /// The shards of the data directory.
    pub shards: Arc<Shards>,
    /// The rounds of the IO threads.
    pub rounds: Rounds,
    /// The other brokers; `None`: there is no cluster.
    pub cluster: Option<Arc<Cluster>>,
    /// Those who are told what happens.
    pub events: Arc<Events>,
    sys_interval: AtomicU32,
    session_ids: AtomicU64,
}

/// The settings of the engine that a reload may change.
#[derive(Clone)]
pub struct EngineSettings {
    /// Maximum number of tenants up to which clients may create new ones.
    pub max_tenants: usize,
    /// Returns the settings of a tenant.
    pub settings_of: SettingsOf,
    /// Seconds between two publications of the `$SYS` topics; 0: there are none.
    pub sys_interval: u32,
}

impl Engine {
    /// Creates an engine over this storage. `counting` is the number of threads that have counters of their
    /// own. `queue_memory` is the memory for stored messages that wait in queues, in bytes.
    pub fn new(
        settings: EngineSettings,
        sizes: (usize, usize),
        storage: Storage,
        clock: Clock,
        random: Random,
    ) -> Self {
        Self::in_cluster(settings, sizes, storage, (clock, random), None)
    }

    /// [`Self::new`], for a broker of a cluster.
    pub fn in_cluster(
        settings: EngineSettings,
        (counting, queue_memory): (usize, usize),
        storage: Storage,
        (clock, random): (Clock, Random),
        cluster: Option<Arc<Cluster>>,
    ) -> Self {
        let EngineSettings { max_tenants, settings_of, sys_interval } = settings;
        let others: Vec<_> = cluster.iter().flat_map(|cluster| cluster.sources()).collect();
        let shards = Arc::new(Shards::among(storage, queue_memory, others));
        let sources = shards.sources().clone();
        let agenda = Agenda::new(clock, sources.clone());
        let tell = |cluster: &Arc<Cluster>| {
            let cluster = Arc::clone(cluster);
            Box::new(move |object: Object<'_>| cluster.changed(object)) as OnChange
        };
        let origin = cluster.as_ref().map_or(0, |cluster| cluster.origin());
        let replicated = Replicated::new(clock, origin, cluster.as_ref().map(tell));
        let managed = Arc::new(Managed::new(Arc::clone(&shards), Arc::clone(&replicated)));
        let events = Arc::new(Events::default());
        let heard = Arc::clone(&events);
        managed.on_change(move |kind, name| heard.tell(&Event::Changed { kind, name }));
        Self {
            events,
            clock,
            random,
            tenants: Tenants::new(
                counting,
                max_tenants,
                settings_of,
                random,
                Arc::clone(&shards),
                cluster.clone().map(|cluster| (cluster, Arc::clone(&replicated))),
            ),
            replicated,
            cluster,
            managed,
            shards,
            alarm: Arc::new(agenda.clone()),
            agenda,
            request_times: RequestTimes::new(clock, sources),
            rounds: Rounds::new(counting),
            denial_lines: AllLines::default(),
            sys_interval: AtomicU32::new(sys_interval),
            session_ids: AtomicU64::new(1),
        }
    }

    /// Returns a new session id, unique in the process.
    pub(crate) fn next_session_id(&self) -> u64 {
        self.session_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Seconds between two publications of the `$SYS` topics; 0: there are none.
    pub fn sys_interval(&self) -> u32 {
        self.sys_interval.load(Ordering::Relaxed)
    }

    /// Returns the broker that has the state store of a tenant, and its entities with their bindings.
    pub fn home_of_tenant(&self, tenant: &str) -> Home {
        self.cluster.as_ref().map_or(Home::Each, |cluster| cluster.home_of_tenant(tenant))
    }

    /// Whether wills and what sessions leave must wait: a slot of the cluster is being moved, or this broker has just been
    /// started and does not know yet what has been subscribed to at others.
    pub(crate) fn must_not_publish(&self) -> bool {
        self.is_held() || self.cluster.as_ref().is_some_and(|cluster| !cluster.has_joined())
    }

    /// Whether nothing is to be published now, because a slot of the cluster is being moved.
    pub fn is_held(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.is_held(self.clock.now()))
    }

    /// Waits until each IO thread, and each other thread that publishes, has ended the round in which it is.
    pub fn wait_for_rounds(&self) {
        self.rounds.wait();
    }

    /// Declares the queues and topics of each tenant that has its entities here.
    ///
    /// # Errors
    /// The first that cannot be declared, with the name of its tenant.
    pub fn declare(
        &self,
        definitions: impl IntoIterator<Item = (String, Definitions)>,
    ) -> Result<(), (String, EntityError)> {
        for (tenant, definitions) in definitions {
            if !matches!(self.home_of_tenant(&tenant), Home::Each | Home::Here) {
                continue;
            }
            // `max_tenants` limits only tenants that clients create, not those in the configuration.
            let found = self.tenants.recover(&tenant);
            let entities = found.entities(&self.alarm);
            entities
                .declare(&definitions, &mut Commits::default())
                .map_err(|error| (tenant, error))?;
        }
        Ok(())
    }

    /// Tells the state of another broker of the cluster, also below `$SYS`.
    pub fn tell_member(&self, name: &str, state: &'static str) {
        self.events.tell(&Event::Member { broker: name, state });
        let task = Task::PublishMember { name: name.into(), state };
        self.agenda.schedule(self.clock.now(), task);
    }

    /// Another broker is out of the cluster. Returns the number of runs for it that were given up; other members of shared
    /// subscriptions get theirs.
    pub fn member_is_down(&self, member: MemberRef) -> usize {
        let Some(cluster) = &self.cluster else { return 0 };
        let now = self.clock.now();
        let (GivenUp { runs, left, lost }, forgetting) = cluster.is_down(member);
        // Behind that: requests, and watches that come with a slot, find from now on that the broker is out of the cluster.
        for tenant in self.tenants.all() {
            let is_moving =
                || tenant.remote.as_ref().is_some_and(|remote| remote.holds_for_move(now));
            let is_asked = match tenant.home() {
                Home::Elsewhere(home) => home == member || is_moving(),
                _ => false,
            };
            if is_asked {
                // If the state store is on its way to the broker that is down, its watches are gone, too.
                tenant.inquirers.disconnect();
            } else {
                // The state store may have been there until now.
                tenant.inquirers.disconnect_unanswered(member.place());
            }
            if let Some(store) = tenant.used_state_store() {
                store.forget_guests(&tenant, member);
            }
        }
        self.look_for_room();
        self.forget_filters(forgetting);
        for run in left {
            self.agenda.schedule(self.clock.now(), Task::ShareAgain(Box::new(run)));
        }
        if !lost.is_empty() {
            self.agenda.schedule(self.clock.now(), Task::CountLost(lost));
        }
        runs
    }

    /// Checks the full queues of all tenants: they use less at another broker.
    pub(crate) fn look_for_room(&self) {
        // Without the lock of the tenants, since publishers go on.
        self.tenants.all().iter().for_each(|tenant| tenant.queued.look_for_room(None));
    }

    /// Removes subscriptions of another broker that do not count any more, in steps.
    pub fn forget_filters(&self, forgetting: Option<Forgetting>) {
        if let Some(forgetting) = forgetting {
            self.agenda.schedule(self.clock.now(), Task::ForgetFilters(Box::new(forgetting)));
        }
    }

    /// Publishes the wills that this broker keeps for the clients of another one, which is out of the cluster, as far as it is
    /// the one to do it. `is_in_cluster` tells whether a broker of a name can do it.
    pub fn publish_wills_of(&self, member: MemberRef, is_in_cluster: impl Fn(&str) -> bool) {
        let Some(cluster) = &self.cluster else { return };
        let now = self.clock.now();
        if cluster.is_orphaned(member, now, is_in_cluster) {
            self.agenda.schedule(now, Task::PublishOrphans);
        }
    }

    /// A client has connected to another broker, at a wall time in microseconds since the Unix epoch. If it connected here
    /// before that, this connection ends, and with `begins_anew` (Clean Start) also its session. `wins` decides between
    /// connections of the same time: whether that of the other broker stays.
    pub fn connected_elsewhere(
        &self,
        (tenant, client_id): (&str, &str),
        at: u64,
        begins_anew: bool,
        wins: bool,
    ) {
        let Some(tenant) = self.tenants.get(tenant) else { return };
        let Some(session) = tenant.sessions.entry(client_id).get().cloned() else { return };
        let (here, expiry) = {
            let state = session.state();
            (state.connected_at, state.expiry)
        };
        if here > at || (here == at && !wins) {
            return;
        }
        // A session that belongs to a slot ends when its home is asked for that, which the other broker does before CONNACK. Claims may
        // come later, and clocks may disagree on which connection is the older one.
        let has_home = expiry > 0 && self.cluster.as_ref().is_some_and(|it| it.slots().is_some());
        if (begins_anew && !has_home) || (expiry == 0 && session.is_online()) {
            self.agenda.schedule(self.clock.now(), Task::EndOld { session, at });
        } else {
            session.close_connection(ReasonCode::SessionTakenOver);
        }
    }

    /// Disconnects all MQTT clients at once: no acknowledgement that waits is sent any more. Sessions stay. Returns their number.
    pub fn disconnect_all(&self) -> usize {
        let mut disconnected = 0;
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| {
                if session.is_online() {
                    session.close_connection(ReasonCode::ServerBusy);
                    disconnected += 1;
                }
            });
        }
        disconnected
    }

    /// This broker is about to give up its messages for other brokers. Those of QoS 2 that are not acknowledged are handed on
    /// once more when their publishers repeat them.
    pub(crate) fn doubt_unacknowledged(&self) {
        let sources = self.shards.sources();
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| {
                let mut state = session.state();
                if state.owed.as_ref().is_some_and(|owed| !sources.are_done(owed)) {
                    state.received.doubt();
                }
            });
        }
    }

    /// Ends all sessions that are not stored: their clients are disconnected, and have to begin anew. Returns their
    /// number.
    pub fn end_transient_sessions(&self) -> usize {
        let mut ended = Vec::new();
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| {
                if session.durable().is_none() {
                    ended.push(session.clone());
                }
            });
        }
        let count = ended.len();
        for session in ended {
            self.end(session, ReasonCode::ServerBusy);
        }
        count
    }

    /// Publishes a message of an operator, for which the rates of the tenant do not count. `done` is called when it is
    /// durable where it has to be.
    pub fn publish(&self, tenant: &Arc<Tenant>, message: Arc<Message>, done: Tell) {
        let task = Task::Publish { tenant: Arc::clone(tenant), message, done };
        self.agenda.schedule(self.clock.now(), task);
    }

    /// Has the housekeeping thread end a session.
    fn end(&self, session: SessionRef, reason: ReasonCode) {
        let done = Tell(Box::new(|| ()));
        self.agenda.schedule(self.clock.now(), Task::End { session, reason, done });
    }

    /// Gives a tenant the settings that it has now according to the function in [`EngineSettings`].
    pub fn refresh(&self, tenant: &str) {
        let Some((tenant, wakes)) = self.tenants.refresh(self.clock.now(), tenant) else {
            return;
        };
        // Under the new limits, queues that were full may have room.
        tenant.sessions.for_each(|session| session.look_for_room());
        if wakes {
            wake_waiting(&tenant);
        }
    }

    /// Applies new settings, also to existing tenants.
    pub fn apply(&self, settings: EngineSettings) {
        self.sys_interval.store(settings.sys_interval, Ordering::Relaxed);
        let changed =
            self.tenants.set(self.clock.now(), settings.max_tenants, settings.settings_of);
        // Under the new limits, queues that were full may have room.
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| session.look_for_room());
        }
        // Under the new limits, connections that wait may go on, and others have to wait.
        for tenant in changed {
            wake_waiting(&tenant);
        }
    }
}

/// Wakes the connections of a tenant, which find new limits.
fn wake_waiting(tenant: &Tenant) {
    tenant.sessions.for_each(|session| session.wake_owner());
    tenant.amqp_clients.wake_all();
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
