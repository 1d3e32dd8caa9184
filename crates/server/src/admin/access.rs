//! Access to the paths of the API: the sender of a request, and what its token allows.
//!
//! While there are no tokens, every program on this machine may do everything. As soon as there is one, a request
//! needs a token whose role and tenant allow it. A path that has no rule here is for administrators of the whole
//! broker.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use barid_auth::token::{Role, Shown, Token};
use barid_engine::managed::ManagedKind;
use serde::Serialize;
use tracing::info;
use utoipa::ToSchema;

use super::Served;
use super::answer::Refusal;
use super::request_rate::Requester as Counted;
use super::{gathered, passing_on};
use crate::shared::Shared;

/// Marks a request over TLS, perhaps from another machine. It needs a token, whatever is configured.
#[derive(Clone, Copy, Debug)]
pub struct Remote;

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Requester {
    address: Option<SocketAddr>,
    is_remote: bool,
    /// The token that was shown; `None`: none is needed.
    token: Option<Arc<Accepted>>,
}

/// A token that was accepted.
#[derive(Debug)]
struct Accepted {
    id: Box<str>,
    role: Role,
    tenant: Option<Box<str>>,
}

/// What a path needs.
struct Rule {
    /// The path, as it is in the routes, or its beginning.
    path: &'static str,
    /// The role for GET.
    read: Role,
    /// The role for other methods.
    change: Role,
    tenant: Tenant,
}

/// How a path is limited for a token of one tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tenant {
    /// The tenant is in the path.
    InPath,
    /// What answers the request limits it, by [`Requester::confine`].
    Confined,
    /// The path is for tokens of the whole broker only.
    Never,
    /// The tenant is in the path, and changes are for tokens of the whole broker only.
    NeverChanged,
}

const fn rule(path: &'static str, read: Role, change: Role, tenant: Tenant) -> Rule {
    Rule { path, read, change, tenant }
}

/// The first rule whose path is the beginning of a path decides.
static RULES: [Rule; 22] = {
    use Role::{Admin, Operator, Viewer};
    use Tenant::{Confined, InPath, Never, NeverChanged};
    [
        rule("/v1/tenants/{tenant}/state/{key}", Operator, Admin, InPath),
        rule("/v1/tenants/{tenant}/messages", Operator, Operator, InPath),
        rule("/v1/tenants/{tenant}/clients/{client}/trace", Operator, Operator, InPath),
        rule("/v1/tenants/{tenant}/retained/", Operator, Operator, InPath),
        rule("/v1/tenants/{tenant}/queues/{queue}/messages", Operator, Operator, InPath),
        rule(
            "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/messages",
            Operator,
            Operator,
            InPath,
        ),
        rule("/v1/tenants/{tenant}/", Viewer, Operator, InPath),
        // Settings have the limits that the operator gives a tenant.
        rule("/v1/tenants/{tenant}", Viewer, Admin, NeverChanged),
        rule("/v1/tenants", Viewer, Admin, Confined),
        rule("/v1/users/{tenant}/", Viewer, Admin, InPath),
        rule("/v1/users", Viewer, Admin, Confined),
        rule("/v1/bans", Viewer, Operator, Confined),
        rule("/v1/logins/changed", Operator, Operator, Confined),
        rule("/v1/tokens", Admin, Admin, Confined),
        rule("/v1/requester", Viewer, Admin, Confined),
        rule("/v1/history", Viewer, Admin, Confined),
        rule("/v1/events", Viewer, Admin, Confined),
        rule("/v1/broker", Viewer, Admin, Never),
        rule("/v1/cluster", Viewer, Admin, Never),
        rule("/v1/shards", Viewer, Admin, Never),
        rule("/metrics", Viewer, Admin, Never),
        rule("", Admin, Admin, Never),
    ]
};

/// Paths that everybody may read.
const OPEN: [&str; 7] = [
    "/",
    "/healthz",
    "/health",
    "/v1/openapi.json",
    "/dashboard",
    "/dashboard/",
    "/dashboard/{*file}",
];

/// Answers a request, or refuses it because its token is missing, wrong or not enough.
pub async fn check(
    State(served): State<Served>,
    path: MatchedPath,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    if OPEN.contains(&path.as_str()) {
        return next.run(request).await;
    }
    let method = request.method().clone();
    let is_read = matches!(method, Method::GET | Method::HEAD);
    let address = request.extensions().get::<SocketAddr>().copied();
    let is_remote = request.extensions().get::<Remote>().is_some();
    let identified = identify(&served.shared, address, is_remote, request.headers());
    if let Some(refusal) = too_many(&served, address, &identified) {
        return refusal;
    }
    let requester = match identified {
        Ok(requester) => requester,
        Err(refusal) => {
            info!(address = address.map(tracing::field::display), %method, path = request.uri().path(), "refused a request without a valid token");
            let mut response = refusal.into_response();
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return response;
        }
    };
    // A path that cannot be decoded names no tenant; what answers the request says what is wrong.
    let tenant =
        parameters.as_ref().ok().and_then(|all| all.iter().find(|(name, _)| *name == "tenant"));
    let tenant = tenant.map(|(_, tenant)| tenant);
    let target = request.uri().path().to_owned();
    let response = match requester.check(path.as_str(), is_read, tenant) {
        Ok(()) => match passing_on::answers_instead(&served.shared, path.as_str(), &request) {
            Err(refusal) => refusal.into_response(),
            Ok(home) => {
                let to = (requester.clone(), next);
                gathered::answer(&served.shared, path.as_str(), request, home, to).await
            }
        },
        Err(refusal) => refusal.into_response(),
    };
    if !is_read {
        let status = response.status().as_u16();
        info!(by = %requester, %method, path = target, status, "request for a change");
    }
    response
}

/// What a requester may do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Requester)]
pub struct Allowed {
    /// The id of its token; `None`: no token is needed.
    token: Option<Box<str>>,
    role: &'static str,
    /// The only tenant that it may ask about; `None`: all of them.
    tenant: Option<Box<str>>,
}

/// Shows the requester what it may do.
#[utoipa::path(
    get, path = "/v1/requester", operation_id = "show_requester",
    responses((status = 200, body = Allowed))
)]
pub async fn show(Extension(requester): Extension<Requester>) -> Json<Allowed> {
    Json(match requester.token.as_deref() {
        Some(Accepted { id, role, tenant }) => {
            Allowed { token: Some(id.clone()), role: role.name(), tenant: tenant.clone() }
        }
        None => Allowed { token: None, role: Role::Admin.name(), tenant: None },
    })
}

/// Counts a request that shows a token or needs one. Returns the answer if there were too many.
fn too_many(
    served: &Served,
    address: Option<SocketAddr>,
    identified: &Result<Requester, Refusal>,
) -> Option<Response> {
    let counted = match identified {
        Ok(requester) => Counted::Token(requester.token.as_ref()?.id.clone()),
        Err(_) => Counted::Refused(address?.ip()),
    };
    let rate = served.shared.settings().admin.max_request_rate;
    let wait = served.rate.count(counted, rate, Instant::now()).err()?;
    let sentence = "too many requests in a second (`max_request_rate` in [admin]): try again later";
    let mut response = Refusal::of(StatusCode::TOO_MANY_REQUESTS, sentence).into_response();
    let seconds = HeaderValue::from(wait.as_secs_f64().ceil() as u64);
    response.headers_mut().insert(RETRY_AFTER, seconds);
    Some(response)
}

/// Returns the role that a path needs; `None`: everybody may read it.
pub fn role_for(path: &str, is_read: bool) -> Option<Role> {
    let rule = rule_of(path);
    (!OPEN.contains(&path)).then_some(if is_read { rule.read } else { rule.change })
}

fn rule_of(path: &str) -> &'static Rule {
    RULES.iter().find(|rule| path.starts_with(rule.path)).expect("the last rule is for all paths")
}

fn needs_token(shared: &Shared, is_remote: bool) -> bool {
    let has_tokens = || shared.engine.managed.count(ManagedKind::Token) > 0;
    is_remote || shared.settings().admin.tokens && has_tokens()
}

fn identify(
    shared: &Shared,
    address: Option<SocketAddr>,
    is_remote: bool,
    headers: &HeaderMap,
) -> Result<Requester, Refusal> {
    let managed = &shared.engine.managed;
    if !needs_token(shared, is_remote) {
        return Ok(Requester { address, is_remote, token: None });
    }
    let wrong = |sentence: &str| Refusal::of(StatusCode::UNAUTHORIZED, sentence);
    let mut written = headers.get_all(AUTHORIZATION).iter();
    let (Some(written), None) = (written.next(), written.next()) else {
        return Err(wrong(
            "the admin API needs a token: send it as `Authorization: Bearer TOKEN`, or name its file with \
             --token-file or BARID_TOOLS_TOKEN_FILE; `barid token create` of an admin makes one. Whoever has \
             lost the last one sets `tokens = false` in [admin] and reloads the configuration",
        ));
    };
    let shown = written.to_str().ok().and_then(|written| written.split_once(' '));
    let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let accepted = shown.and_then(|(_, text)| {
        let shown = Shown::from_text(text.trim())?;
        let token = Token::from_text(&managed.get(ManagedKind::Token, &shown.id)?).ok()?;
        token.accepts(&shown, shared.engine.clock.wall()).then_some((shown.id, token))
    });
    let (id, token) =
        accepted.ok_or_else(|| wrong("the token is wrong, has ended or was revoked"))?;
    let token = Accepted {
        id: id.into(),
        role: token.role,
        tenant: token.tenant.map(String::into_boxed_str),
    };
    Ok(Requester { address, is_remote, token: Some(Arc::new(token)) })
}

impl Requester {
    /// Checks whether the requester may ask for a path, given as in the routes, and the tenant in it.
    fn check(&self, path: &str, is_read: bool, tenant: Option<&str>) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let rule = rule_of(path);
        let needed = if is_read { rule.read } else { rule.change };
        if token.role < needed {
            return Err(Refusal::forbidden(format!(
                "the token {} has the role {}, and this needs the role {}",
                token.id,
                token.role.name(),
                needed.name()
            )));
        }
        let Some(own) = token.tenant.as_deref() else { return Ok(()) };
        let may = match rule.tenant {
            Tenant::InPath => tenant == Some(own),
            Tenant::Confined => true,
            Tenant::Never => false,
            Tenant::NeverChanged => is_read && tenant == Some(own),
        };
        if may { Ok(()) } else { Err(self.outside()) }
    }

    /// Returns the address of the requester.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether the requester might still ask: its token was not revoked and has not ended, or none is needed. For
    /// answers that take long.
    pub fn is_still_valid(&self, shared: &Shared) -> bool {
        let managed = &shared.engine.managed;
        let needs_token = needs_token(shared, self.is_remote);
        let Some(own) = &self.token else { return !needs_token };
        let token = managed.get(ManagedKind::Token, &own.id);
        let token = token.and_then(|text| Token::from_text(&text).ok());
        !needs_token || token.is_some_and(|token| !token.is_over(shared.engine.clock.wall()))
    }

    /// Returns the tenant that a request is about, given the one that it names; `None`: all tenants.
    ///
    /// # Errors
    /// The token is for another tenant.
    pub fn confine(&self, named: Option<String>) -> Result<Option<String>, Refusal> {
        match (self.tenant(), named) {
            (None, named) => Ok(named),
            (Some(own), None) => Ok(Some(own.into())),
            (Some(own), Some(named)) if named == own => Ok(Some(named)),
            (Some(_), Some(_)) => Err(self.outside()),
        }
    }

    /// Checks that a request is about a tenant for which the token is. `None`: it is about the whole broker.
    ///
    /// # Errors
    /// The token is for another tenant.
    pub fn may_change(&self, tenant: Option<&str>) -> Result<(), Refusal> {
        match self.tenant() {
            Some(own) if tenant != Some(own) => Err(self.outside()),
            _ => Ok(()),
        }
    }

    /// Returns the only tenant that the token is for; `None`: the whole broker.
    pub fn tenant(&self) -> Option<&str> {
        self.token.as_ref()?.tenant.as_deref()
    }

    fn outside(&self) -> Refusal {
        let tenant = self.tenant().unwrap_or_default();
        Refusal::forbidden(format!("the token is for the tenant {tenant:?} only"))
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => address.fmt(f)?,
            None => f.write_str("unknown")?,
        }
        match &self.token {
            Some(token) => write!(f, " with token {}", token.id),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(role: Role, tenant: Option<&str>) -> Requester {
        let token = Accepted { id: "k".into(), role, tenant: tenant.map(Into::into) };
        Requester { address: None, is_remote: false, token: Some(Arc::new(token)) }
    }

    const TENANT: &str = "/v1/tenants/{tenant}";

    #[test]
    fn a_role_may_do_what_those_before_it_may() {
        let sessions = format!("{TENANT}/sessions/{{client}}");
        let key = format!("{TENANT}/state/{{key}}");
        let messages = format!("{TENANT}/queues/{{queue}}/messages");
        for (path, is_read, needed) in [
            (&*sessions, true, Role::Viewer),
            (&sessions, false, Role::Operator),
            (&key, true, Role::Operator),
            (&messages, true, Role::Operator),
            (&messages, false, Role::Operator),
            (TENANT, true, Role::Viewer),
            (TENANT, false, Role::Admin),
            ("/v1/users/{tenant}/{*client}", false, Role::Admin),
            ("/v1/bans", false, Role::Operator),
            ("/v1/tokens", true, Role::Admin),
            ("/v1/backup", true, Role::Admin),
            ("/metrics", true, Role::Viewer),
            ("/v1/something/new", true, Role::Admin),
        ] {
            for role in [Role::Viewer, Role::Operator, Role::Admin] {
                let may = requester(role, None).check(path, is_read, Some("acme")).is_ok();
                assert_eq!(may, role >= needed, "{path} {is_read} {role:?}");
            }
        }
    }

    #[test]
    fn a_token_of_a_tenant_is_for_nothing_else() {
        let own = requester(Role::Admin, Some("acme"));
        let sessions = format!("{TENANT}/sessions");
        assert!(own.check(&sessions, false, Some("acme")).is_ok());
        assert!(own.check(&sessions, true, Some("other")).is_err());
        assert!(own.check(TENANT, true, Some("acme")).is_ok());
        assert!(own.check(TENANT, false, Some("acme")).is_err(), "its limits are the operator's");
        for path in ["/metrics", "/v1/shards", "/v1/backup", "/v1/something/new"] {
            assert!(own.check(path, true, None).is_err(), "{path}");
        }
        assert_eq!(own.confine(None).unwrap().as_deref(), Some("acme"));
        assert_eq!(own.confine(Some("acme".into())).unwrap().as_deref(), Some("acme"));
        assert!(own.confine(Some("other".into())).is_err());
        assert!(own.may_change(None).is_err() && own.may_change(Some("other")).is_err());
        assert!(own.may_change(Some("acme")).is_ok());
        let all = requester(Role::Admin, None);
        assert_eq!(all.confine(None).unwrap(), None);
        assert!(all.may_change(None).is_ok());
    }
}
