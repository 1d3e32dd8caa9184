//! The members of the cluster, and what follows when one of them is up, down or back.

use std::sync::Arc;

use barid_core::time::MonoTime;
use barid_peers::{Event, Heartbeat, Identity, Members, State};

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::faults::{Rule, holds};
use crate::sync::{Mutex, MutexGuard};

/// The members of the cluster. The engine hears of each change in the order in which it happens.
pub struct Membership {
    members: Mutex<Members>,
    cluster: Arc<Cluster>,
}

/// Is told what follows from changes of the members. The members are locked during the calls.
pub trait Watcher {
    /// Whether this broker has tried to reach all others that it knows of. Before that it takes no clients.
    fn has_tried_all(&self) -> bool;

    /// Something has happened to another broker. `given_up` is the number of runs for it that were given up.
    fn on_event(&self, event: &Event, given_up: usize);

    /// This broker takes clients from now on.
    fn takes_clients(&self);

    /// This broker has begun a new life.
    fn on_new_life(&self, life: &NewLife<'_>);
}

/// A new life of this broker: the others hold it to be down, or will soon, so they give up what waits for it.
#[derive(Clone, Copy, Debug)]
pub struct NewLife<'a> {
    /// Why it was begun.
    pub cause: &'a Event,
    /// The new incarnation.
    pub incarnation: u64,
    /// Number of MQTT clients that were disconnected.
    pub disconnected: usize,
    /// Number of sessions that were ended, because they end with their connections.
    pub ended: usize,
    /// Number of runs for other brokers that were given up.
    pub given_up: usize,
}

impl Membership {
    /// Creates the membership of a broker that has no links yet.
    pub fn new(members: Members, cluster: Arc<Cluster>) -> Self {
        Self { members: Mutex::new(members), cluster }
    }

    /// The members, locked.
    pub fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock()
    }

    /// What the engine knows of the other brokers.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Does what is to be done regularly.
    pub fn tick(&self, engine: &Engine, watcher: &dyn Watcher) {
        self.cluster.note_usages(|note| {
            engine.tenants.for_each(|tenant| note(&tenant.name, tenant.used()));
        });
        self.change(engine, watcher, |members, now, events| members.on_tick(now, events));
    }

    /// Changes the members, and does what follows from it.
    pub fn change(
        &self,
        engine: &Engine,
        watcher: &dyn Watcher,
        change: impl FnOnce(&mut Members, MonoTime, &mut Vec<Event>),
    ) {
        let mut events = Vec::new();
        let mut members = self.members.lock();
        change(&mut members, engine.clock.now(), &mut events);
        for event in &events {
            match event {
                Event::Joining(_) | Event::Up(_) | Event::Unreachable(_) => {
                    watcher.on_event(event, 0);
                }
                Event::Down(name) | Event::Left(name) => {
                    let place = self.cluster.place(name);
                    let given_up = place.map_or(0, |place| engine.member_is_down(place));
                    let is_in_cluster =
                        |name: &str| members.get(name).is_some_and(|one| one.state.is_in_cluster());
                    if let Some(place) = place {
                        engine.publish_wills_of(place, is_in_cluster);
                    }
                    watcher.on_event(event, given_up);
                }
                Event::Condemned(_) | Event::Isolated | Event::Estranged(_) => {
                    self.begin_anew(engine, &mut members, event, watcher);
                }
            }
        }
        if members.is_joining()
            && watcher.has_tried_all()
            && members.begin_to_serve(engine.clock.now())
        {
            watcher.takes_clients();
        }
        self.tell_standing(engine, &members);
    }

    /// Returns the next heartbeat. What this broker has told of its subscriptions until then must be sent before it: it may let
    /// the other one acknowledge messages.
    pub fn heartbeat(&self, engine: &Engine) -> Heartbeat {
        let mut members = self.members.lock();
        let heartbeat = members.heartbeat(engine.clock.now(), engine.clock.wall());
        self.tell_standing(engine, &members);
        heartbeat
    }

    /// Another broker, of this name or at this address, refuses a link because it holds this one to be down, in this
    /// incarnation.
    pub fn condemned(&self, engine: &Engine, by: &str, incarnation: u64, watcher: &dyn Watcher) {
        let mut members = self.members.lock();
        if members.me().incarnation == incarnation {
            let cause = Event::Condemned(by.to_owned());
            self.begin_anew(engine, &mut members, &cause, watcher);
        }
    }

    /// Whether an incarnation of a broker is in the cluster.
    pub fn is_member(&self, peer: &Identity) -> bool {
        let members = self.members.lock();
        members.get(&peer.name).is_some_and(|member| {
            member.identity.incarnation == peer.incarnation && member.state.is_in_cluster()
        })
    }

    /// Tells the engine which brokers can be reached, for which of them subscriptions wait, and whether this one serves.
    fn tell_standing(&self, engine: &Engine, members: &Members) {
        let now = engine.clock.now();
        for member in members.others() {
            let name = &member.identity.name;
            if let Some(place) = self.cluster.place(name) {
                if member.state.is_in_cluster() {
                    self.cluster.is_in(place);
                }
                self.cluster.set_up(place, member.state == State::Up && member.hears_us);
                self.cluster.set_waited_for(place, members.is_waited_for(now, name));
            }
        }
        self.cluster.set_behind(members.behind());
        self.cluster.set_keepers(members.keepers().filter_map(|name| self.cluster.place(name)));
        self.cluster.set_serves(members.serves_until(now), !members.is_joining());
    }

    /// Ends what the other brokers do not expect to go on. The broker joins them again.
    fn begin_anew(
        &self,
        engine: &Engine,
        members: &mut Members,
        cause: &Event,
        watcher: &dyn Watcher,
    ) {
        let incarnation = (members.me().incarnation + 1).max(engine.clock.wall().as_millis());
        members.begin_anew(incarnation);
        self.tell_standing(engine, members);
        let ends = holds(Rule::EndWhatIsGivenUp);
        // Before messages are given up, so that none of them counts as delivered.
        let disconnected = if ends { engine.disconnect_all() } else { 0 };
        self.cluster.begin_life();
        if members.others().count() > 1 {
            self.cluster.forget_all_kept();
        }
        if holds(Rule::DoubtWhatIsGivenUp) {
            engine.doubt_unacknowledged();
        }
        let mut given_up = 0;
        for member in members.others() {
            let place = self.cluster.place(&member.identity.name);
            given_up += place.map_or(0, |place| engine.member_is_down(place));
        }
        let ended = if ends { engine.end_transient_sessions() } else { 0 };
        watcher.on_new_life(&NewLife { cause, incarnation, disconnected, ended, given_up });
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").finish_non_exhaustive()
    }
}
