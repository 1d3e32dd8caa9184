//! `/v1/tokens`: who may use the admin API. Only the answer to POST has the secret of a token.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use barid_auth::token::{Role, Shown, Token};
use barid_core::time::WallTime;
use barid_engine::managed::{Done, ManagedKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::info;
use utoipa::{IntoParams, ToSchema};

use crate::admin::access::Requester;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::changing::change;
use crate::admin::rfc3339::Rfc3339;
use crate::admin::{Served, body};

/// Maximum number of tokens.
const TOKENS_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only those of this tenant.
    tenant: Option<String>,
}

/// The token that a request asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WantedToken)]
pub struct Wanted {
    role: Role,
    /// Only those of this tenant.
    tenant: Option<String>,
    /// A note for operators.
    #[serde(default)]
    note: String,
    /// Seconds until the token ends; `None`: it does not end by itself.
    for_seconds: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TokenList)]
pub struct All {
    tokens: Vec<Described>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub struct Described {
    /// The id of the token, which is a part of it.
    id: String,
    role: Role,
    /// Only those of this tenant.
    tenant: Option<String>,
    note: String,
    /// When the token ends; `None`: it does not end by itself.
    until: Option<Rfc3339>,
    created_at: Rfc3339,
}

/// A token that was just made, with what has to be shown.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeToken)]
pub struct Made {
    /// What programs show: `barid_{id}_{secret}`.
    token: String,
    #[serde(flatten)]
    described: Described,
}

/// Lists all tokens, also those that have ended, by id.
#[utoipa::path(
    get, path = "/v1/tokens", operation_id = "list_tokens",
    params(Question),
    responses((status = 200, body = All))
)]
pub async fn list(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<All> {
    let Query(Question { tenant }) = question?;
    let tenant = by.confine(tenant)?;
    let managed = &served.shared.engine.managed;
    let mut tokens = Vec::new();
    managed.for_each(ManagedKind::Token, |id, text| {
        let token = Token::from_text(text).ok();
        let token = token.filter(|token| tenant.is_none() || token.tenant == tenant);
        tokens.extend(token.map(|token| Described::of(id, token)));
    });
    Ok(Json(All { tokens }))
}

/// Makes a token. Only this answer has its secret.
#[utoipa::path(
    post, path = "/v1/tokens", operation_id = "make_token",
    request_body = Wanted,
    responses((status = 201, body = Made))
)]
pub async fn post(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Result<(StatusCode, Json<Made>), Refusal> {
    let members: Map<String, Value> = body::properties(&body)?;
    let wanted: Wanted = serde_json::from_value(members.into())
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    let engine = &served.shared.engine;
    let shown = Shown::new(engine.random);
    let token = wanted.token(&shown, engine.clock.wall())?;
    by.may_change(token.tenant.as_deref())?;
    if engine.managed.count(ManagedKind::Token) >= TOKENS_MAX {
        let sentence = format!("there are {TOKENS_MAX} tokens already: revoke some first");
        return Err(Refusal::conflict(sentence));
    }
    change(&served, |commits| {
        engine.managed.put(ManagedKind::Token, &shown.id, token.to_text(), commits)?;
        let Token { role, tenant, note, .. } = &token;
        info!(%by, token = shown.id, role = role.name(), tenant, note, "created a token");
        Ok(())
    })
    .await?;
    let described = Described::of(&shown.id, token);
    Ok((StatusCode::CREATED, Json(Made { token: shown.to_text(), described })))
}

/// Revokes a token.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", operation_id = "revoke_token",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let Path(id) = path?;
    let missing = || Refusal::not_found(format!("there is no token {id:?}"));
    let managed = &served.shared.engine.managed;
    let text = managed.get(ManagedKind::Token, &id).ok_or_else(missing)?;
    let tenant = Token::from_text(&text).ok().and_then(|token| token.tenant);
    // Of tokens of others a requester does not learn whether they exist.
    by.may_change(tenant.as_deref()).map_err(|_| missing())?;
    change(&served, |commits| match managed.remove(ManagedKind::Token, &id, commits)? {
        Done::Nothing => Err(missing()),
        _ => {
            info!(%by, token = id, "revoked a token");
            Ok(())
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Wanted {
    fn token(self, shown: &Shown, now: WallTime) -> Result<Token, Refusal> {
        let Self { role, tenant, note, for_seconds } = self;
        if for_seconds == Some(0) {
            return Err(Refusal::bad_request(
                "`for_seconds` must be greater than 0; without it a token does not end",
            ));
        }
        let until = for_seconds.map(|seconds| now.after(Duration::from_secs(seconds)).as_millis());
        let mut token = Token::new(shown, role, now);
        (token.tenant, token.note, token.until) = (tenant, note, until);
        token.check().map_err(Refusal::bad_request)?;
        Ok(token)
    }
}

impl Described {
    fn of(id: &str, token: Token) -> Self {
        let time = |millis| Rfc3339::from(WallTime::from_millis(millis));
        let Token { role, tenant, note, until, created_at, .. } = token;
        Self {
            id: id.into(),
            role,
            tenant,
            note,
            until: until.map(time),
            created_at: time(created_at),
        }
    }
}
