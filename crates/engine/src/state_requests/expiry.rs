//! Expiry of keys.

use std::sync::Arc;

use barid_core::ids::ShardIndex;
use barid_core::time::WallTime;

use crate::agenda::Task;
use crate::context::Context;
use crate::engine::Engine;
use crate::tenant::Tenant;

impl Context {
    /// Removes the expired keys of one partition, and schedules the next expiry.
    pub fn expire_keys(&mut self, tenant: &Arc<Tenant>, shard: u16) {
        let now = self.engine.clock.wall();
        tenant.state_store().expire(tenant, shard, now, |notices, alarm| {
            self.follow(tenant, &notices, alarm);
        });
    }

    /// Removes keys that have expired earlier than scheduled, because the wall clock was set forward.
    pub fn expire_overdue_keys(&mut self, tenant: &Arc<Tenant>) {
        let Some(store) = tenant.used_state_store() else { return };
        let now = self.engine.clock.wall();
        for shard in tenant.shards.iter() {
            if store.partition(shard.index()).next_expiry().is_some_and(|at| at <= now) {
                self.expire_keys(tenant, shard.index());
            }
        }
    }
}

/// Schedules the removal of expired keys of a shard at a time.
pub(super) fn schedule_expiry(engine: &Engine, tenant: &Arc<Tenant>, shard: u16, at: WallTime) {
    let task = Task::ExpireKeys { tenant: Arc::downgrade(tenant), shard, wall: at };
    engine.agenda.schedule(engine.clock.when(at), task);
}

/// Schedules the removal of the keys that were found in the store of a shard: at their expiry, or at once.
pub fn watch_expiries(engine: &Engine, tenant: &Arc<Tenant>, shard: ShardIndex) {
    let Some(store) = tenant.used_state_store() else { return };
    let alarm = store.partition(shard).take_alarm();
    if let Some(at) = alarm {
        schedule_expiry(engine, tenant, shard, at);
    }
}
