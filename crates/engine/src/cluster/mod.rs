//! The other brokers of the cluster, as far as messages and subscriptions are concerned.
//!
//! What the sessions of this broker have subscribed to is [told](Cluster::tell) to the others, and what their sessions
//! have subscribed to is in an index for each tenant ([`Remote`]), where a publisher's thread finds it. Messages for
//! another broker are put into a [`Link`], and those from another broker arrive at an [`Inbound`]. The bytes in between
//! are those of `barid-peers`; who is connected with whom is the caller's business.
//!
//! | file | what is there |
//! | --- | --- |
//! | `remote.rs` | the other brokers, as one tenant sees them |
//! | `heard.rs` | what another broker has told of its subscriptions |
//! | `link.rs` | messages of one thread to one other broker |
//! | `inbound.rs` | messages of one thread of another broker |
//! | `left.rs` | messages of shared subscriptions for a broker that is down |
//! | `wills.rs` | wills that brokers keep for each other |
//! | `replicas.rs` | what is known of the replicas that another broker has |
//! | `slots.rs` | which broker has the sessions of which clients, and what belongs to which tenant as a whole |
//! | `routes.rs` | the topic filters of other brokers, as operators ask for them |
//! | `holds.rs` | times in which nothing is published, while a slot is moved |

mod heard;
mod holds;
mod inbound;
mod left;
mod link;
mod remote;
mod replicas;
mod routes;
mod slots;
mod usages;
mod wills;

pub use heard::{Forgetting, RemoteSubscriber};
pub use holds::Hold;
pub use inbound::Inbound;
pub use left::{GivenUp, LeftRun, Lost};
pub use link::{Link, LinkCounts};
pub use remote::{MemberRef, Remote};
pub(crate) use remote::{Origin, Sent};
pub use replicas::{ReplicaCounts, Replicas};
pub use routes::{Routes, WantedRoutes};
pub use slots::{Moved, Owner, Slots};
pub use usages::UsagesTold;
pub use wills::{KeptWill, Orphan, WillsTold};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barid_core::ids::ShardIndex;
use barid_core::time::MonoTime;
use barid_core::topic_index::{Route, SubscribeOptions, Subscriber, TopicIndex};
use barid_peers::{Change, Interest, Object, PARTS, Part};
use hashbrown::HashMap;
use mqtt_proto::{QoS, topic};

use crate::durable::Commits;
use crate::progress::Progress;
use crate::random::Random;
use crate::sync::{Mutex, RwLock};
use heard::Heard;
use holds::Holds;
use usages::{Usages, UsedThere};
use wills::{Kept, Wills};

/// The subscriptions of other brokers to topics of one tenant.
type RemoteIndex = TopicIndex<RemoteSubscriber>;

/// Options of a subscription of another broker: that broker applies those of its sessions.
const AS_PUBLISHED: SubscribeOptions = SubscribeOptions {
    qos: QoS::ExactlyOnce,
    no_local: false,
    retain_as_published: true,
    identifier: None,
};

/// By how many microseconds the clock of another broker may be ahead.
const AHEAD_MAX: u64 = 60_000_000;

/// Whoever tells the other brokers what happens here. Each call returns at once.
pub trait Teller: Send + Sync {
    /// There is something new to [tell](Cluster::tell), or a [will](Cluster::tell_wills).
    fn news_to_tell(&self);

    /// An object of which all brokers have replicas has changed.
    fn object_changed(&self, object: Object<'_>);

    /// A client has connected, at a wall time in microseconds since the Unix epoch. `begins_anew`: with Clean Start.
    fn client_connected(&self, tenant: &str, client_id: &str, at: u64, begins_anew: bool);
}

/// The other brokers of the cluster.
pub struct Cluster {
    /// What the sessions of this broker have subscribed to.
    interest: Mutex<Interest>,
    teller: Box<dyn Teller>,
    /// The places of other brokers, which they keep during the life of the process.
    members: Box<[Place]>,
    /// What other brokers have subscribed to, by tenant.
    indexes: RwLock<HashMap<Arc<str>, Arc<RemoteIndex>>>,
    /// The links of each thread to each member.
    links: Box<[Arc<Link>]>,
    threads: usize,
    /// The number of the first source of progress of the cluster.
    first_source: ShardIndex,
    /// Tells stamps of this broker from those of others.
    origin: u64,
    /// Time until which messages may be acknowledged, in milliseconds.
    serves_until: AtomicU64,
    /// Whether the broker takes clients.
    takes_clients: AtomicBool,
    /// Whether it ever has.
    has_joined: AtomicBool,
    /// Which broker has which sessions, and what belongs to which tenant as a whole; `None`: each has its own.
    slots: Option<Arc<Slots>>,
    holds: Holds,
    wills: Wills,
    usages: Usages,
    /// Number of times that messages for other brokers were given up because this one has begun a new life.
    lives: AtomicU64,
    /// The time of the last CONNECT in the cluster, as far as is known here, in microseconds since the Unix epoch.
    last_connect: AtomicU64,
    /// Microseconds by which the fastest wall clock of the cluster is ahead of that of this broker.
    behind: AtomicU64,
    random: Random,
}

/// The broker that has what belongs to a tenant as a whole: its state store, and its entities with their bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Each broker has its own.
    Each,
    /// This broker.
    Here,
    /// This broker, but it is being moved to another one, and takes nothing.
    Closed,
    /// Another one.
    Elsewhere(MemberRef),
}

/// The place of another broker.
#[derive(Default)]
struct Place {
    name: Mutex<Option<Box<str>>>,
    /// What it has told of its subscriptions.
    heard: Heard,
    /// What it has heard of this broker's subscriptions.
    told: Arc<Progress>,
    /// The version up to which `told` has advanced.
    told_version: Mutex<u64>,
    /// Whether it can be reached.
    is_up: AtomicBool,
    /// Whether subscriptions must wait until it has heard of them.
    is_waited_for: AtomicBool,
    /// Whether it was in the cluster, and is not any more.
    is_out: AtomicBool,
    /// Messages from it, by its threads.
    inbound: Mutex<HashMap<u16, Arc<Inbound>>>,
    /// Its replicas.
    replicas: Replicas,
    /// The wills that this broker keeps for it.
    kept: Mutex<Kept>,
    /// What each tenant uses there.
    used: Mutex<UsedThere>,
}

/// The number of other brokers and of threads with links.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSize {
    /// Maximum number of other brokers, at most 64.
    pub members: usize,
    /// Number of threads that have links.
    pub threads: usize,
    /// A number that tells the changes of this broker from those of others.
    pub origin: u64,
}

impl Cluster {
    /// Creates a cluster without other brokers. `shards` is the number of shards of the data directory.
    ///
    /// `slots`: which broker has which sessions, and what belongs to which tenant as a whole; `None`: each one has its
    /// own.
    ///
    /// # Panics
    /// There are more than 64 places for other brokers, or more brokers have slots than there are places.
    pub fn new(
        size: ClusterSize,
        shards: usize,
        random: Random,
        teller: Box<dyn Teller>,
        slots: Option<Arc<Slots>>,
    ) -> Self {
        let ClusterSize { members, threads, origin } = size;
        assert!(members <= 64, "their places are the bits of a number");
        let source = |index: usize| {
            ShardIndex::try_from(shards + index).expect("there are few brokers, shards and threads")
        };
        let link = |index| {
            let member = MemberRef(u8::try_from(index % members).expect("there are few members"));
            Link::new(member, source(members + index))
        };
        let cluster = Self {
            interest: Mutex::default(),
            teller,
            members: (0..members).map(|_| Place::default()).collect(),
            indexes: RwLock::default(),
            links: (0..threads * members).map(link).collect(),
            threads,
            first_source: source(0),
            origin,
            serves_until: AtomicU64::default(),
            takes_clients: AtomicBool::default(),
            has_joined: AtomicBool::default(),
            slots,
            holds: Holds::default(),
            wills: Wills::default(),
            usages: Usages::default(),
            lives: AtomicU64::default(),
            last_connect: AtomicU64::default(),
            behind: AtomicU64::default(),
            random,
        };
        if let Some(slots) = &cluster.slots {
            for home in slots.placement().homes().iter().filter(|home| **home != *slots.me()) {
                cluster.place(home).expect("there is a place for each home");
            }
        }
        cluster
    }

    /// Returns the broker that has what belongs to a tenant as a whole.
    pub fn home_of_tenant(&self, tenant: &str) -> Home {
        let Some(slots) = &self.slots else { return Home::Each };
        match slots.owner_of_tenant(tenant) {
            Owner::Here => Home::Here,
            Owner::Closed => Home::Closed,
            // Without a place, it cannot be reached.
            Owner::Elsewhere(home) => self.place(&home).map_or(Home::Closed, Home::Elsewhere),
        }
    }

    /// Which broker has which sessions, and what belongs to which tenant as a whole; `None`: each has its own.
    pub fn slots(&self) -> Option<&Arc<Slots>> {
        self.slots.as_ref()
    }

    /// Lets nothing be published here before `until`, unless the returned value is dropped before, because a slot is moved.
    pub fn hold(&self, slot: u16, until: MonoTime) -> Hold {
        self.holds.begin(slot, until)
    }

    /// Whether nothing is to be published now, because a slot is being moved.
    #[inline]
    pub fn is_held(&self, now: MonoTime) -> bool {
        self.holds.are_in_force(now)
    }

    /// Whether this slot is being moved, so that nothing may be sent to its sessions.
    pub fn is_held_for(&self, slot: u16, now: MonoTime) -> bool {
        self.holds.are_for(slot, now)
    }

    /// Returns what was sent to other brokers last, over each link.
    pub fn sent(&self) -> Box<[u64]> {
        self.links.iter().map(|link| link.last()).collect()
    }

    /// Whether other brokers that can be reached have acknowledged what was [sent](Self::sent) to them until then.
    pub fn are_done(&self, sent: &[u64]) -> bool {
        let mut links = self.links.iter().zip(sent);
        links.all(|(link, last)| !self.can_be_reached(link.member()) || link.is_drained(*last))
    }

    /// Returns what must be done before all subscriptions that there are now have an effect on all brokers that may
    /// acknowledge messages.
    pub fn all_heard(&self) -> Commits {
        let version = self.interest.lock().version();
        self.heard_up_to(version)
    }

    /// The sources of progress of the cluster, which follow the shards.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Arc<Progress>> {
        let told = self.members.iter().map(|place| Arc::clone(&place.told));
        told.chain(self.links.iter().map(|link| Arc::clone(link.progress())))
    }

    /// Returns the place of a broker. Returns `None` if there are too many.
    pub fn place(&self, name: &str) -> Option<MemberRef> {
        for (index, place) in (0..).zip(&self.members) {
            let mut known = place.name.lock();
            if known.as_deref().is_none_or(|known| known == name) {
                known.get_or_insert_with(|| name.into());
                return Some(MemberRef(index));
            }
        }
        None
    }

    /// Returns the name of the broker at a place.
    pub fn name_of(&self, member: MemberRef) -> Option<String> {
        self.at(member).name.lock().as_deref().map(str::to_owned)
    }

    /// Returns the link of a thread to another broker. Threads that have none of their own use that of another thread.
    pub fn link(&self, thread: usize, member: MemberRef) -> &Arc<Link> {
        &self.links[(thread % self.threads) * self.members.len() + usize::from(member.0)]
    }

    /// Returns where messages from a thread of another broker arrive.
    pub fn inbound(&self, member: MemberRef, thread: u16) -> Arc<Inbound> {
        let mut inbound = self.at(member).inbound.lock();
        Arc::clone(inbound.entry(thread).or_insert_with(|| Inbound::new(member)))
    }

    /// Whether another broker can be reached.
    pub(crate) fn can_be_reached(&self, member: MemberRef) -> bool {
        self.at(member).is_up.load(Ordering::SeqCst)
    }

    /// Whether it will be known of another broker that it has what it is sent now, or that it is down.
    pub fn answers(&self, member: MemberRef) -> bool {
        let place = self.at(member);
        [&place.is_up, &place.is_waited_for].into_iter().any(|it| it.load(Ordering::SeqCst))
    }

    /// Another broker can be reached, or it cannot.
    pub fn set_up(&self, member: MemberRef, is_up: bool) {
        self.at(member).is_up.store(is_up, Ordering::SeqCst);
    }

    /// Whether other brokers use anything for a tenant, as far as they have told.
    pub fn knows_tenant(&self, tenant: &str) -> bool {
        self.members.iter().any(|place| place.used.lock().contains_key(tenant))
    }

    /// Whether another broker was in the cluster, and is not any more.
    pub(crate) fn is_out(&self, member: MemberRef) -> bool {
        self.at(member).is_out.load(Ordering::SeqCst)
    }

    /// Another broker is in the cluster: what is sent to it is not given up.
    pub(crate) fn is_in(&self, member: MemberRef) {
        if self.at(member).is_out.swap(false, Ordering::SeqCst) {
            self.links_to(member).for_each(|link| link.reopen());
        }
    }

    fn links_to(&self, member: MemberRef) -> impl Iterator<Item = &Arc<Link>> {
        self.links.iter().filter(move |link| link.member() == member)
    }

    /// From now on, subscriptions wait until another broker has heard of them, or they do not.
    pub fn set_waited_for(&self, member: MemberRef, is_waited_for: bool) {
        let was = self.at(member).is_waited_for.swap(is_waited_for, Ordering::SeqCst);
        if was && !is_waited_for {
            // Whoever still waits has added a filter before, so it has a version up to this one.
            let version = self.interest.lock().version();
            self.heard_of_us(member, version);
        }
    }

    /// Sets until when messages may be acknowledged, and whether the broker takes clients.
    pub fn set_serves(&self, until: MonoTime, takes_clients: bool) {
        self.serves_until.store(until.as_millis(), Ordering::SeqCst);
        self.takes_clients.store(takes_clients, Ordering::SeqCst);
        self.has_joined.fetch_or(takes_clients, Ordering::SeqCst);
    }

    /// Whether messages may be acknowledged now: subscriptions at other brokers wait until this one has heard of them. `now`
    /// must have been read after the messages were routed.
    pub fn serves(&self, now: MonoTime) -> bool {
        now.as_millis() < self.serves_until.load(Ordering::SeqCst)
    }

    /// Whether the broker takes clients: it has joined the cluster, and was not without the quorum for long.
    pub fn takes_clients(&self) -> bool {
        self.takes_clients.load(Ordering::SeqCst)
    }

    /// Whether the broker has joined the cluster since it was started.
    pub(crate) fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::SeqCst)
    }

    /// Messages that are on their way to other brokers are about to be given up, because this one begins a new life.
    pub(crate) fn begin_life(&self) {
        self.lives.fetch_add(1, Ordering::SeqCst);
    }

    /// Another broker is out of the cluster: its subscriptions do not count any more, and messages for it are given up. Returns
    /// the number of these, those of them for shared subscriptions, which other members may get, and the subscriptions.
    pub fn is_down(&self, member: MemberRef) -> (GivenUp, Option<Forgetting>) {
        self.set_up(member, false);
        self.set_waited_for(member, false);
        self.on_usages(member);
        let place = self.at(member);
        let forgetting = place.heard.clear().then(|| self.forgetting(member));
        let inbound = std::mem::take(&mut *place.inbound.lock());
        inbound.values().for_each(|inbound| inbound.close());
        place.is_out.store(true, Ordering::SeqCst);
        let mut given_up = GivenUp::default();
        for link in self.links_to(member) {
            given_up.runs += link.give_up(|run| given_up.note(&run));
        }
        (given_up, forgetting)
    }

    /// Gives the next part of this broker's subscriptions to another one, which has been told up to `told`. Returns
    /// whether something is left.
    pub fn tell(&self, told: &mut Part, tell: impl FnMut(bool, &str, &str)) -> bool {
        self.interest.lock().tell(told, tell)
    }

    /// Number of distinct topic filters that this broker's sessions have subscribed to.
    pub fn filters(&self) -> usize {
        self.interest.lock().len()
    }

    /// Number of distinct topic filters that another broker has told.
    pub fn filters_of(&self, member: MemberRef) -> usize {
        self.at(member).heard.filters()
    }

    /// Another broker has heard of all subscriptions up to a version.
    pub fn heard_of_us(&self, member: MemberRef, version: u64) {
        let place = self.at(member);
        let mut known = place.told_version.lock();
        if version > *known {
            *known = version;
            place.told.advance(version);
        }
    }

    /// Another broker begins to tell all its subscriptions.
    pub fn on_snapshot(&self, member: MemberRef) {
        self.at(member).heard.begin();
    }

    /// Another broker has told a change of its subscriptions.
    pub fn on_change(&self, member: MemberRef, Change { is_added, tenant, filter }: Change<'_>) {
        let (index, key) = (self.index(tenant), member.key());
        let shared = topic::parse_shared(filter).ok().flatten();
        let heard = &self.at(member).heard;
        match (is_added, shared) {
            (true, Some(shared)) => heard.add(member, |subscriber| {
                index.replace_shared(shared.group, shared.filter, &subscriber, AS_PUBLISHED)
            }),
            (true, None) => {
                heard.add(member, |subscriber| index.replace(filter, &subscriber, AS_PUBLISHED));
            }
            (false, Some(shared)) => {
                heard.remove(|| index.take_shared(shared.group, shared.filter, key, |_| true));
            }
            (false, None) => heard.remove(|| index.take(filter, key, |_| true)),
        }
    }

    /// Another broker has told all its subscriptions. Returns those that are to be removed, if there are any.
    #[must_use]
    pub fn on_told(&self, member: MemberRef) -> Option<Forgetting> {
        self.at(member).heard.end().then(|| self.forgetting(member))
    }

    /// Sets by how many milliseconds the fastest wall clock of the cluster is ahead of that of this broker.
    pub(crate) fn set_behind(&self, millis: u64) {
        self.behind.store(millis.saturating_mul(1_000).min(AHEAD_MAX), Ordering::Relaxed);
    }

    /// Returns the time of a CONNECT at the wall time `wall`, both in microseconds since the Unix epoch. It is that of the
    /// fastest clock of the cluster, as far as heartbeats tell, and later than that of each CONNECT that other brokers have told of.
    pub(crate) fn connect_time(&self, wall: u64) -> u64 {
        let wall = wall + self.behind.load(Ordering::Relaxed);
        let next = |last: u64| wall.max(last + 1);
        let last = self
            .last_connect
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }

    /// A client has connected to another broker, at `at`, of which this one hears at the wall time `wall`.
    pub(crate) fn has_connected(&self, at: u64, wall: u64) {
        self.last_connect.fetch_max(at.min(wall + AHEAD_MAX), Ordering::SeqCst);
    }

    /// A client has connected to this broker, at a wall time in microseconds since the Unix epoch. `begins_anew`: with
    /// Clean Start.
    pub(crate) fn connected(&self, tenant: &str, client_id: &str, at: u64, begins_anew: bool) {
        self.teller.client_connected(tenant, client_id, at, begins_anew);
        self.is_back(tenant, client_id, at);
    }

    /// A number that tells the changes of this broker from those of others.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// An object of which all brokers have replicas has changed here.
    pub(crate) fn changed(&self, object: Object<'_>) {
        self.teller.object_changed(object);
    }

    /// Returns the result of the last comparison with another broker.
    pub fn replicas(&self, member: MemberRef) -> &Replicas {
        &self.at(member).replicas
    }

    /// Returns, for each part of the replicas, the wall time at which it was last the same at all brokers that were ever in
    /// the cluster, in microseconds since the Unix epoch. 0: at one of them it never was, or there is none.
    pub(crate) fn equal_since(&self) -> Box<[u64]> {
        let named = self.members.iter().filter(|place| place.name.lock().is_some());
        let least = named.map(|place| place.replicas.equal_since()).reduce(|mut least, one| {
            least.iter_mut().zip(&one).for_each(|(least, one)| *least = (*least).min(*one));
            least
        });
        least.unwrap_or_else(|| vec![0; PARTS].into())
    }

    /// Returns the brokers that are up.
    fn up(&self) -> impl Iterator<Item = MemberRef> {
        let members = (0..).zip(&self.members);
        let up = members.filter(|(_, place)| place.is_up.load(Ordering::SeqCst));
        up.map(|(index, _)| MemberRef(index))
    }

    /// A session has a subscription with a filter that it did not have before.
    fn subscribed(&self, tenant: &Arc<str>, filter: &str) {
        let (_, is_new) = self.interest.lock().add(tenant, filter);
        if is_new {
            self.teller.news_to_tell();
        }
    }

    /// A session has lost its subscription with this filter.
    fn unsubscribed(&self, tenant: &Arc<str>, filter: &str) {
        if self.interest.lock().remove(tenant, filter) {
            self.teller.news_to_tell();
        }
    }

    /// Returns what must be done before a subscription has an effect on all brokers that may acknowledge messages.
    fn heard_everywhere(&self, tenant: &Arc<str>, filter: &str) -> Commits {
        let Some(version) = self.interest.lock().version_of(tenant, filter) else {
            return Commits::default();
        };
        self.heard_up_to(version)
    }

    /// Returns what must be done before all brokers that may acknowledge messages have heard of the subscriptions up to a
    /// version.
    fn heard_up_to(&self, version: u64) -> Commits {
        let places = (self.first_source..).zip(&self.members);
        let waited_for = places.filter(|(_, place)| place.is_waited_for.load(Ordering::SeqCst));
        waited_for
            .filter(|(_, place)| !place.told.is_done(version))
            .map(|(source, _)| (source, version))
            .collect()
    }

    /// Returns the index of other brokers' subscriptions to topics of a tenant.
    fn index(&self, tenant: &str) -> Arc<RemoteIndex> {
        if let Some(index) = self.indexes.read().get(tenant) {
            return Arc::clone(index);
        }
        let mut indexes = self.indexes.write();
        let new = || Arc::new(TopicIndex::with_seed(self.random.number()));
        Arc::clone(indexes.entry(tenant.into()).or_insert_with(new))
    }

    /// Returns the brokers to which messages of a topic go, from the index of a tenant.
    fn route(&self, index: &RemoteIndex, topic: &str) -> Route<RemoteSubscriber> {
        index.route_of(topic, |subscriber| self.counts(subscriber))
    }

    /// Whether a subscription counts: it has not been removed, and its broker is not down.
    fn counts(&self, subscriber: &RemoteSubscriber) -> bool {
        self.at(subscriber.member).heard.counts(subscriber)
    }

    fn at(&self, member: MemberRef) -> &Place {
        &self.members[usize::from(member.0)]
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Tells nobody.
    pub(crate) struct Silent;

    impl Teller for Silent {
        fn news_to_tell(&self) {}
        fn object_changed(&self, _: Object<'_>) {}
        fn client_connected(&self, _: &str, _: &str, _: u64, _: bool) {}
    }
}
