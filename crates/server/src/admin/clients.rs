//! `/v1/tenants/{tenant}/clients`: who is connected, over MQTT and AMQP.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use barid_engine::amqp_clients::AmqpClient;
use barid_engine::client_traffic::Passed;
use barid_engine::session::{SessionRef, State as SessionState};
use barid_engine::tenant::Tenant;
use mqtt_proto::ReasonCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut};
use super::rfc3339::Rfc3339;
use super::sessions::{Subscription, Will, first_after, protocol, subscriptions, will};
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
    /// Only clients whose identifier contains this.
    search: Option<String>,
    /// Only clients that are this user.
    user: Option<String>,
    /// Only clients whose address, without the port, begins with this.
    address: Option<String>,
    /// Only clients of this protocol.
    #[param(inline)]
    protocol: Option<Protocol>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Mqtt,
    Amqp,
}

impl Default for Question {
    fn default() -> Self {
        let (after, search, user, address, protocol) = Default::default();
        Self { limit: 100, after, search, user, address, protocol }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClientList)]
pub struct Page {
    clients: Vec<Listed>,
    /// The place of the last client, if there are more: the next page is the one `after` it.
    next: Option<String>,
    /// In a cluster: the brokers whose part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_answered: Option<Vec<String>>,
}

/// A client that is connected.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClientSummary)]
struct Client {
    /// The client identifier, or the container id.
    client: Box<str>,
    /// The number of the connection.
    connection: u64,
    /// `MQTT` or `AMQP`.
    protocol: &'static str,
    /// The version of the protocol.
    version: &'static str,
    /// `None`: it has none, or is known by its key.
    user: Option<Box<str>>,
    /// The shared access key of an AMQP client.
    key: Option<String>,
    /// Address and port of the client.
    address: String,
    /// The listener that it has reached; `None` over AMQP.
    listener: Option<&'static str>,
    connected_at: Rfc3339,
    #[serde(flatten)]
    traffic: Traffic,
    #[serde(flatten)]
    #[schema(value_type = Session)]
    session: Option<Session>,
}

/// Messages since the client has connected, and the bytes of their packets.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClientTraffic)]
struct Traffic {
    /// Messages that the broker has received from it.
    received_messages: u64,
    /// Bytes that the broker has received from it.
    received_bytes: u64,
    /// Messages that the broker has sent to it.
    sent_messages: u64,
    /// Bytes that the broker has sent to it.
    sent_bytes: u64,
}

impl Traffic {
    fn of((received, sent): (Passed, Passed)) -> Self {
        Self {
            received_messages: received.messages,
            received_bytes: received.bytes,
            sent_messages: sent.messages,
            sent_bytes: sent.bytes,
        }
    }
}

/// What only a client of MQTT has.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClientSession)]
struct Session {
    /// In seconds; 0: it is switched off.
    #[schema(required = false)]
    keep_alive: u16,
    /// The Session Expiry Interval; `None`: the session does not expire.
    expiry_seconds: Option<u32>,
    /// Messages that were sent and not acknowledged.
    #[schema(required = false)]
    in_flight: u16,
    /// Messages that wait for the client.
    #[schema(required = false)]
    queued_messages: usize,
    /// Bytes of the messages that wait.
    #[schema(required = false)]
    queued_bytes: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedClient)]
struct Listed {
    #[serde(flatten)]
    client: Client,
    /// The number of its subscriptions, if it is a client of MQTT.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<usize>,
    /// The broker that has it, in the list of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Client)]
pub struct Detailed {
    #[serde(flatten)]
    client: Client,
    /// The subscriptions, by filter.
    subscriptions: Vec<Subscription>,
    /// The Will Message; `None`: it has none.
    will: Option<Will>,
}

type ClientPath = Result<Path<(String, String)>, PathRejection>;

/// Lists the clients that are connected, over MQTT and AMQP.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/clients", operation_id = "list_clients",
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
    let after = question.after.as_deref().map(Place::of).transpose()?;
    let found = found_after(&tenant, &question, after.as_ref(), question.limit + 1);
    let (clients, next) = cut(found, question.limit, |(place, _)| place.to_string());
    let clients = clients.into_iter().map(|(_, client)| client).collect();
    Ok(Json(Page { clients, next, not_answered: None }))
}

/// Shows a client of MQTT, with its subscriptions.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/clients/{client}", operation_id = "show_client",
    responses((status = 200, body = Detailed))
)]
pub async fn show(State(served): State<Served>, path: ClientPath) -> Answer<Detailed> {
    let (missing, session) = named(&served, path)?;
    let (client, subscriptions) = describe(&session, subscriptions).ok_or(missing)?;
    Ok(Json(Detailed { client, subscriptions, will: will(&session) }))
}

/// Closes the connection of a client. Its session stays, if it outlives the connection.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/clients/{client}", operation_id = "disconnect_client",
    responses((status = 202))
)]
pub async fn disconnect(
    State(served): State<Served>,
    path: ClientPath,
) -> Result<StatusCode, Refusal> {
    let (missing, session) = named(&served, path)?;
    if !session.is_online() {
        return Err(missing);
    }
    session.close_connection(ReasonCode::AdministrativeAction);
    Ok(StatusCode::ACCEPTED)
}

/// Returns the session of the client that a path names, and the error for the case that the client is not connected.
fn named(served: &Served, path: ClientPath) -> Result<(Refusal, SessionRef), Refusal> {
    let Path((tenant, client)) = path?;
    let session = tenants::session_named(served, (&tenant, &client))?;
    let missing = || {
        Refusal::not_found(format!("no client {client:?} of the tenant {tenant:?} is connected"))
    };
    session.map(|session| (missing(), session)).ok_or_else(missing)
}

/// The place of a client in the list: clients of MQTT by their identifiers, then those of AMQP by the numbers of their
/// connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Mqtt(Box<str>),
    Amqp(u64),
}

impl Place {
    fn of(text: &str) -> Result<Self, Refusal> {
        let place = match text.split_once('/') {
            Some(("mqtt", client)) => Some(Self::Mqtt(client.into())),
            Some(("amqp", number)) => number.parse().ok().map(Self::Amqp),
            _ => None,
        };
        place.ok_or_else(|| Refusal::bad_request("after must be the `next` of an earlier answer"))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mqtt(client) => write!(f, "mqtt/{client}"),
            Self::Amqp(number) => write!(f, "amqp/{number}"),
        }
    }
}

/// Returns the first `count` clients of the list behind a place.
fn found_after(
    tenant: &Tenant,
    question: &Question,
    after: Option<&Place>,
    count: usize,
) -> Vec<(Place, Listed)> {
    let mut found = Vec::new();
    if question.protocol != Some(Protocol::Amqp) && !matches!(after, Some(Place::Amqp(_))) {
        let after = match after {
            Some(Place::Mqtt(client)) => Some(&**client),
            _ => None,
        };
        let sessions = first_after(tenant, after, count, |session| {
            session.is_online() && question.wants_session(session)
        });
        // One that has left meanwhile is not described.
        let clients = sessions.iter().filter_map(|session| {
            let (client, count) = describe(session, |state| state.subscriptions.count())?;
            let listed = Listed { client, subscriptions: Some(count), broker: None };
            Some((Place::Mqtt(session.client_id.clone()), listed))
        });
        found.extend(clients);
    }
    if question.protocol != Some(Protocol::Mqtt) {
        let mut after = match after {
            Some(Place::Amqp(number)) => *number,
            _ => 0,
        };
        while found.len() < count {
            let page = tenant.amqp_clients.page(after, count);
            let Some(last) = page.last() else { break };
            after = last.id.0;
            let wanted = page.iter().filter(|client| question.wants_amqp(client));
            let rest = count - found.len();
            found.extend(wanted.take(rest).map(|one| {
                let listed = Listed { client: amqp(one), subscriptions: None, broker: None };
                (Place::Amqp(one.id.0), listed)
            }));
        }
    }
    found
}

impl Question {
    fn wants_session(&self, session: &SessionRef) -> bool {
        self.wants_name(&session.client_id)
            && (self.user.is_none() || self.user.as_deref() == session.state().user())
            && (self.address.is_none()
                || session.inspect(|_, link| {
                    link.is_some_and(|link| self.wants_address(&link.peer.ip().to_string()))
                }))
    }

    fn wants_amqp(&self, client: &Arc<AmqpClient>) -> bool {
        self.wants_name(&client.container)
            && (self.user.is_none() || self.user == client.user)
            && self.wants_address(&client.peer.ip().to_string())
    }

    fn wants_name(&self, name: &str) -> bool {
        self.search.as_deref().is_none_or(|part| name.contains(part))
    }

    fn wants_address(&self, address: &str) -> bool {
        self.address.as_deref().is_none_or(|wanted| address.starts_with(wanted))
    }
}

/// Describes the client of a session, and its subscriptions; `None`: it has left.
fn describe<S>(
    session: &SessionRef,
    subscriptions: impl Fn(&SessionState) -> S,
) -> Option<(Client, S)> {
    let (user, expiry, subscriptions, connected_at) = {
        let state = session.state();
        let user = state.user().map(Box::from);
        (user, state.expiry, subscriptions(&state), state.connected_since)
    };
    session.inspect(|outbound, link| {
        let link = link?;
        let client = Client {
            client: session.client_id.clone(),
            connection: link.connection.0,
            protocol: "MQTT",
            version: protocol(link.version),
            user,
            key: None,
            address: link.peer.to_string(),
            listener: Some(link.listener),
            connected_at: connected_at.into(),
            traffic: Traffic::of(session.passed()),
            session: Some(Session {
                keep_alive: link.keep_alive,
                expiry_seconds: (expiry != u32::MAX).then_some(expiry),
                in_flight: outbound.window().in_flight(),
                queued_messages: outbound.queue().len(),
                queued_bytes: outbound.queue().bytes(),
            }),
        };
        Some((client, subscriptions))
    })
}

fn amqp(client: &Arc<AmqpClient>) -> Client {
    Client {
        client: client.container.as_str().into(),
        connection: client.id.0,
        protocol: "AMQP",
        version: "1.0",
        user: client.user.as_deref().map(Box::from),
        key: client.key.clone(),
        address: client.peer.to_string(),
        listener: None,
        connected_at: client.since.into(),
        traffic: Traffic::of(client.traffic.get()),
        session: None,
    }
}
