//! `/v1/users`: users in Barid's own store. Answers never have a password or its hash.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use barid_auth::PASSWORD_MAX;
use barid_auth::store;
use barid_auth::stored::StoredUser;
use barid_core::time::WallTime;
use barid_engine::managed::{Done, ManagedKind};
use barid_engine::names::tenant_of;
use barid_engine::rights::Rights;
use barid_engine::user_limits::UserLimits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::info;

use super::{check_limits, forget, merge_with_limits, prefix_of};
use crate::admin::Served;
use crate::admin::access::Requester;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};
use crate::admin::page::{LIMIT_MAX, check_limit};
use crate::admin::rfc3339::Rfc3339;
use barid_auth::password::{self, Cost};
use utoipa::{IntoParams, ToSchema};

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

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserList)]
pub struct Page {
    users: Vec<Listed>,
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ListedUser)]
enum Listed {
    User(Box<Described>),
    Unreadable { user: String, problem: String },
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct Described {
    /// The name, `{tenant}/{client}`.
    user: String,
    /// Whether the user may not log in.
    disabled: bool,
    #[serde(flatten)]
    rights: Rights,
    /// A note of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    created_at: Rfc3339,
}

/// The user that a request asks for. PATCH changes only the members that are there; null removes one.
#[derive(ToSchema)]
#[schema(as = WantedUser)]
#[expect(dead_code, reason = "it describes bodies, whose members are taken one by one")]
struct Wanted {
    /// The password, of which only a hash is kept. A new user has this or `password_hash`.
    password: Option<String>,
    /// A hash of the password.
    password_hash: Option<String>,
    /// How costly a hash is made of `password`: `person` (the default), or `device`.
    cost: Option<String>,
    /// Whether the user may not log in.
    disabled: Option<bool>,
    #[schema(inline)]
    #[serde(flatten)]
    rights: Rights,
    /// A note of an operator.
    note: Option<String>,
}

type UserPath = Result<Path<(String, String)>, PathRejection>;

/// Lists the users in the broker's own store, by name.
#[utoipa::path(
    get, path = "/v1/users", operation_id = "list_users",
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
    let page = managed.list(ManagedKind::User, &prefix, after.as_deref(), limit);
    let listed = page.objects.iter().map(|(name, text)| match StoredUser::from_text(text) {
        Ok(user) => Listed::User(Box::new(Described::of(name, user))),
        Err(_) => Listed::Unreadable { user: name.to_string(), problem: UNREADABLE.into() },
    });
    Ok(Json(Page { users: listed.collect(), next: page.next.map(|name| name.to_string()) }))
}

/// Shows a user of the broker's own store.
#[utoipa::path(
    get, path = "/v1/users/{tenant}/{*client}", operation_id = "show_user",
    responses((status = 200, body = Described))
)]
pub async fn show(State(served): State<Served>, path: UserPath) -> Answer<Described> {
    let name = name(path)?;
    let text = served.shared.engine.managed.get(ManagedKind::User, &name);
    let text = text.ok_or_else(|| missing(&name))?;
    Ok(Json(Described::of(&name, read(&name, &text)?)))
}

/// Creates or replaces a user.
#[utoipa::path(
    put, path = "/v1/users/{tenant}/{*client}", operation_id = "put_user",
    request_body = Wanted,
    responses((status = 201, body = Described), (status = 200, body = Described))
)]
pub async fn put(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: UserPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Described>), Refusal> {
    let name = name(path)?;
    let mut members = settings(&body, &name)?;
    let Some(hash) = take_password(&mut members)? else {
        return Err(Refusal::bad_request(
            "a user needs `password` or `password_hash`; PATCH changes a user and keeps the password",
        ));
    };
    members.insert("password".into(), hash.into());
    let mut user = parse(members, &name)?;
    let now = served.shared.engine.clock.wall().as_millis();
    let (done, user) = change(&served, |commits| {
        let done =
            served.shared.engine.managed.change(ManagedKind::User, &name, commits, |before| {
                if before.is_some() && only_new(&headers) {
                    return Err(Refusal::exists(format!("there is a user {name:?} already")));
                }
                let before = before.and_then(|text| StoredUser::from_text(text).ok());
                user.created_at = before.map_or(now, |before| before.created_at);
                Ok(Some(user.to_text()))
            })?;
        log(&by, &name, &user, if done == Done::Created { "created" } else { "replaced" });
        Ok((done, user))
    })
    .await?;
    follow_limits(&served, &name, &user).await;
    Ok((made(done == Done::Created), Json(Described::of(&name, user))))
}

/// Changes some members, and of the limits only those that the body has. Null removes a member or a limit.
#[utoipa::path(
    patch, path = "/v1/users/{tenant}/{*client}", operation_id = "patch_user",
    request_body = Wanted,
    responses((status = 200, body = Described))
)]
pub async fn patch(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: UserPath,
    body: Bytes,
) -> Answer<Described> {
    let name = name(path)?;
    let mut changes = settings(&body, &name)?;
    let hash = take_password(&mut changes)?;
    let password = hash.as_ref().map(|_| "password");
    let parts: Vec<_> =
        changes.keys().map(String::as_str).chain(password).map(str::to_owned).collect();
    let parts = parts.join(",");
    let user = change(&served, |commits| {
        let mut changed = None;
        served.shared.engine.managed.change(ManagedKind::User, &name, commits, |before| {
            let before = read(&name, before.ok_or_else(|| missing(&name))?)?;
            let (password, created_at) = (before.password.clone(), before.created_at);
            let before = serde_json::to_value(before).expect("a user has text for keys");
            let Value::Object(mut members) = before else { unreachable!("a user is an object") };
            merge_with_limits(&mut members, changes);
            members.insert("password".into(), hash.unwrap_or(password).into());
            members.insert("created_at".into(), created_at.into());
            let user = parse(members, &name)?;
            let text = user.to_text();
            changed = Some(user);
            Ok::<_, Refusal>(Some(text))
        })?;
        let user = changed.expect("a change without an error has set it");
        info!(%by, user = name, disabled = user.disabled, parts, "changed a user");
        Ok(user)
    })
    .await?;
    follow_limits(&served, &name, &user).await;
    Ok(Json(Described::of(&name, user)))
}

/// Removes a user.
#[utoipa::path(
    delete, path = "/v1/users/{tenant}/{*client}", operation_id = "delete_user",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: UserPath,
) -> Result<StatusCode, Refusal> {
    let name = name(path)?;
    change(&served, |commits| {
        match served.shared.engine.managed.remove(ManagedKind::User, &name, commits)? {
            Done::Nothing => Err(missing(&name)),
            _ => {
                info!(%by, user = name, "removed a user");
                Ok(())
            }
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Applies the limits of a user to what waits for its absent clients. Connected clients are looked up again anyway.
async fn follow_limits(served: &Served, name: &str, user: &StoredUser) {
    let tenant = tenant_of(Some(name)).and_then(|tenant| served.shared.engine.tenants.get(tenant));
    let Some(tenant) = tenant else { return };
    let Some(holder) = tenant.quotas.known_holder(name) else { return };
    let authenticator = &served.shared.logins.authenticator;
    let back_ends = authenticator.back_ends(&tenant.name);
    let asks_store = back_ends.is_ok_and(|names| names.iter().any(|name| name == store::NAME));
    if asks_store && authenticator.in_front_of_store(name).await.is_none() {
        tenant.set_own(&holder, &user.limits);
    }
}

fn log(by: &Requester, name: &str, user: &StoredUser, done: &str) {
    info!(%by, user = name, disabled = user.disabled, "{done} a user");
}

fn name(path: UserPath) -> Result<String, Refusal> {
    let Path((tenant, client)) = path?;
    Ok(format!("{tenant}/{client}"))
}

fn missing(name: &str) -> Refusal {
    Refusal::not_found(format!("there is no user {name:?} in the broker's own store"))
}

const UNREADABLE: &str =
    "a later version of Barid may have written it: start that version, or set the user again";

fn read(name: &str, text: &str) -> Result<StoredUser, Refusal> {
    StoredUser::from_text(text)
        .map_err(|_| Refusal::conflict(format!("the user {name:?} cannot be read: {UNREADABLE}")))
}

/// Reads the members of a body, without those that answers have as well.
fn settings(body: &[u8], name: &str) -> Result<Map<String, Value>, Refusal> {
    let mut members: Map<String, Value> = body::properties(body)?;
    if members.get("user").is_some_and(|other| other != name) {
        return Err(Refusal::bad_request(format!(
            "`user` in the body differs from the path, which has {name:?}"
        )));
    }
    forget(&mut members, &["user", "created_at"]);
    check_user_limits(&members)?;
    Ok(members)
}

/// Takes the password out of a body, and returns its hash. Hashing takes milliseconds by design; no IO thread
/// answers requests for operators.
fn take_password(members: &mut Map<String, Value>) -> Result<Option<String>, Refusal> {
    let mut text = |member: &str| match members.remove(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        // The value may be a secret, and is not repeated.
        Some(_) => Err(Refusal::bad_request(format!("`{member}` is not a string"))),
    };
    let (clear, hash, cost) = (text("password")?, text("password_hash")?, text("cost")?);
    let cost = match cost.as_deref() {
        None => None,
        Some("person") => Some(Cost::Person),
        Some("device") => Some(Cost::Device),
        Some(_) => return Err(Refusal::bad_request("`cost` is \"person\" or \"device\"")),
    };
    match (clear, hash) {
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request("either `password` or `password_hash`, not both"))
        }
        (Some(clear), None) => {
            if clear.is_empty() || clear.len() > PASSWORD_MAX {
                let sentence = format!("`password` has 1 to {PASSWORD_MAX} bytes");
                return Err(Refusal::bad_request(sentence));
            }
            Ok(Some(password::hash(&clear, cost.unwrap_or_default())))
        }
        (None, _) if cost.is_some() => {
            Err(Refusal::bad_request("`cost` is for `password`, which it is hashed with"))
        }
        (None, Some(hash)) => {
            let checked = password::check(&hash);
            checked.map_err(|error| Refusal::bad_request(format!("`password_hash`: {error}")))?;
            Ok(Some(hash))
        }
        (None, None) => Ok(None),
    }
}

/// Checks the names of limits. Those of one user are often mistaken for those of all users.
fn check_user_limits(members: &Map<String, Value>) -> Result<(), Refusal> {
    check_limits::<UserLimits>(members).map_err(|refusal| {
        let limits = members.get("limits").and_then(Value::as_object);
        let of_all = limits.into_iter().flat_map(Map::keys).find(|key| key.contains("user_"));
        match of_all {
            Some(key) => Refusal::bad_request(format!(
                "`{key}` is a limit of all users of a tenant; for one user it is `{}`",
                key.replacen("user_", "", 1)
            )),
            None => refusal,
        }
    })
}

fn parse(members: Map<String, Value>, name: &str) -> Result<StoredUser, Refusal> {
    let user: StoredUser = super::read(members)?;
    user.check(name).map_err(Refusal::bad_request)?;
    Ok(user)
}

impl Described {
    fn of(name: &str, user: StoredUser) -> Self {
        Self {
            user: name.into(),
            disabled: user.disabled,
            rights: user.rights(),
            note: user.note,
            created_at: WallTime::from_millis(user.created_at).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(body: &Value) -> Result<Option<String>, String> {
        let mut members = body.as_object().unwrap().clone();
        let taken = take_password(&mut members).map_err(|refusal| format!("{refusal:?}"));
        assert!(taken.is_err() || members.is_empty(), "{members:?}");
        taken
    }

    #[test]
    fn a_password_is_hashed_with_its_cost() {
        for (cost, parameters) in [("person", "$m=19456,"), ("device", "$m=256,")] {
            let hash = taken(&json!({ "password": "secret", "cost": cost })).unwrap().unwrap();
            assert!(hash.contains(parameters), "{hash}");
            assert!(password::verify(&hash, b"secret"));
            assert_eq!(taken(&json!({ "password_hash": hash })), Ok(Some(hash)));
        }
        assert_eq!(taken(&json!({ "password": null })), Ok(None));
        let hash = taken(&json!({ "password": "secret" })).unwrap().unwrap();
        assert!(hash.contains("$m=19456,"), "{hash}");
    }

    #[test]
    fn what_is_wrong_with_a_password_is_told_without_it() {
        let long = "x".repeat(PASSWORD_MAX + 1);
        for (body, expected) in [
            (json!({ "password": "s3cret", "password_hash": "s3cret" }), "not both"),
            (json!({ "password_hash": "s3cret" }), "`password_hash`: not a"),
            (json!({ "password": ["s3cret"] }), "is not a string"),
            (json!({ "password": "" }), "has 1 to"),
            (json!({ "password": long }), "has 1 to"),
            (json!({ "password": "s3cret", "cost": "s3cret" }), "or \\\"device\\\""),
            (json!({ "cost": "device" }), "is for `password`"),
        ] {
            let error = taken(&body).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{body}: {error}");
        }
    }

    #[test]
    fn a_user_is_told_without_its_hash() {
        let text = r#"{"password":"$argon2id$x","publish":["a"],"limits":{"publish_rate":5},"created_at":951782400000}"#;
        let user = StoredUser::from_text(text).unwrap();
        let told = serde_json::to_value(Described::of("acme/a", user)).unwrap();
        let expected = json!({
            "user": "acme/a", "disabled": false, "publish": ["a"], "limits": {"publish_rate": 5},
            "created_at": "2000-02-29T00:00:00.000Z",
        });
        assert_eq!(told, expected);
    }
}
