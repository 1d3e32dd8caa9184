//! `/v1/tenants/{tenant}/users/{client}`: a user of whatever back end, as the broker sees it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use barid_core::holder::Held;
use barid_engine::limits::Quota;
use barid_engine::managed::ManagedKind;
use barid_engine::names::check_user_name;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::{Answer, Refusal};
use super::{Served, tenants};

/// A user, as the broker sees it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Holdings)]
pub struct User {
    /// The name of the user.
    user: String,
    /// The back end that decides on the logins of the user although the broker's own store has the user as well: it comes
    /// first. `None`: none is known.
    shadowed_by: Option<String>,
    /// What belongs to the user, by the quota that limits it.
    quotas: BTreeMap<&'static str, Quantity>,
}

/// How much of one kind belongs to a user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldQuantity)]
struct Quantity {
    /// How much belongs to it.
    used: u64,
    /// 0: there is no limit; `None`: it is not known, because the user has not logged in since the broker started.
    limit: Option<u64>,
}

/// Shows what belongs to a user of any back end.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/users/{*client}", operation_id = "show_holdings",
    responses((status = 200, body = User))
)]
pub async fn show(
    State(served): State<Served>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Answer<User> {
    let Path((tenant, client)) = path?;
    let user = format!("{tenant}/{client}");
    check_user_name(&user).map_err(|error| {
        Refusal::bad_request(format!("{user:?} is not a valid user name: {error}"))
    })?;
    let managed = &served.shared.engine.managed;
    let shadowed_by = match managed.get(ManagedKind::User, &user) {
        Some(_) => served.shared.logins.authenticator.in_front_of_store(&user).await,
        None => None,
    };
    let quotas = match tenants::named(&served, &tenant) {
        Ok(tenant) => {
            let (limits, holder) = (tenant.limits(), tenant.quotas.known_holder(&user));
            let quantity = |held: Held| Quantity {
                used: holder.as_ref().map_or(0, |holder| holder.held(held)),
                limit: holder
                    .as_ref()
                    .and_then(|holder| holder.known_limit(held, limits.held(held))),
            };
            Held::ALL.map(|held| (Quota::of_held(held).name(), quantity(held))).into()
        }
        Err(_) => BTreeMap::new(),
    };
    Ok(Json(User { user, shadowed_by, quotas }))
}
