//! `/v1/tenants`: the tenants of the broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use barid_engine::managed::ManagedKind;
use barid_engine::session::SessionRef;
use barid_engine::tenant::{Tenant, Tenants};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Served;
use super::access::Requester;
use super::answer::{Answer, Refusal};
use super::history::Rates;
use super::page::cut;
use super::quotas::{self, Which};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// `None`: all tenants.
    limit: Option<usize>,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
}

/// One tenant's sizes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TenantSummary)]
pub struct Summary {
    name: Box<str>,
    sessions: usize,
    connections: usize,
    /// Retained messages that clients have set.
    retained_messages: usize,
    /// Its rates in the last seconds; `None`: it has no history.
    #[schema(value_type = Option<BTreeMap<String, f32>>)]
    rates: Option<Rates>,
    /// Whether operators have given it settings while the broker ran.
    pub has_settings: bool,
    /// Quotas that are in force, by name.
    quotas: BTreeMap<&'static str, quotas::State>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TenantList)]
pub struct All {
    tenants: Vec<Summary>,
    next: Option<Box<str>>,
    /// In a cluster: the brokers whose part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_answered: Option<Vec<String>>,
}

/// Lists the tenants that exist, and those that only have settings.
#[utoipa::path(
    get, path = "/v1/tenants", operation_id = "list_tenants",
    params(Question),
    responses((status = 200, body = All))
)]
pub async fn list(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<All> {
    let Query(Question { limit, after }) = question?;
    if limit == Some(0) {
        return Err(Refusal::bad_request("limit must be at least 1"));
    }
    let engine = &served.shared.engine;
    let mut all: BTreeMap<Box<str>, Option<Arc<Tenant>>> = BTreeMap::new();
    engine.managed.for_each(ManagedKind::Tenant, |name, _| drop(all.insert((**name).into(), None)));
    for tenant in engine.tenants.all() {
        all.insert(tenant.name.clone(), Some(tenant));
    }
    let mut behind: Vec<_> = all.into_iter().collect();
    behind.retain(|(name, _)| {
        by.tenant().is_none_or(|own| own == &**name)
            && after.as_deref().is_none_or(|it| &**name > it)
    });
    let (tenants, next) = cut(behind, limit.unwrap_or(usize::MAX - 1), |(name, _)| (*name).clone());
    let summary = |(name, tenant): (Box<str>, Option<Arc<Tenant>>)| match tenant {
        Some(tenant) => {
            let has_settings = engine.managed.get(ManagedKind::Tenant, &name).is_some();
            let rates = served.history.rates(&name);
            Summary::of((&tenant, &engine.tenants), rates, has_settings, Which::Notable)
        }
        None => Summary::without_state(&name, true),
    };
    let tenants = tenants.into_iter().map(summary).collect();
    Ok(Json(All { tenants, next, not_answered: None }))
}

impl Summary {
    pub fn of(
        (tenant, all): (&Tenant, &Tenants),
        rates: Option<Rates>,
        has_settings: bool,
        which: Which,
    ) -> Self {
        Self {
            name: tenant.name.clone(),
            sessions: tenant.sessions.len(),
            connections: tenant.connections(),
            retained_messages: tenant.retained_by_clients(),
            rates,
            has_settings,
            quotas: quotas::of(tenant, all, which),
        }
    }

    /// Describes a tenant that does not exist at present.
    pub fn without_state(name: &str, has_settings: bool) -> Self {
        let name = name.into();
        let quotas = BTreeMap::new();
        Self {
            name,
            sessions: 0,
            connections: 0,
            retained_messages: 0,
            rates: None,
            has_settings,
            quotas,
        }
    }
}

/// Returns the session of a client that a path names, if this broker has it.
///
/// # Errors
/// There is no such tenant. In a cluster another broker may know it, and this one says only that it does not have the session.
pub fn session_named(
    served: &Served,
    (tenant, client): (&str, &str),
) -> Result<Option<SessionRef>, Refusal> {
    match named(served, tenant) {
        Ok(tenant) => Ok(tenant.sessions.entry(client).get().cloned()),
        Err(_) if served.shared.cluster.is_some() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Returns the tenant that a path names.
pub fn named(served: &Served, name: &str) -> Result<Arc<Tenant>, Refusal> {
    let engine = &served.shared.engine;
    let is_elsewhere = || engine.cluster.as_ref().is_some_and(|it| it.knows_tenant(name));
    let here = engine.tenants.get(name);
    here.or_else(|| is_elsewhere().then(|| engine.tenants.recover(name))).ok_or_else(|| {
        Refusal::not_found(format!(
            "no tenant {name:?}: a tenant is created when its first client connects, or when it gets settings; GET \
             /v1/tenants lists all"
        ))
    })
}
