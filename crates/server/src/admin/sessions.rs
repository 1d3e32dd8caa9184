//! `/v1/tenants/{tenant}/sessions`: sessions, their contents, and their end.

use std::collections::BinaryHeap;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use barid_engine::session::{SessionRef, State as SessionState};
use barid_engine::tenant::Tenant;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal, not_durable};
use super::page::{LIMIT_MAX, check_limit, cut};
use super::rfc3339::Rfc3339;
use super::{Served, facts, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
    /// Only sessions with a client (`true`), or without (`false`).
    connected: Option<bool>,
}

impl Default for Question {
    fn default() -> Self {
        Self { limit: 100, after: None, connected: None }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionList)]
pub struct Page {
    sessions: Vec<Listed>,
    /// The last client identifier, if there are more: the next page is the one `after` it.
    next: Option<Box<str>>,
    /// In a cluster: the brokers whose part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_answered: Option<Vec<String>>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionSummary)]
struct Described {
    /// The client identifier.
    client: Box<str>,
    /// Whether its client is connected.
    connected: bool,
    /// The version of MQTT; `None`: no client is connected.
    protocol: Option<&'static str>,
    /// The user; `None`: it has none.
    user: Option<Box<str>>,
    /// `local`: the session outlives the broker; `memory`: it does not.
    durability: &'static str,
    /// The Session Expiry Interval; `None`: the session does not expire.
    expiry_seconds: Option<u32>,
    /// When the session ends if its client does not come back; `None`: it is connected, or the session does not
    /// expire.
    expires_at: Option<Rfc3339>,
    /// Messages that wait for the client.
    queued_messages: usize,
    /// Bytes of the messages that wait.
    queued_bytes: usize,
    /// Since when the first of them waits; `None`: none does.
    oldest_queued_at: Option<Rfc3339>,
    /// Messages that were sent and not acknowledged.
    in_flight: u16,
    /// QoS 2 messages that the client has sent and not released.
    unreleased: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedSession)]
struct Listed {
    #[serde(flatten)]
    session: Described,
    /// The number of its subscriptions.
    subscriptions: usize,
    /// The broker that has it, in the list of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct Detailed {
    #[serde(flatten)]
    session: Described,
    /// The subscriptions, by filter.
    subscriptions: Vec<Subscription>,
    /// The Will Message; `None`: it has none.
    will: Option<Will>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Subscribed)]
pub struct Subscription {
    filter: Box<str>,
    qos: u8,
    /// Whether messages of the client itself are left out.
    no_local: bool,
    /// Whether the RETAIN flag is kept.
    retain_as_published: bool,
    /// The Subscription Identifier; `None`: it has none.
    identifier: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Will {
    topic: String,
    /// The Will Delay Interval, in seconds.
    delay_seconds: u32,
}

type SessionPath = Result<Path<(String, String)>, PathRejection>;

/// Lists MQTT sessions, by client identifier.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/sessions", operation_id = "list_sessions",
    params(Question),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), Query(question)) = (path?, question?);
    check_limit(question.limit, LIMIT_MAX)?;
    let tenant = tenants::named(&served, &tenant)?;
    let after = question.after.as_deref();
    let found = first_after(&tenant, after, question.limit + 1, |session| {
        question.connected.is_none_or(|connected| connected == session.is_online())
    });
    let (sessions, next) = cut(found, question.limit, |last| last.client_id.clone());
    let listed = |session: &SessionRef| {
        let (session, subscriptions) = describe(session, |state| state.subscriptions.count());
        Listed { session, subscriptions, broker: None }
    };
    let sessions = sessions.iter().map(listed).collect();
    Ok(Json(Page { sessions, next, not_answered: None }))
}

/// Shows a session, with its subscriptions.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/sessions/{client}", operation_id = "show_session",
    responses((status = 200, body = Detailed))
)]
pub async fn show(State(served): State<Served>, path: SessionPath) -> Answer<Detailed> {
    let session = named(&served, path)?;
    let will = will(&session);
    let (session, subscriptions) = describe(&session, subscriptions);
    Ok(Json(Detailed { session, subscriptions, will }))
}

/// Returns the Will Message of a session.
pub fn will(session: &SessionRef) -> Option<Will> {
    session.state().will.as_ref().map(|will| Will {
        topic: will.message.publication().topic.to_owned(),
        delay_seconds: will.delay,
    })
}

/// Ends a session. Its client is disconnected.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/sessions/{client}", operation_id = "end_session",
    responses((status = 204))
)]
pub async fn end(State(served): State<Served>, path: SessionPath) -> Result<StatusCode, Refusal> {
    let session = named(&served, path)?;
    match facts::end_session(&served.shared, &session).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => Err(not_durable("the session may exist again after a restart")),
    }
}

/// Returns the session that a path names.
fn named(served: &Served, path: SessionPath) -> Result<SessionRef, Refusal> {
    let Path((tenant, client)) = path?;
    tenants::session_named(served, (&tenant, &client))?.ok_or_else(|| {
        Refusal::not_found(format!("the tenant {tenant:?} has no session of the client {client:?}"))
    })
}

/// Returns the first sessions behind `after` in the order of client identifiers, of those that are wanted. Visits all, and
/// holds no more than `count` and one.
pub fn first_after(
    tenant: &Tenant,
    after: Option<&str>,
    count: usize,
    is_wanted: impl Fn(&SessionRef) -> bool,
) -> Vec<SessionRef> {
    let mut first: BinaryHeap<ByClient> = BinaryHeap::with_capacity(count + 1);
    tenant.sessions.for_each(|session| {
        let client = &*session.client_id;
        let comes_first = after.is_none_or(|after| client > after)
            && (first.len() < count || first.peek().is_some_and(|last| client < last.client()));
        if comes_first && is_wanted(session) {
            first.push(ByClient(session.clone()));
            if first.len() > count {
                first.pop();
            }
        }
    });
    first.into_sorted_vec().into_iter().map(|by_client| by_client.0).collect()
}

/// Describes a session, and its subscriptions. Its state and its outlet are read one after the other, so they may be from different
/// moments.
fn describe<S>(session: &SessionRef, subscriptions: impl Fn(&SessionState) -> S) -> (Described, S) {
    let (user, expiry, subscriptions, unreleased) = {
        let state = session.state();
        (state.user().map(Box::from), state.expiry, subscriptions(&state), state.received.len())
    };
    let expiry_seconds = (expiry != u32::MAX).then_some(expiry);
    let (version, queued_messages, queued_bytes, in_flight) = session.inspect(|outbound, link| {
        let queue = outbound.queue();
        let in_flight = outbound.window().in_flight();
        (link.map(|link| link.version), queue.len(), queue.bytes(), in_flight)
    });
    let away_since = facts::away_since(session).filter(|_| version.is_none());
    let expires_at = away_since.zip(expiry_seconds).map(|(since, seconds)| {
        Rfc3339::from(since.after(Duration::from_secs(u64::from(seconds))))
    });
    let described = Described {
        client: session.client_id.clone(),
        connected: version.is_some(),
        protocol: version.map(protocol),
        user,
        durability: facts::durability(session),
        expiry_seconds,
        expires_at,
        queued_messages,
        queued_bytes,
        oldest_queued_at: facts::oldest_queued_at(session).map(Rfc3339::from),
        in_flight,
        unreleased,
    };
    (described, subscriptions)
}

/// Returns all subscriptions, by filter.
pub fn subscriptions(state: &SessionState) -> Vec<Subscription> {
    subscriptions_where(state, |_| true)
}

/// Returns the subscriptions with such filters, by filter.
pub fn subscriptions_where(
    state: &SessionState,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<Subscription> {
    let mut all: Vec<_> = state
        .subscriptions
        .iter()
        .filter(|subscription| is_wanted(&subscription.filter))
        .map(|subscription| Subscription {
            filter: subscription.filter.clone(),
            qos: subscription.qos as u8,
            no_local: subscription.no_local,
            retain_as_published: subscription.retain_as_published,
            identifier: subscription.identifier.map(Into::into),
        })
        .collect();
    all.sort_unstable_by(|a, b| a.filter.cmp(&b.filter));
    all
}

/// Returns the name of a version.
pub fn protocol(version: mqtt_proto::Version) -> &'static str {
    match version {
        mqtt_proto::Version::V3_1 => "3.1",
        mqtt_proto::Version::V3_1_1 => "3.1.1",
        mqtt_proto::Version::V5 => "5.0",
    }
}

/// A session that is ordered by its client identifier.
struct ByClient(SessionRef);

impl ByClient {
    fn client(&self) -> &str {
        &self.0.client_id
    }
}

impl Ord for ByClient {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.client().cmp(other.client())
    }
}

impl PartialOrd for ByClient {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByClient {
    fn eq(&self, other: &Self) -> bool {
        self.client() == other.client()
    }
}

impl Eq for ByClient {}
