//! Closing of a shard while the others serve. Its state is then in its store only, and it can be opened again.
//!
//! | belongs to the shard | when the shard is closed |
//! | --- | --- |
//! | sessions | clients are disconnected; names and subscriptions stay, so that no message for them is acknowledged |
//! | queues, topics, subscriptions | receivers are told; the names stay, so that nobody takes them for deleted |
//! | keys of the state store | requests are refused; watchers keep watching |
//! | retained messages | they stay in memory, and are not changed |
//! | managed objects: users, settings of tenants, bans, tokens | they stay in memory and in force, and are not changed |
//!
//! Changes that were noted before become durable. Changes that threads note at the end, before they know that the
//! shard closes, are [lost](barid_core::commits::LOST): those that wait for them are told that they have failed.

use std::sync::Arc;
use std::vec;

use barid_core::ids::ShardIndex;

use crate::durable::DurableShard;
use crate::engine::Engine;
use crate::session::SessionRef;
use crate::tenant::Tenant;

/// Closes a shard that is open. Its committer and its loader end when all is written
/// ([`DurableShard::is_closed`]). Returns when no IO thread is in a round that began before the shard was closed.
pub fn close(engine: &Engine, shard: ShardIndex) -> Arc<DurableShard> {
    let mut closing = Closing::begin(engine, shard);
    while closing.step() {}
    closing.end(engine)
}

/// A shard that is being closed: it takes nothing new, and its sessions leave one after the other. Other threads
/// go on meanwhile.
pub struct Closing {
    shard: Arc<DurableShard>,
    tenants: Vec<Arc<Tenant>>,
    sessions: vec::IntoIter<SessionRef>,
}

impl Closing {
    /// Begins to close a shard that is open.
    pub fn begin(engine: &Engine, shard: ShardIndex) -> Self {
        let closed = engine.shards.get(shard);
        closed.set_open(false);
        let tenants = engine.tenants.all();
        let mut sessions = Vec::new();
        for tenant in &tenants {
            tenant.sessions.for_each(|session| {
                if session.durable().is_some_and(|durable| durable.shard.index() == shard) {
                    sessions.push(session.clone());
                }
            });
        }
        Self { shard: closed, tenants, sessions: sessions.into_iter() }
    }

    /// Lets the next session leave. Returns false when all have left.
    pub fn step(&mut self) -> bool {
        let next = self.sessions.next();
        next.is_some_and(|session| {
            session.leave();
            true
        })
    }

    /// Closes all that is left: remaining sessions, the keys of the state store, and the entities.
    pub fn end(self, engine: &Engine) -> Arc<DurableShard> {
        self.sessions.for_each(|session| session.leave());
        for tenant in &self.tenants {
            if let Some(store) = tenant.used_state_store() {
                store.close(self.shard.index());
            }
            if let Some(entities) = tenant.used_entities() {
                entities.leave(self.shard.index());
            }
        }
        self.shard.close();
        engine.rounds.wait();
        self.shard
    }
}
