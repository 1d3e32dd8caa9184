//! A shard is closed while the others serve: what it has is in its store only then, and it can be opened again.
//!
//! | of what belongs to it | becomes |
//! | --- | --- |
//! | sessions | their clients are disconnected; name and subscriptions stay, so that nothing for them is acknowledged |
//! | queues, topics, subscriptions | receivers are told; the name stays, so that nobody takes them for deleted |
//! | keys of the state store | requests are refused; who watches goes on |
//! | retained messages | they stay in memory, and are not changed |
//!
//! What has been noted becomes durable. What is noted in the end, by those who have not heard of it, is
//! [lost](barid_core::commits::LOST): whoever waits for it is told that it has failed.

use std::sync::Arc;

use barid_core::ids::ShardIndex;

use crate::durable::DurableShard;
use crate::engine::Engine;
use crate::tenant::Tenant;

/// Closes a shard that is open. Its committer and its loader end when all is written ([`DurableShard::is_closed`]).
pub fn close(engine: &Engine, shard: ShardIndex) -> Arc<DurableShard> {
    let closed = engine.shards.get(shard);
    closed.set_open(false);
    for tenant in engine.tenants.all() {
        leave(&tenant, shard);
    }
    closed.close();
    closed
}

fn leave(tenant: &Tenant, shard: ShardIndex) {
    let mut sessions = Vec::new();
    tenant.sessions.for_each(|session| {
        if session.durable().is_some_and(|durable| durable.shard.index() == shard) {
            sessions.push(session.clone());
        }
    });
    sessions.iter().for_each(|session| session.leave());
    if let Some(store) = tenant.used_state_store() {
        store.close(shard);
    }
    if let Some(entities) = tenant.used_entities() {
        entities.leave(shard);
    }
}
