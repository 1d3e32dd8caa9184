//! The cluster: which brokers belong to it, as this one sees them.
//!
//! | file | what is there |
//! | --- | --- |
//! | `differences.rs` | settings and clocks of other brokers that are not as here |
//! | `misplaced.rs` | what is in the data directory and belongs to other brokers |
//! | `moves.rs` | slots that change their broker: what is wanted, and what is known of it |
//! | `proofs.rs` | the secret of the cluster |
//! | `relays.rs` | clients that have their sessions at another broker than the one that they have reached |
//! | `staged.rs` | the records of slots that are about to come, in files |
//! | `stream.rs` | the byte stream of a link |
//! | `view.rs` | the cluster as operators see it |

mod differences;
mod misplaced;
mod moves;
mod proofs;
mod relays;
mod staged;
mod stream;
mod view;

pub use differences::CLOCK_SKEW;
pub use misplaced::warn_of_misplaced;
pub use moves::{Given, Moves, NotMoved, WantedMove, follow_moves, stored};
pub use relays::{Direction, Guest, NoHome, Operator, Relayed, Relays, Reply, Waiting, Wanted};
pub use staged::{Staged, StagedSlots};
pub use stream::LinkStream;
pub use view::{MemberView, Problem, View};

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use barid_core::time::{MonoTime, WallTime};
use barid_engine::cluster::{Cluster, ClusterSize, MemberRef, Owner, Slots, Teller};
use barid_engine::engine::Engine;
use barid_engine::links::{Membership, NewLife, Watcher};
use barid_engine::random::Random;
use barid_engine::replicating::ObjectName;
use barid_peers::{
    CommonSettings, Event, Identity, Members, Object, Placement, Refusal, State, Timing, origin_of,
};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tracing::{error, info, warn};

use crate::settings::{ClusterSettings, WithoutQuorum};
use differences::Differences;
use proofs::Secret;

/// Maximum number of other brokers.
pub const MEMBERS_MAX: usize = 31;

/// Maximum number of connected clients of which a control link has not told yet.
const CONNECTED_MAX: usize = 16_384;

/// Maximum number of changed objects of which a replication link has not told yet. What is beyond is found when the brokers
/// compare what they have.
const CHANGED_MAX: usize = 16_384;

/// The cluster of a broker.
pub struct Clustering {
    /// The name of this broker.
    broker: String,
    pub(crate) membership: Membership,
    pub(crate) secret: Secret,
    /// Whether links use TLS.
    encrypted: bool,
    /// When the certificate of this broker for links expires, if that is known.
    certificate_expires: Mutex<Option<WallTime>>,
    /// Changes when this broker's sessions have subscribed to something new, or nobody has any more.
    pub(crate) news: watch::Sender<()>,
    /// The clients that connect to this broker.
    pub(crate) connected: broadcast::Sender<Arc<Connected>>,
    /// The replicated objects that change at this broker.
    pub(crate) changed: broadcast::Sender<Arc<ObjectName>>,
    /// Changes when this broker begins a new life.
    pub(crate) lives: watch::Sender<u64>,
    /// Which broker has which sessions; `None`: each one those that began there.
    slots: Option<Arc<Slots>>,
    /// Slots that change their broker.
    pub(crate) moves: Moves,
    /// The records of slots that are about to come.
    pub(crate) staged: StagedSlots,
    /// Held while slots come, one at a time.
    pub(crate) adopting: Mutex<()>,
    /// The clients whose sessions are at another broker.
    pub(crate) relays: Relays,
    /// The addresses of other brokers in the configuration.
    peers: Vec<String>,
    /// Why there is no link to an address, for operators.
    problems: Mutex<BTreeMap<String, String>>,
    /// Addresses at which a broker has answered, this one or another.
    tried: Mutex<BTreeSet<String>>,
    /// Number of control links that each broker has opened.
    turns: Mutex<BTreeMap<String, u64>>,
    differences: Differences,
}

impl Clustering {
    /// Creates the cluster of a broker that has no links yet, with `threads` IO threads and so many shards.
    pub fn new(
        settings: &ClusterSettings,
        address: String,
        (threads, shards): (usize, usize),
        (common, incarnation): (CommonSettings, u64),
        (random, data_dir): (Random, &Path),
    ) -> Arc<Self> {
        let placement = settings.placement();
        let me = Identity {
            cluster: settings.name.clone(),
            name: settings.broker.clone(),
            incarnation,
            address,
            software: env!("CARGO_PKG_VERSION").into(),
            placement: placement.as_ref().map_or(0, Placement::fingerprint),
            reference: settings.server_reference.clone().unwrap_or_default(),
        };
        let (news, lives) = (watch::Sender::new(()), watch::Sender::new(incarnation));
        let connected = broadcast::Sender::new(CONNECTED_MAX);
        let changed = broadcast::Sender::new(CHANGED_MAX);
        let teller = Box::new(News {
            subscriptions: news.clone(),
            connected: connected.clone(),
            changed: changed.clone(),
        });
        let origin = origin_of(&settings.broker);
        let size = ClusterSize { members: MEMBERS_MAX, threads, origin };
        // The homes have places from the start, so removals are remembered until they have heard of them.
        let slots = placement.map(|placement| Arc::new(Slots::new(placement, &settings.broker)));
        let engine = Arc::new(Cluster::new(size, shards, random, teller, slots.clone()));
        let mut members = Members::new(me, Timing::default(), MEMBERS_MAX, common)
            .with_homes(settings.homes.iter().cloned());
        if settings.without_quorum == WithoutQuorum::Serve {
            members = members.always_serving();
        }
        Arc::new(Self {
            broker: settings.broker.clone(),
            membership: Membership::new(members, engine),
            secret: Secret::new(settings.secret()),
            encrypted: settings.tls.is_some(),
            certificate_expires: Mutex::default(),
            news,
            connected,
            changed,
            lives,
            slots,
            moves: Moves::default(),
            staged: StagedSlots::of(data_dir),
            adopting: Mutex::default(),
            relays: Relays::default(),
            peers: settings.peers.clone(),
            problems: Mutex::default(),
            tried: Mutex::default(),
            turns: Mutex::default(),
            differences: Differences::default(),
        })
    }

    /// The certificate for links has been read, and expires then; `None`: that cannot be read.
    pub fn note_certificate(&self, expires: Option<WallTime>) {
        *self.certificate_expires.lock() = expires;
    }

    /// Whether the broker may take clients: each address in the configuration was tried, and each broker that was reached has
    /// told its subscriptions. Before that, messages of clients would miss subscribers. From then on it takes them.
    pub fn may_serve(&self, engine: &Engine) -> bool {
        self.change(engine, |_, _, _| {});
        !self.membership.members().is_joining()
    }

    /// Whether others may let the broker take clients soon: not all were tried, or one was reached.
    pub fn is_being_heard(&self) -> bool {
        !self.has_tried_all() || self.membership.members().others().next().is_some()
    }

    /// Whether each address in the configuration has been tried.
    fn has_tried_all(&self) -> bool {
        let (problems, tried) = (self.problems.lock(), self.tried.lock());
        self.peers.iter().all(|peer| tried.contains(peer) || problems.contains_key(peer))
    }

    /// Whether a broker that is up has not yet sent all objects of which it has a later change. Before that, users who were
    /// removed could log in, and subscribers would miss retained messages.
    pub fn is_being_told(&self) -> bool {
        let members = self.membership.members();
        let mut up = members.others().filter(|member| member.state == State::Up);
        up.any(|member| {
            let place = self.place(&member.identity.name);
            place.is_some_and(|place| !self.engine().replicas(place).counts().has_told)
        })
    }

    /// The settings of this broker have changed.
    pub(crate) fn set_settings(&self, settings: CommonSettings) {
        self.membership.members().set_settings(settings);
    }

    /// Which broker has which sessions that outlive their connections; `None`: each one those that began there.
    pub fn slots(&self) -> Option<&Arc<Slots>> {
        self.slots.as_ref()
    }

    /// Returns the name of the broker that has what belongs to a tenant as a whole, if it is not to be used here. If that is
    /// this broker, it is being moved, and nobody can use it.
    pub fn home_elsewhere(&self, tenant: &str) -> Option<Arc<str>> {
        let slots = self.slots.as_ref()?;
        self.elsewhere(slots.owner_of_tenant(tenant))
    }

    /// Returns the name of the broker that has the session of a client, as [`Self::home_elsewhere`] does.
    pub fn session_elsewhere(&self, tenant: &str, client_id: &str) -> Option<Arc<str>> {
        let slots = self.slots.as_ref()?;
        self.elsewhere(slots.owner_of_session(tenant, client_id))
    }

    fn elsewhere(&self, owner: Owner) -> Option<Arc<str>> {
        match owner {
            Owner::Here => None,
            Owner::Closed => Some(self.name().into()),
            Owner::Elsewhere(broker) => Some(broker),
        }
    }

    /// The name of this broker.
    pub fn name(&self) -> &str {
        self.broker.as_str()
    }

    /// Returns the name of the broker at a place.
    pub fn name_of(&self, member: MemberRef) -> Option<String> {
        self.engine().name_of(member)
    }

    /// Whether another broker of this name belongs to the cluster, as far as this one knows.
    pub fn knows(&self, name: &str) -> bool {
        self.membership.members().get(name).is_some()
    }

    /// Returns the names of the other brokers that are neither down nor have left, and whether each is up.
    pub fn in_cluster(&self) -> Vec<(String, bool)> {
        let members = self.membership.members();
        let others = members.others().filter(|member| member.state.is_in_cluster());
        others.map(|one| (one.identity.name.clone(), one.state == State::Up)).collect()
    }

    /// Returns the names of the other brokers that have slots, and are down or have left.
    pub fn with_slots_out(&self) -> Vec<String> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let brokers: BTreeSet<_> =
            (0..slots.count()).map(|slot| slots.place(slot).broker).collect();
        let members = self.membership.members();
        let is_out = |broker: &Arc<str>| {
            **broker != *self.name()
                && !members.get(broker).is_some_and(|member| member.state.is_in_cluster())
        };
        brokers.into_iter().filter(is_out).map(|broker| broker.as_ref().into()).collect()
    }

    /// Returns the address of a broker that is up.
    pub(crate) fn address_of_up(&self, name: &str) -> Option<String> {
        let members = self.membership.members();
        let member = members.get(name).filter(|member| member.state == State::Up)?;
        Some(member.identity.address.clone())
    }

    /// Returns the address at which MQTT clients reach a broker that is up, if it wants them to be told.
    pub(crate) fn server_reference_of_up(&self, name: &str) -> Option<String> {
        let members = self.membership.members();
        let member = members.get(name).filter(|member| member.state == State::Up)?;
        Some(member.identity.reference.clone()).filter(|reference| !reference.is_empty())
    }

    /// What the engine needs of the cluster.
    pub fn engine(&self) -> &Arc<Cluster> {
        self.membership.cluster()
    }

    /// This broker, in its present life.
    pub(crate) fn me(&self) -> Identity {
        self.membership.members().me().clone()
    }

    pub(crate) fn place(&self, name: &str) -> Option<MemberRef> {
        self.engine().place(name)
    }

    /// Whether a broker may have links now.
    pub(crate) fn admits(&self, peer: &Identity) -> Result<(), Refusal> {
        self.membership.members().admits(peer)?;
        let full = || Refusal::Full((MEMBERS_MAX + 1).to_string());
        self.place(&peer.name).map(|_| ()).ok_or_else(full)
    }

    /// Whether an incarnation of a broker is in the cluster.
    pub(crate) fn is_member(&self, peer: &Identity) -> bool {
        self.membership.is_member(peer)
    }

    pub(crate) fn on_hello(&self, engine: &Engine, peer: &Identity) {
        self.change(engine, |members, now, events| members.on_hello(now, peer, events));
    }

    /// Does what is to be done regularly.
    pub(crate) fn tick(&self, engine: &Engine) {
        self.membership.tick(engine, &self.watching(engine));
        self.differences.look(&self.membership.members());
    }

    /// Changes the members, and does what follows from it.
    pub(crate) fn change(
        &self,
        engine: &Engine,
        change: impl FnOnce(&mut Members, MonoTime, &mut Vec<Event>),
    ) {
        self.membership.change(engine, &self.watching(engine), change);
    }

    /// Returns what tells operators, and the links, of changes of the members.
    pub(crate) fn watching<'a>(&'a self, engine: &'a Engine) -> Watching<'a> {
        Watching { clustering: self, engine }
    }

    /// Another broker has opened a control link. Returns a number, which tells it from later ones of the same broker.
    pub(crate) fn takes_turn(&self, name: &str) -> u64 {
        let mut turns = self.turns.lock();
        let turn = turns.entry(name.to_owned()).or_default();
        *turn += 1;
        *turn
    }

    /// Whether a control link is the last one that the broker has opened.
    pub(crate) fn has_turn(&self, name: &str, turn: u64) -> bool {
        self.turns.lock().get(name) == Some(&turn)
    }

    /// Notes why there is no link to an address. Logs it if the reason is another one than before.
    pub(crate) fn note_problem(&self, address: &str, problem: &str) {
        let before = self.problems.lock().insert(address.to_owned(), problem.to_owned());
        if before.as_deref() != Some(problem) {
            warn!(address, "no link to another broker: {problem}");
        }
    }

    pub(crate) fn note_success(&self, address: &str) {
        self.problems.lock().remove(address);
        self.tried.lock().insert(address.to_owned());
    }
}

/// Tells operators, and the links, of changes of the members.
pub struct Watching<'a> {
    clustering: &'a Clustering,
    engine: &'a Engine,
}

impl Watcher for Watching<'_> {
    fn has_tried_all(&self) -> bool {
        self.clustering.has_tried_all()
    }

    fn on_event(&self, event: &Event, given_up: usize) {
        match event {
            Event::Joining(name) => info!(broker = name, "a broker joins the cluster"),
            Event::Up(name) => info!(broker = name, "a broker of the cluster is up"),
            Event::Unreachable(name) => warn!(
                broker = name,
                "a broker of the cluster cannot be reached: messages for its clients wait, up to a limit"
            ),
            Event::Down(name) => warn!(
                broker = name,
                given_up,
                "a broker of the cluster is down: its clients' subscriptions are forgotten, and the messages that \
                 waited for them are given up"
            ),
            Event::Left(name) => info!(broker = name, given_up, "a broker has left the cluster"),
            Event::Condemned(_) | Event::Isolated | Event::Estranged(_) => {}
        }
        if let Some((name, state)) = view::state_after(event) {
            self.engine.tell_member(name, state);
        }
    }

    fn takes_clients(&self) {
        info!("this broker takes clients");
        self.engine.tell_member(self.clustering.name(), view::name(State::Up));
    }

    fn on_new_life(&self, life: &NewLife<'_>) {
        let NewLife { cause, incarnation, disconnected, ended, given_up } = *life;
        let why = match cause {
            Event::Estranged(name) => {
                format!("this broker and {name} cannot reach each other, and others reach both")
            }
            Event::Condemned(name) => {
                format!("{name} holds this broker to be down, or knows of one that may")
            }
            _ => "no more than half of the brokers hear this one".into(),
        };
        error!(
            incarnation,
            disconnected,
            ended,
            given_up,
            "{why}: it has disconnected its clients, ended the sessions that end with their connections, and takes clients \
             when it has joined the cluster again"
        );
        self.engine.tell_member(self.clustering.name(), view::name(State::Joining));
        self.clustering.lives.send_replace(incarnation);
    }
}

/// What happens at this broker, for the control links.
struct News {
    subscriptions: watch::Sender<()>,
    connected: broadcast::Sender<Arc<Connected>>,
    changed: broadcast::Sender<Arc<ObjectName>>,
}

/// A client that has connected to this broker.
#[derive(Debug)]
pub struct Connected {
    /// The tenant.
    pub tenant: Box<str>,
    /// The client identifier.
    pub client_id: Box<str>,
    /// When it connected, in microseconds since the Unix epoch.
    pub at: u64,
    /// Whether it wants a new session.
    pub begins_anew: bool,
}

impl Teller for News {
    fn news_to_tell(&self) {
        self.subscriptions.send_replace(());
    }

    fn object_changed(&self, object: Object<'_>) {
        // Fails if there is no replication link.
        let _ = self.changed.send(Arc::new(object.into()));
    }

    fn client_connected(&self, tenant: &str, client_id: &str, at: u64, begins_anew: bool) {
        // Fails if there is no control link.
        let _ = self.connected.send(Arc::new(Connected {
            tenant: tenant.into(),
            client_id: client_id.into(),
            at,
            begins_anew,
        }));
    }
}

impl std::fmt::Debug for Clustering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clustering").finish_non_exhaustive()
    }
}
