//! Queues, topics, subscriptions, rules and bindings: their descriptions, their contents, and changes to
//! them.
//!
//! A change is answered when it is durable.

mod bindings;
mod described;
mod message;
mod messages;
mod queues;
mod received;
mod rules;
mod sent;
mod sessions;
mod subscriptions;
mod topics;

use std::sync::Arc;

use axum::Router;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::routing::{get, post};
use barid_engine::bindings::BindingsError;
use barid_engine::entities::{Entities, EntityError};
use barid_engine::names::check_tenant_name;
use barid_engine::tenant::Tenant;
use serde::Deserialize;

use super::answer::Refusal;
use super::page::{LIMIT_MAX, check_limit, cut};
use super::{Served, tenants};
pub(super) use described::name_of;
pub(super) use subscriptions::{definition, find as subscription_of};

/// Returns the routes below `/v1/tenants/{tenant}`.
pub fn routes() -> Router<Served> {
    let queue = get(queues::show).put(queues::put).patch(queues::patch).delete(queues::delete);
    let topic = get(topics::show).put(topics::put).patch(topics::patch).delete(topics::delete);
    let subscription = get(subscriptions::show)
        .put(subscriptions::put)
        .patch(subscriptions::patch)
        .delete(subscriptions::delete);
    let subscriptions = Router::new()
        .route("/", get(subscriptions::list))
        .route("/{subscription}", subscription)
        .route(
            "/{subscription}/messages",
            get(subscriptions::messages).delete(subscriptions::purge),
        )
        .route("/{subscription}/messages/receive", post(subscriptions::receive))
        .route("/{subscription}/messages/resubmit", post(subscriptions::resubmit))
        .route("/{subscription}/sessions", get(subscriptions::sessions))
        .route("/{subscription}/rules", get(rules::list))
        .route(
            "/{subscription}/rules/{rule}",
            get(rules::show).put(rules::put).delete(rules::delete),
        );
    Router::new()
        .route("/bindings", get(bindings::list))
        .route(
            "/bindings/{binding}",
            get(bindings::show).put(bindings::put).delete(bindings::delete),
        )
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", queue)
        .route(
            "/queues/{queue}/messages",
            get(queues::messages).post(queues::send).delete(queues::purge),
        )
        .route("/queues/{queue}/messages/receive", post(queues::receive))
        .route("/queues/{queue}/messages/resubmit", post(queues::resubmit))
        .route("/queues/{queue}/sessions", get(queues::sessions))
        .route("/topics", get(topics::list))
        .route("/topics/{topic}", topic)
        .route("/topics/{topic}/messages", post(topics::send))
        .nest("/topics/{topic}/subscriptions", subscriptions)
}

/// The page of a list that a request asks for.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paging {
    limit: usize,
    after: Option<String>,
}

impl Default for Paging {
    fn default() -> Self {
        Self { limit: 100, after: None }
    }
}

impl Paging {
    fn of(question: Result<Query<Self>, QueryRejection>) -> Result<Self, Refusal> {
        let Query(paging) = question?;
        check_limit(paging.limit, LIMIT_MAX)?;
        Ok(paging)
    }

    /// Takes a page of a sorted list that begins behind `after`. If there are more items, also returns the
    /// name of the last one taken.
    fn cut<T>(&self, all: impl Iterator<Item = T>, name: impl Fn(&T) -> String) -> Cut<T> {
        let (found, next) = cut(all, self.limit, name);
        Cut { found, next }
    }
}

/// A page of a list.
struct Cut<T> {
    found: Vec<T>,
    next: Option<String>,
}

/// Returns the entities of a tenant that exists.
fn of_tenant(served: &Served, tenant: &str) -> Result<Arc<Entities>, Refusal> {
    let tenant = tenants::named(served, tenant)?;
    Ok(Arc::clone(tenant.entities(&served.shared.engine.alarm)))
}

/// Returns the entities of a tenant, which is created if it does not exist.
pub(super) fn of_any_tenant(served: &Served, name: &str) -> Result<Arc<Entities>, Refusal> {
    let tenant = any_tenant(served, name)?;
    Ok(Arc::clone(tenant.entities(&served.shared.engine.alarm)))
}

/// Returns a tenant, which is created if it does not exist.
fn any_tenant(served: &Served, name: &str) -> Result<Arc<Tenant>, Refusal> {
    if let Err(error) = check_tenant_name(name) {
        return Err(Refusal::bad_request(format!("{name:?} is not a valid tenant name: {error}")));
    }
    let shared = &served.shared;
    let tenant = shared.engine.tenants.get_or_create(name, |_| ());
    tenant
        .ok_or_else(|| Refusal::conflict("the maximum number of tenants is reached (max_tenants)"))
}

impl From<EntityError> for Refusal {
    fn from(error: EntityError) -> Self {
        let sentence = error.to_string();
        match error {
            EntityError::Definition(_) | EntityError::NoTarget { .. } => {
                Self::bad_request(sentence)
            }
            EntityError::NotFound(_) => Self::not_found(sentence),
            EntityError::Exists(_) | EntityError::Fixed { .. } | EntityError::TooMany(_) => {
                Self::conflict(sentence)
            }
            EntityError::Closed(_) => Self::unavailable(sentence),
        }
    }
}

impl From<BindingsError> for Refusal {
    fn from(error: BindingsError) -> Self {
        let sentence = error.to_string();
        match error {
            BindingsError::Binding(_) => Self::bad_request(sentence),
            BindingsError::NotFound(_) => Self::not_found(sentence),
            BindingsError::Configured(_) | BindingsError::TooMany => Self::conflict(sentence),
            BindingsError::Closed => Self::unavailable(sentence),
        }
    }
}
