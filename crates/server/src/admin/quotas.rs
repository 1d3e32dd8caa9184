//! The quotas of a tenant, in `/v1/tenants`.

use std::collections::BTreeMap;
use std::time::Duration;

use barid_core::state_store::Usage;
use barid_engine::limits::Quota;
use barid_engine::names::DEFAULT_TENANT;
use barid_engine::tenant::{Tenant, Tenants};
use serde::Serialize;
use utoipa::ToSchema;

/// A quota: its limit, and what has come of it since the start of the broker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QuotaState)]
pub struct State {
    /// 0: only users with limits of their own have one.
    limit: u64,
    /// How much of it is used; `None` for rates and for limits of each user or client.
    used: Option<u64>,
    /// How often the quota has refused something.
    refused: u64,
    /// Time for which connections had to wait; `None` for quotas that only refuse.
    throttled_seconds: Option<f64>,
}

/// Which quotas of a tenant are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that are optional and set, and all others that have refused or delayed something.
    Notable,
    /// All that are in force, and those that have refused or delayed something.
    All,
}

/// Returns quotas of a tenant, by name.
pub fn of(tenant: &Tenant, tenants: &Tenants, which: Which) -> BTreeMap<&'static str, State> {
    let (limits, totals) = (tenant.limits(), tenant.totals());
    let state = |quota: Quota| {
        let (limit, refused) = (quota.limit(&limits), totals.refused[quota]);
        let throttled = totals.throttled_ms.get(quota as usize).copied();
        let is_told = match limit {
            // Of the broker: what it refuses is counted for the default tenant.
            None => which == Which::All && *tenant.name == *DEFAULT_TENANT,
            Some(limit) if quota.is_optional() => limit > 0,
            Some(_) => which == Which::All,
        };
        let has_counted = refused > 0 || throttled.is_some_and(|millis| millis > 0);
        (is_told || has_counted).then(|| State {
            limit: limit.unwrap_or(tenants.most() as u64),
            used: match quota {
                Quota::MaxTenants => Some(tenants.count() as u64),
                _ => used(tenant, quota),
            },
            refused,
            throttled_seconds: throttled.map(|ms| Duration::from_millis(ms).as_secs_f64()),
        })
    };
    Quota::ALL.into_iter().filter_map(|quota| Some((quota.name(), state(quota)?))).collect()
}

fn used(tenant: &Tenant, quota: Quota) -> Option<u64> {
    let of_keys = |count: fn(&Usage) -> u64| {
        tenant.used_state_store().map_or(0, |store| count(store.usage()))
    };
    let (count, elsewhere) = (|count: usize| count as u64, tenant.quotas.elsewhere());
    Some(match quota {
        // At all brokers, as the limits are.
        Quota::MaxConnections => count(tenant.connections() + elsewhere.connections()),
        Quota::MaxSessions => count(tenant.sessions.len() + elsewhere.sessions()),
        Quota::MaxTenantSubscriptions => count(tenant.subscriptions()),
        Quota::MaxTenantQueuedMessages => count(tenant.queued_messages()),
        Quota::MaxTenantQueuedBytes => count(tenant.queued_bytes()),
        Quota::MaxRetainedMessages => count(tenant.retained_by_clients()),
        Quota::MaxRetainedBytes => count(tenant.retained.read().bytes()),
        Quota::MaxStateKeys => of_keys(Usage::keys),
        Quota::MaxStateBytes => of_keys(Usage::bytes),
        Quota::MaxStateWatchers => of_keys(Usage::watchers),
        Quota::MaxEntities => tenant.used_entities().map_or(0, |entities| count(entities.len())),
        Quota::MaxTenantEntityBytes => {
            tenant.used_entities().map_or(0, |entities| count(entities.bytes()))
        }
        _ => return None,
    })
}
