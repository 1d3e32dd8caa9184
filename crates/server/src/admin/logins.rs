//! `/v1/tenants/{tenant}/logins`: the back ends that are asked about the users of a tenant. `/v1/logins/changed`: users that have changed
//! where the broker does not see it.

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use barid_auth::Scope;
use barid_engine::names::{check_tenant_name, check_user_name, full_name, tenant_of};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::info;
use utoipa::ToSchema;

use super::access::Requester;
use super::answer::{Answer, Refusal};
use super::{Served, body};

/// The back ends that are asked about the users of a tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Logins)]
pub struct Deciding {
    /// Their names, in the order in which they are asked. Empty: any client may connect.
    back_ends: Vec<String>,
}

/// Shows which back ends decide on the logins of a tenant.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/logins", operation_id = "show_logins",
    responses((status = 200, body = Deciding))
)]
pub async fn show(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
) -> Answer<Deciding> {
    let Path(tenant) = path?;
    check_tenant_name(&tenant).map_err(|error| {
        Refusal::bad_request(format!("{tenant:?} is not a valid tenant name: {error}"))
    })?;
    let back_ends = served.shared.logins.authenticator.back_ends(&tenant);
    let back_ends = back_ends.map_err(|error| Refusal::conflict(error.0))?;
    Ok(Json(Deciding { back_ends }))
}

/// The users that have changed: exactly one member.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
#[schema(as = ChangedUsers)]
pub enum Changed {
    User(String),
    Tenant(String),
    All(bool),
}

/// Forgets what is remembered of the users, here and in shared caches, and has connected clients checked.
#[utoipa::path(
    post, path = "/v1/logins/changed", operation_id = "say_that_users_have_changed",
    request_body = Changed,
    responses((status = 200, body = Changed))
)]
pub async fn changed(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Answer<Changed> {
    let members: Map<String, Value> = body::properties(&body)?;
    let changed: Changed = serde_json::from_value(members.into()).map_err(|_| {
        let sentence = "the body has one member: `user`, `tenant`, or `all` with the value true";
        Refusal::bad_request(sentence)
    })?;
    let (scope, changed) = match changed {
        Changed::User(name) => {
            check_user_name(&name).map_err(|error| {
                Refusal::bad_request(format!("{name:?} is not a valid user name: {error}"))
            })?;
            let name = full_name(&name);
            (Scope::User(name.as_str().into()), Changed::User(name))
        }
        Changed::Tenant(name) => {
            check_tenant_name(&name).map_err(|error| {
                Refusal::bad_request(format!("{name:?} is not a valid tenant name: {error}"))
            })?;
            (Scope::Tenant(name.as_str().into()), Changed::Tenant(name))
        }
        Changed::All(true) => (Scope::Everybody, Changed::All(true)),
        Changed::All(false) => {
            return Err(Refusal::bad_request("`all` has the value true"));
        }
    };
    match &scope {
        Scope::User(user) => by.may_change(tenant_of(Some(user)))?,
        Scope::Tenant(tenant) => by.may_change(Some(tenant))?,
        Scope::Everybody => by.may_change(None)?,
    }
    info!(%by, users = ?scope, "an operator says that users have changed");
    served.shared.logins.changed_elsewhere(scope).await.map_err(|error| {
        Refusal::unavailable(format!("other brokers could not be told: {}", error.0))
    })?;
    Ok(Json(changed))
}
