//! `/v1/tenants/{tenant}`: one tenant, and the settings that operators have given it.

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use barid_auth::stored::StoredTenant;
use barid_engine::limits::{Limits, OwnLimits};
use barid_engine::managed::{Done, ManagedKind};
use barid_engine::names::check_tenant_name;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::info;
use utoipa::ToSchema;

use super::{check_limits, forget, merge_with_limits};
use crate::admin::access::Requester;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::changing::{change, made, only_new};
use crate::admin::quotas::Which;
use crate::admin::tenants::{Summary, named};
use crate::admin::{Served, body};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub struct Described {
    #[serde(flatten)]
    summary: Summary,
    /// All limits of the tenant: its settings in the store, those of the configuration, and the defaults.
    limits_in_force: Limits,
    /// `None`: the tenant has no settings in the store.
    settings: Option<StoredTenant>,
    /// The reason why the settings cannot be read, or why nobody can log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// In the answer of all brokers of a cluster, those whose part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_answered: Option<Vec<String>>,
}

/// The members of an answer that are no settings.
const TOLD: [&str; 10] = [
    "name",
    "sessions",
    "connections",
    "retained_messages",
    "rates",
    "has_settings",
    "quotas",
    "limits_in_force",
    "problem",
    "not_answered",
];

type TenantPath = Result<Path<String>, PathRejection>;

/// Shows a tenant and its settings.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}", operation_id = "show_tenant",
    responses((status = 200, body = Described))
)]
pub async fn show(State(served): State<Served>, path: TenantPath) -> Answer<Described> {
    let Path(name) = path?;
    let described = Described::of(&served, &name);
    if !described.summary.has_settings {
        // The tenant exists, or the error says what to do.
        named(&served, &name)?;
    }
    Ok(Json(described))
}

/// Replaces the settings of a tenant.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}", operation_id = "put_tenant",
    request_body = Option<StoredTenant>,
    responses((status = 201, body = Described), (status = 200, body = Described))
)]
pub async fn put(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: TenantPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Described>), Refusal> {
    let name = name(path)?;
    let settings = parse(members(&body)?)?;
    check_back_ends(&served, &settings)?;
    let done = change(&served, |commits| {
        let managed = &served.shared.engine.managed;
        let done = managed.change(ManagedKind::Tenant, &name, commits, |before| {
            if before.is_some() && only_new(&headers) {
                let sentence = format!("the tenant {name:?} has settings already");
                return Err(Refusal::exists(sentence));
            }
            Ok(Some(settings.to_text()))
        })?;
        info!(%by, tenant = name, "set the settings of a tenant");
        Ok(done)
    })
    .await?;
    Ok((made(done == Done::Created), Json(Described::of(&served, &name))))
}

/// Changes some settings, and of the limits only those that the body has. Null removes a setting or a limit.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}", operation_id = "patch_tenant",
    request_body = Option<StoredTenant>,
    responses((status = 201, body = Described), (status = 200, body = Described))
)]
pub async fn patch(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: TenantPath,
    body: Bytes,
) -> Result<(StatusCode, Json<Described>), Refusal> {
    let name = name(path)?;
    let changes = members(&body)?;
    let done = change(&served, |commits| {
        let managed = &served.shared.engine.managed;
        let done = managed.change(ManagedKind::Tenant, &name, commits, |before| {
            let before = before.map(StoredTenant::from_text).transpose();
            let before = before.map_err(|_| {
                let sentence = format!("the settings of {name:?} cannot be read: {UNREADABLE}");
                Refusal::conflict(sentence)
            })?;
            let settings = changed(&before.unwrap_or_default(), changes)?;
            check_back_ends(&served, &settings)?;
            Ok::<_, Refusal>(Some(settings.to_text()))
        })?;
        info!(%by, tenant = name, "changed the settings of a tenant");
        Ok(done)
    })
    .await?;
    Ok((made(done == Done::Created), Json(Described::of(&served, &name))))
}

/// Removes the settings of a tenant. Everything else of the tenant stays.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}", operation_id = "delete_tenant",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: TenantPath,
) -> Result<StatusCode, Refusal> {
    let name = name(path)?;
    change(&served, |commits| {
        match served.shared.engine.managed.remove(ManagedKind::Tenant, &name, commits)? {
            Done::Nothing => Err(Refusal::not_found(format!(
                "the tenant {name:?} has no settings in the broker's own store"
            ))),
            _ => {
                info!(%by, tenant = name, "removed the settings of a tenant");
                Ok(())
            }
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

const UNREADABLE: &str = "a later version of Barid may have written them: start that version, or set them again with PUT";

fn name(path: TenantPath) -> Result<String, Refusal> {
    let Path(name) = path?;
    check_tenant_name(&name).map_err(|error| {
        Refusal::bad_request(format!("{name:?} is not a valid tenant name: {error}"))
    })?;
    Ok(name)
}

/// Reads the members of a body. The body may be an answer to GET.
fn members(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let mut members: Map<String, Value> = body::properties(body)?;
    if let Some(settings) = members.remove("settings") {
        forget(&mut members, &TOLD);
        members = match settings {
            Value::Object(settings) if members.is_empty() => settings,
            Value::Null if members.is_empty() => Map::new(),
            _ => {
                let sentence = "`settings` is an object, and nothing stands beside it";
                return Err(Refusal::bad_request(sentence));
            }
        };
    }
    check_limits::<OwnLimits>(&members)?;
    Ok(members)
}

fn parse(members: Map<String, Value>) -> Result<StoredTenant, Refusal> {
    let settings: StoredTenant = super::read(members)?;
    settings.check().map_err(Refusal::bad_request)?;
    Ok(settings)
}

/// Refuses back ends that the configuration does not have: nobody could log in to the tenant.
fn check_back_ends(served: &Served, tenant: &StoredTenant) -> Result<(), Refusal> {
    let settings = served.shared.settings();
    let names = tenant.auth.iter().flatten();
    match names.into_iter().find(|name| !settings.has_back_end(name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<_> = settings.back_ends().collect();
            let known = known.join("`, `");
            Err(Refusal::bad_request(format!(
                "`auth`: there is no back end `{name}`; the configuration has `{known}`"
            )))
        }
    }
}

fn changed(before: &StoredTenant, changes: Map<String, Value>) -> Result<StoredTenant, Refusal> {
    let before = serde_json::to_value(before).expect("settings have text for keys");
    let Value::Object(mut members) = before else { unreachable!("settings are an object") };
    merge_with_limits(&mut members, changes);
    parse(members)
}

impl Described {
    fn of(served: &Served, name: &str) -> Self {
        let engine = &served.shared.engine;
        let stored = StoredTenant::of(&engine.managed, name);
        let has_settings = !matches!(stored, Ok(None));
        let live = engine.tenants.get(name);
        let (summary, limits) = match &live {
            Some(tenant) => {
                let rates = served.history.rates(&tenant.name);
                let summary =
                    Summary::of((tenant, &engine.tenants), rates, has_settings, Which::All);
                (summary, tenant.limits())
            }
            None => {
                let summary = Summary::without_state(name, has_settings);
                (summary, engine.tenants.settings_of(name).limits)
            }
        };
        let limits_in_force = Limits::clone(&limits);
        match stored {
            Ok(settings) => {
                let checked = settings.as_ref().map(|tenant| check_back_ends(served, tenant));
                let problem =
                    checked.and_then(Result::err).map(|refusal| refusal.sentence().into());
                Self { summary, limits_in_force, settings, problem, not_answered: None }
            }
            Err(error) => {
                let problem = Some(error.to_string());
                Self { summary, limits_in_force, settings: None, problem, not_answered: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members_of(json: &str) -> Map<String, Value> {
        members(json.as_bytes()).unwrap()
    }

    #[test]
    fn some_settings_change_and_the_others_stay() {
        let text =
            r#"{"rules":[{"allow":"all"}],"auth":["a"],"limits":{"max_qos":1,"max_sessions":5}}"#;
        let before = StoredTenant::from_text(text).unwrap();
        for (changes, expected) in [
            ("{}", text),
            ("", text),
            (
                r#"{"limits":{"max_qos":null,"max_connections":7}}"#,
                r#"{"rules":[{"allow":"all"}],"auth":["a"],"limits":{"max_connections":7,"max_sessions":5}}"#,
            ),
            (
                r#"{"rules":null,"auth":["b"]}"#,
                r#"{"auth":["b"],"limits":{"max_sessions":5,"max_qos":1}}"#,
            ),
            (r#"{"limits":null}"#, r#"{"rules":[{"allow":"all"}],"auth":["a"],"limits":{}}"#),
        ] {
            let after = changed(&before, members_of(changes)).unwrap();
            assert_eq!(after, StoredTenant::from_text(expected).unwrap(), "{changes}");
        }
        for (changes, expected) in [
            (r#"{"limits":{"max_qos":7}}"#, "max_qos is 7"),
            (r#"{"limits":7}"#, "invalid type"),
            (r#"{"limit":{}}"#, "unknown field `limit`"),
        ] {
            let error = changed(&before, members_of(changes)).unwrap_err();
            assert!(format!("{error:?}").contains(expected), "{changes}: {error:?}");
        }
    }

    #[test]
    fn an_answer_can_be_sent_back() {
        let answer = r#"{"name":"acme","sessions":1,"connections":0,"retained_messages":0,"rates":null,"has_settings":true,
            "quotas":{"max_sessions":{"limit":5,"used":1}},"limits_in_force":{"max_sessions":5},
            "settings":{"auth":["a"]}}"#;
        assert_eq!(parse(members_of(answer)).unwrap().auth, Some(vec!["a".into()]));
        let error = members(br#"{"settings":{},"auth":["b"]}"#).unwrap_err();
        assert!(format!("{error:?}").contains("nothing stands beside it"));
    }
}
