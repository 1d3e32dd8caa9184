//! `/v1/tenants`: the tenants of the broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use barid_engine::tenant::Tenant;
use serde::Serialize;

use super::Served;
use super::answer::{Answer, Refusal};
use super::quotas;

/// One tenant's sizes.
#[derive(Debug, Serialize)]
struct Summary {
    name: Box<str>,
    sessions: usize,
    connections: usize,
    retained_messages: usize,
    quotas: BTreeMap<&'static str, quotas::State>,
}

#[derive(Debug, Serialize)]
pub struct All {
    tenants: Vec<Summary>,
}

pub async fn list(State(served): State<Served>) -> Answer<All> {
    let summary = |tenant: &Arc<Tenant>| Summary {
        name: tenant.name.clone(),
        sessions: tenant.sessions.len(),
        connections: tenant.connections(),
        retained_messages: tenant.retained_by_clients(),
        quotas: quotas::of(tenant),
    };
    Ok(Json(All { tenants: served.shared.engine.tenants.all().iter().map(summary).collect() }))
}

/// Returns the tenant that a path names.
pub fn named(served: &Served, name: &str) -> Result<Arc<Tenant>, Refusal> {
    served.shared.engine.tenants.get(name).ok_or_else(|| {
        Refusal::not_found(format!(
            "no tenant {name:?}: a tenant is created when its first client connects; GET /v1/tenants \
             lists all"
        ))
    })
}
