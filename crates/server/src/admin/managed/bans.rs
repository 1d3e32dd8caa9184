//! `/v1/bans`: who may not connect.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use barid_auth::ban::{Ban, Network};
use barid_core::time::WallTime;
use barid_engine::managed::{Done, Managed, ManagedKind};
use barid_engine::random::Random;
use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::info;
use utoipa::{IntoParams, ToSchema};

use super::prefix_of;
use crate::admin::Served;
use crate::admin::access::Requester;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::change;
use crate::admin::page::{LIMIT_MAX, check_limit};
use crate::admin::rfc3339::Rfc3339;

/// Number of random bytes in an id: 8 characters that an operator can type.
const ID_BYTES: usize = 5;

/// Maximum number of bans that have ended and are removed from the store when a new one is made: more than one, so
/// that they become fewer.
const REMOVED_TOGETHER: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only those of this tenant.
    tenant: Option<String>,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { tenant: None, after: None, limit: 100 }
    }
}

/// The ban that a request asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WantedBan)]
pub struct Wanted {
    /// The user, `{tenant}/{client}`. A ban has one of this, `client` and `address`.
    user: Option<String>,
    /// The MQTT client identifier or AMQP container id.
    client: Option<String>,
    /// An address, or a network such as `192.0.2.0/24`.
    address: Option<Network>,
    /// The tenant of `client`, or the only one that a ban of an address is about.
    tenant: Option<String>,
    /// A note for operators.
    #[serde(default)]
    reason: String,
    /// Seconds until the ban ends; `None`: it does not end by itself.
    for_seconds: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BanList)]
pub struct Page {
    bans: Vec<Described>,
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ban)]
pub struct Described {
    /// The id of the ban.
    id: String,
    user: Option<String>,
    client: Option<String>,
    address: Option<Network>,
    tenant: Option<String>,
    reason: String,
    /// When the ban ends; `None`: it does not end by itself.
    until: Option<Rfc3339>,
    created_at: Rfc3339,
}

/// Lists bans that have not ended, by id.
#[utoipa::path(
    get, path = "/v1/bans", operation_id = "list_bans",
    params(Question),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Page> {
    let Query(Question { tenant, after, limit }) = question?;
    check_limit(limit, LIMIT_MAX)?;
    let prefix = prefix_of(by.confine(tenant)?)?;
    let managed = &served.shared.engine.managed;
    let page = managed.list(ManagedKind::Ban, &prefix, after.as_deref(), limit);
    let now = served.shared.bans.now();
    let described = page.objects.iter().filter_map(|(id, text)| {
        let ban = Ban::from_text(text).ok().filter(|ban| !ban.is_over(now))?;
        Some(Described::of(id, ban))
    });
    Ok(Json(Page { bans: described.collect(), next: page.next.map(|id| id.to_string()) }))
}

/// Shows a ban.
#[utoipa::path(
    get, path = "/v1/bans/{*ban}", operation_id = "show_ban",
    responses((status = 200, body = Described))
)]
pub async fn show(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: Result<Path<String>, PathRejection>,
) -> Answer<Described> {
    let Path(id) = path?;
    by.may_change(tenant_in(&id)).map_err(|_| missing(&id))?;
    let text = served.shared.engine.managed.get(ManagedKind::Ban, &id);
    let ban = text.and_then(|text| Ban::from_text(&text).ok());
    let ban = ban.filter(|ban| !ban.is_over(served.shared.bans.now()));
    Ok(Json(Described::of(&id, ban.ok_or_else(|| missing(&id))?)))
}

/// Makes a ban.
#[utoipa::path(
    post, path = "/v1/bans", operation_id = "make_ban",
    request_body = Wanted,
    responses((status = 201, body = Described))
)]
pub async fn post(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Result<(StatusCode, Json<Described>), Refusal> {
    let members: Map<String, Value> = body::properties(&body)?;
    let wanted: Wanted = serde_json::from_value(members.into())
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    let ban = wanted.from(served.shared.bans.now())?;
    by.may_change(ban.tenant())?;
    let engine = &served.shared.engine;
    let id = new_id(&engine.managed, engine.random, ban.tenant());
    change(&served, |commits| {
        served.shared.bans.remove_ended(REMOVED_TOGETHER, commits);
        engine.managed.put(ManagedKind::Ban, &id, ban.to_text(), commits)?;
        let Ban { user, client, tenant, address, reason, .. } = &ban;
        let address = address.map(String::from);
        info!(%by, ban = id, user, client, tenant, address, reason, "made a ban");
        Ok(())
    })
    .await?;
    Ok((StatusCode::CREATED, Json(Described::of(&id, ban))))
}

/// Ends a ban.
#[utoipa::path(
    delete, path = "/v1/bans/{*ban}", operation_id = "delete_ban",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let Path(id) = path?;
    by.may_change(tenant_in(&id)).map_err(|_| missing(&id))?;
    change(&served, |commits| {
        match served.shared.engine.managed.remove(ManagedKind::Ban, &id, commits)? {
            Done::Nothing => Err(missing(&id)),
            _ => {
                info!(%by, ban = id, "removed a ban");
                Ok(())
            }
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the only tenant that a ban is about, which is in its id.
fn tenant_in(id: &str) -> Option<&str> {
    id.split_once('/').map(|(tenant, _)| tenant)
}

fn missing(id: &str) -> Refusal {
    Refusal::not_found(format!("there is no ban {id:?}; it may have ended"))
}

/// Returns an id that no ban has: `{tenant}/{random}` for a ban of one tenant.
fn new_id(managed: &Managed, random: Random, tenant: Option<&str>) -> String {
    loop {
        let text = BASE32_NOPAD.encode(&random.bytes::<ID_BYTES>()).to_lowercase();
        let id = tenant.map_or_else(|| text.clone(), |tenant| format!("{tenant}/{text}"));
        if managed.get(ManagedKind::Ban, &id).is_none() {
            return id;
        }
    }
}

impl Wanted {
    fn from(self, now: WallTime) -> Result<Ban, Refusal> {
        let Self { user, client, address, tenant, reason, for_seconds } = self;
        if for_seconds == Some(0) {
            return Err(Refusal::bad_request(
                "`for_seconds` must be greater than 0; without it a ban does not end",
            ));
        }
        let until = for_seconds.map(|seconds| now.after(Duration::from_secs(seconds)).as_millis());
        let created_at = now.as_millis();
        let ban = Ban { user, client, address, tenant, reason, until, created_at };
        ban.check().map_err(Refusal::bad_request)?;
        Ok(ban)
    }
}

impl Described {
    fn of(id: &str, ban: Ban) -> Self {
        let time = |millis| Rfc3339::from(WallTime::from_millis(millis));
        Self {
            id: id.into(),
            user: ban.user,
            client: ban.client,
            address: ban.address,
            tenant: ban.tenant,
            reason: ban.reason,
            until: ban.until.map(time),
            created_at: time(ban.created_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(json: &str) -> Result<Ban, String> {
        let wanted: Wanted = serde_json::from_str(json).map_err(|error| error.to_string())?;
        wanted.from(WallTime::from_millis(5_000)).map_err(|refusal| format!("{refusal:?}"))
    }

    #[test]
    fn a_ban_ends_after_its_time() {
        let ban = wanted(r#"{"user":"acme/a","reason":"stolen","for_seconds":60}"#).unwrap();
        assert_eq!((ban.created_at, ban.until), (5_000, Some(65_000)));
        let told = serde_json::to_string(&Described::of("acme/x", ban)).unwrap();
        assert!(told.contains(r#""until":"1970-01-01T00:01:05.000Z""#), "{told}");
        let ban = wanted(r#"{"address":"192.0.2.7/24"}"#).unwrap();
        assert_eq!((ban.address.unwrap().to_string(), ban.until), ("192.0.2.0/24".into(), None));
        for (json, expected) in [
            (r#"{"user":"acme/a","for_seconds":0}"#, "greater than 0"),
            (r#"{"user":"acme/a","client":"a"}"#, "one `user`"),
            (r#"{"address":"somewhere"}"#, "neither an address nor a network"),
            (r#"{"user":"acme/a","until":1}"#, "unknown field `until`"),
        ] {
            let error = wanted(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
