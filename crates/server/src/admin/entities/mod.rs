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

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use barid_engine::bindings::BindingsError;
use barid_engine::entities::{Entities, EntityError};
use barid_engine::names::check_tenant_name;
use barid_engine::tenant::Tenant;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Refusal;
use super::page::{LIMIT_MAX, check_limit, cut};
use super::{Served, tenants};
pub(super) use described::name_of;
pub(super) use subscriptions::{definition, find as subscription_of};

/// Returns the routes for all of them.
pub fn routes() -> OpenApiRouter<Served> {
    OpenApiRouter::default()
        .routes(routes!(bindings::list))
        .routes(routes!(bindings::show, bindings::put, bindings::delete))
        .routes(routes!(queues::list))
        .routes(routes!(queues::show, queues::put, queues::patch, queues::delete))
        .routes(routes!(queues::messages, queues::send, queues::purge))
        .routes(routes!(queues::receive))
        .routes(routes!(queues::resubmit))
        .routes(routes!(queues::sessions))
        .routes(routes!(topics::list))
        .routes(routes!(topics::show, topics::put, topics::patch, topics::delete))
        .routes(routes!(topics::send))
        .routes(routes!(subscriptions::list))
        .routes(routes!(
            subscriptions::show,
            subscriptions::put,
            subscriptions::patch,
            subscriptions::delete
        ))
        .routes(routes!(subscriptions::messages, subscriptions::purge))
        .routes(routes!(subscriptions::receive))
        .routes(routes!(subscriptions::resubmit))
        .routes(routes!(subscriptions::sessions))
        .routes(routes!(rules::list))
        .routes(routes!(rules::show, rules::put, rules::delete))
}

/// The page of a list that a request asks for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
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
