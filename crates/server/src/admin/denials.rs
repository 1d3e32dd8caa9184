//! `/v1/tenants/{tenant}/denials`: requests of clients that were denied.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use barid_engine::denials::{Remembered, Wanted};
use barid_engine::denied_action::Action;
use barid_engine::names::{DEFAULT_TENANT, full_name};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only denials of this client.
    client: Option<String>,
    /// Only denials of this user.
    user: Option<String>,
    /// Only denials about this topic, key or entity.
    object: Option<String>,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { client: None, user: None, object: None, limit: 100 }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DenialList)]
pub struct Denials {
    denials: Vec<Denied>,
    /// Counts of the tenant since the start of the broker, for all clients.
    totals: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Denial)]
struct Denied {
    /// When it was denied last.
    at: Rfc3339,
    /// The denied action, such as `publish` or `connect`.
    action: &'static str,
    /// How often it was denied.
    count: u64,
    /// The user; `None`: the client has shown none.
    user: Option<String>,
    client: String,
    address: String,
    /// The topic, key or entity; `None`: it was about none.
    object: Option<String>,
    /// Why it was denied, in a sentence.
    reason: String,
}

/// Lists what clients were not allowed to do, with the reasons.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/denials", operation_id = "list_denials",
    params(Question),
    responses((status = 200, body = Denials))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Denials> {
    let (Path(name), Query(question)) = (path?, question?);
    let tenants = &served.shared.engine.tenants;
    let (client, object) = (question.client.as_deref(), question.object.as_deref());
    let user = question.user.as_deref().map(full_name);
    let wanted = Wanted { client, object, user: user.as_deref(), users_of: None };
    let tenant = tenants.get(&name);
    let own = tenant.as_ref().map(|tenant| tenant.denials.recent(&wanted));
    // Denied logins of users whose tenant does not exist are recorded for the default tenant.
    let strangers = tenants.get(DEFAULT_TENANT).filter(|_| name != DEFAULT_TENANT);
    let strangers =
        strangers.map(|tenant| tenant.denials.recent(&Wanted { users_of: Some(&name), ..wanted }));
    let strangers = strangers.unwrap_or_default();
    if own.is_none() && strangers.is_empty() {
        // This error says what to do.
        return Err(tenants::named(&served, &name).err().unwrap_or_else(|| {
            Refusal::unavailable("the tenant was created during the request; try again")
        }));
    }
    let mut denials = own.unwrap_or_default();
    denials.extend(strangers);
    denials.sort_by_key(|denial| std::cmp::Reverse(denial.at));
    denials.truncate(question.limit);
    let totals = tenant.map_or([0; Action::ALL.len()], |tenant| tenant.totals().denied);
    Ok(Json(Denials {
        denials: denials.into_iter().map(Denied::from).collect(),
        totals: Action::ALL.map(|action| (action.name(), totals[action as usize])).into(),
    }))
}

impl From<Remembered> for Denied {
    fn from(denial: Remembered) -> Self {
        Self {
            at: Rfc3339::from(denial.at),
            action: denial.action.name(),
            count: denial.count,
            user: denial.user,
            client: denial.client,
            address: denial.peer.to_string(),
            object: denial.object,
            reason: denial.reason,
        }
    }
}
