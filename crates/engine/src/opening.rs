//! Opening of shards, from the contents of their stores to the state of the engine: at the start, and when a shard
//! is opened again.

use std::sync::Arc;
use std::time::Duration;

use barid_core::durable::recovery::Recovered;
use barid_core::durable::{AnsweredIn, Homes, Trace, shard_of};
use barid_core::ids::{SessionNumber, ShardIndex, TenantNumber};
use barid_core::time::MonoTime;
use barid_store::changelog::Changelog;
use hashbrown::HashMap;

use crate::agenda::Task;
use crate::durable::DurableShard;
use crate::engine::Engine;
use crate::recovery::{Contents, Counts, Found};
use crate::session::SessionRef;
use crate::state_requests::watch_expiries;
use crate::tenant::Tenant;

/// Opens all shards, whose contents have been [announced](Contents::announce). Must be called before any client
/// connects. No client may connect before all that is noted here is durable
/// ([`Committing::begin`](crate::durable::Committing::begin)).
pub fn recover(engine: &Engine, contents: impl IntoIterator<Item = Contents>) -> Counts {
    let mut opening = Opening::new(engine);
    for contents in contents {
        let Contents { recovered, found } = contents;
        let traces = opening.install(recovered, &found);
        opening.settle(&traces);
        opening.begin(found);
    }
    // All shards have been read: the other answers are for sessions of other brokers.
    opening.keep_waiting();
    opening.total
}

/// Creates the next tenure of a closed shard, over `log`, or over the store alone. The store is then to be
/// [read](crate::recovery::read), and the shard [opened](open).
pub fn next_tenure(
    engine: &Engine,
    shard: ShardIndex,
    log: Option<Box<dyn Changelog>>,
) -> Arc<DurableShard> {
    engine.shards.successor(shard, log)
}

/// Opens a shard again. Call [`serve`] when all that is noted here is durable. No other shard may be opened or
/// closed before that: whether a trace of a client in one shard is kept depends on whether its session exists in
/// another.
pub fn open(engine: &Engine, contents: Contents) -> Counts {
    let Contents { recovered, mut found } = contents;
    let shard = Arc::clone(&found.of);
    let mut opening = Opening::new(engine);
    opening.resume(shard.index());
    let traces = opening.install(recovered, &found);
    engine.shards.put(Arc::clone(&shard));
    // Tenants that were created meanwhile were named to the previous tenure.
    for tenant in engine.tenants.all() {
        shard.name_tenant(tenant.stored_number(), &tenant.name);
    }
    found.announce(engine);
    opening.settle(&traces);
    opening.keep_waiting();
    opening.begin(found);
    for tenant in &opening.tenants {
        forget_left(tenant, shard.index());
        if let Some(store) = tenant.used_state_store() {
            let lives = |session| opening.sessions.contains_key(&session);
            store.forget_ended(tenant, shard.index(), lives);
        }
        if let Some(entities) = tenant.used_entities() {
            // Those of the earlier tenure that were not found do not exist any more.
            entities.retain(|entity| {
                entity.shard().index() != shard.index() || Arc::ptr_eq(entity.shard(), &shard)
            });
        }
    }
    opening.total
}

/// Puts in force what has come into shards that are open: the contents of a slot.
pub(crate) fn begin_adopted(engine: &Engine, all: Vec<Found>, answered: &[AnsweredIn]) {
    let opening = Opening::new(engine);
    for mut found in all {
        found.announce_rest();
        opening.begin(found);
    }
    for answered in answered {
        opening.recover_answered(answered.tenant, answered);
    }
}

/// Lets a shard that was opened again take new work.
pub fn serve(engine: &Engine, shard: ShardIndex) {
    engine.shards.get(shard).set_open(true);
    engine.agenda.opened();
}

impl Contents {
    /// Makes the contents of a shard visible to all clients, at the start.
    pub fn announce(&mut self, engine: &Engine) {
        self.found.announce(engine);
    }
}

impl Found {
    fn announce(&mut self, engine: &Engine) {
        engine.managed.open(self.of.index(), std::mem::take(&mut self.managed));
        self.announce_rest();
    }

    /// Makes everything but managed objects visible to all clients.
    pub(crate) fn announce_rest(&mut self) {
        for (tenant, found) in self.keys.drain(..) {
            tenant.state_store().open(self.of.index(), found);
        }
        for (tenant, session) in &self.sessions {
            announce_session(tenant, session);
        }
        for (tenant, record) in self.retained.drain(..) {
            tenant.retained.write().set(record);
        }
    }
}

/// Makes a session visible to its client and to publishers.
fn announce_session(tenant: &Tenant, session: &SessionRef) {
    {
        let mut entry = tenant.sessions.entry(&session.client_id);
        let before = entry.get().cloned();
        match before {
            // The session takes the place of the one that has left. The subscriptions of the latter stay until
            // those of the session are there.
            Some(before) if before.has_left() => {
                entry.remove();
                entry.insert(session.clone());
                drop(entry);
                let received = std::mem::take(&mut before.state().received);
                session.state().received = received.reopened();
                announce_subscriptions(tenant, session);
                forget_subscriptions(tenant, &before);
                return;
            }
            Some(_) => return,
            None => entry.insert(session.clone()),
        }
    }
    announce_subscriptions(tenant, session);
}

fn announce_subscriptions(tenant: &Tenant, session: &SessionRef) {
    for subscription in session.state().subscriptions.iter() {
        tenant.subscribe(session, subscription);
    }
}

fn forget_subscriptions(tenant: &Tenant, session: &SessionRef) {
    let subscriptions = std::mem::take(&mut session.state().subscriptions);
    for subscription in subscriptions.into_iter() {
        tenant.unsubscribe(&subscription.filter, session.id);
    }
}

/// Removes the sessions that have left with their shard and were not found when it was opened again: they had
/// ended.
fn forget_left(tenant: &Tenant, shard: ShardIndex) {
    let mut left = Vec::new();
    tenant.sessions.for_each(|session| {
        if session.has_left() && session.durable().is_some_and(|it| it.shard.index() == shard) {
            left.push(session.clone());
        }
    });
    for session in left {
        {
            let mut entry = tenant.sessions.entry(&session.client_id);
            if entry.get().is_some_and(|present| present.id == session.id) {
                entry.remove();
            }
        }
        forget_subscriptions(tenant, &session);
    }
}

/// The opening of shards, one after the other.
struct Opening<'a> {
    engine: &'a Engine,
    homes: Homes,
    /// All tenants, sorted by number.
    tenants: Vec<Arc<Tenant>>,
    /// The stored sessions of all shards that are open.
    sessions: HashMap<SessionNumber, SessionRef>,
    total: Counts,
}

impl<'a> Opening<'a> {
    fn new(engine: &'a Engine) -> Self {
        let mut tenants = engine.tenants.all();
        tenants.sort_unstable_by_key(|tenant| tenant.stored_number());
        let (homes, sessions, total) = Default::default();
        Self { engine, homes, tenants, sessions, total }
    }

    /// Adds the shards that are open already. `opened` is the shard that is about to be opened.
    fn resume(&mut self, opened: ShardIndex) {
        let mut sessions = HashMap::<ShardIndex, Vec<_>>::new();
        for tenant in &self.tenants {
            tenant.sessions.for_each(|session| {
                if let Some(durable) = session.durable().filter(|_| !session.has_left()) {
                    let of_shard = sessions.entry(durable.shard.index()).or_default();
                    of_shard.push((durable.number, durable.tenant));
                    self.sessions.insert(durable.number, session.clone());
                }
            });
        }
        for shard in self.engine.shards.iter().filter(|shard| shard.is_open()) {
            let traces = shard.received_of(opened).into_iter().map(Trace::Received);
            let sessions = sessions.remove(&shard.index()).unwrap_or_default();
            self.homes.resume(shard.index(), sessions, traces);
        }
    }

    /// Installs the contents of a shard. Returns the traces that can be settled, each with whether its session
    /// exists.
    fn install(&mut self, recovered: Recovered, found: &Found) -> Vec<(Trace, bool)> {
        self.total.add(found.counts, found.entities.count());
        let own = found.sessions.iter();
        self.sessions.extend(own.filter_map(|(_, own)| Some((own.stored_number()?, own.clone()))));
        let (mut shard, traces) = self.homes.open(recovered);
        shard.begin_tenure();
        found.of.install(shard);
        for tenant in &self.tenants {
            found.of.name_tenant(tenant.stored_number(), &tenant.name);
        }
        traces
    }

    /// Gives traces to those that they concern, and removes the traces of sessions that do not exist.
    fn settle(&self, traces: &[(Trace, bool)]) {
        let shards = &self.engine.shards;
        for (trace, lives) in traces {
            let (tenant, session) = trace.session();
            shards.get(shard_of(session)).change().skip_number(session);
            match trace {
                _ if !lives => trace.remove(&mut shards.get(trace.shard()).change()),
                Trace::Received(received) => {
                    if let Some(session) = self.sessions.get(&session) {
                        session.state().received.recover(received.packet_id, received.shard);
                    }
                }
                Trace::Answered(answered) => self.recover_answered(tenant, answered),
            }
        }
    }

    /// Keeps the answers noted for sessions of closed shards and of other brokers, because these sessions may exist. The notes of their
    /// QoS 2 messages are asked for when those shards are opened.
    fn keep_waiting(&self) {
        for trace in self.homes.waiting() {
            if let Trace::Answered(answered) = trace {
                self.recover_answered(trace.session().0, answered);
            }
        }
    }

    fn recover_answered(&self, tenant: TenantNumber, answered: &AnsweredIn) {
        let by_number = |known: &Arc<Tenant>| known.stored_number();
        if let Ok(at) = self.tenants.binary_search_by_key(&tenant, by_number) {
            self.tenants[at].state_store().recover_answered(answered);
        }
    }

    /// Starts the sessions, entities and keys of a shard, and removes void retained messages.
    fn begin(&self, found: Found) {
        let Found { of, sessions, void_retained, entities, .. } = found;
        for (tenant, topic) in void_retained {
            of.change().remove_retained(tenant, &topic);
        }
        entities.join();
        let now = self.engine.clock.now();
        sessions.iter().for_each(|(_, session)| resume(self.engine, session, now));
        for tenant in &self.tenants {
            watch_expiries(self.engine, tenant, of.index());
        }
    }
}

/// Restarts the timers of a session: its expiry, and the delay of its will. A client that was connected when its
/// shard was closed, or when the broker ended, counts as disconnected from now on.
fn resume(engine: &Engine, session: &SessionRef, now: MonoTime) {
    let mut state = session.state();
    let was_away = state.away_since.is_some();
    let away_since = *state.away_since.get_or_insert(now);
    // When its client connected last is not stored. Another broker may still tell of a connection that was before that.
    let (wall, cluster) = (engine.clock.wall_micros(), engine.cluster.as_ref());
    state.connected_at = cluster.map_or(wall, |cluster| cluster.connect_time(wall));
    if !was_away {
        session.store(&state);
    }
    let (weak, epoch) = (session.downgrade(), 0);
    if let Some(will) = &state.will {
        let at = away_since.after(Duration::from_secs(will.delay.into()));
        engine.agenda.schedule(at, Task::PublishWill { session: weak.clone(), epoch });
    }
    if let Some(at) = state.expires_at() {
        engine.agenda.schedule(at, Task::Expire { session: weak, epoch });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recovery;

    /// Opens all shards of an engine, as at the start of a broker.
    pub fn opened(engine: Engine) -> Engine {
        let read = |shard| {
            let mut contents = recovery::read(&engine, &shard).unwrap();
            contents.announce(&engine);
            contents
        };
        let contents: Vec<_> = engine.shards.iter().map(read).collect();
        recover(&engine, contents);
        commit(&engine);
        engine
    }

    /// Commits everything that has been noted.
    pub fn commit(engine: &Engine) {
        engine.shards.iter().for_each(|shard| shard.commit_now());
    }
}
