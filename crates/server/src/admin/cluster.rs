//! `/v1/cluster`: the cluster, as this broker sees it, `/v1/cluster/slots`: which broker has which sessions, and moves of slots,
//! and `/v1/tenants/{tenant}/routes`: the topic filters of other brokers.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use barid_engine::cluster::{Moved, Slots, WantedRoutes};
use barid_engine::names::DEFAULT_TENANT;
use mqtt_proto::topic;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut, default_limit};
use super::rfc3339::Rfc3339;
use super::{Served, body, tenants};
use crate::cluster::{Clustering, Given, MemberView, NotMoved, Problem, WantedMove};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Cluster)]
pub struct Described {
    /// The name of the cluster.
    cluster: String,
    /// The name of this broker.
    broker: String,
    /// The address of this broker for others.
    address: String,
    /// The number of this start of the broker.
    incarnation: u64,
    /// Whether links have TLS.
    encrypted: bool,
    /// When the certificate for links expires; `None`: there is none.
    certificate_expires_at: Option<Rfc3339>,
    /// Whether this broker takes clients, and not joins still.
    takes_clients: bool,
    /// Whether enough brokers hear this one, so that it may acknowledge messages.
    has_quorum: bool,
    /// Number of distinct topic filters of its own clients.
    filters: usize,
    /// The other brokers.
    members: Vec<Member>,
    /// Addresses to which there is no link.
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClusterMember)]
struct Member {
    #[serde(flatten)]
    view: MemberView,
    /// When it came to its state.
    since: Rfc3339,
}

/// Shows the brokers of the cluster, and the links to them.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "show_cluster",
    responses((status = 200, body = Described))
)]
pub async fn show(State(served): State<Served>) -> Answer<Described> {
    let cluster = cluster_of(&served)?;
    let view = cluster.view(served.shared.engine.clock.now(), served.shared.watchdogs.len());
    let members = view.members.into_iter().map(|view| Member { since: view.since.into(), view });
    Ok(Json(Described {
        members: members.collect(),
        cluster: view.cluster,
        broker: view.broker,
        address: view.address,
        incarnation: view.incarnation,
        encrypted: view.encrypted,
        certificate_expires_at: view.certificate_expires.map(Rfc3339::from),
        takes_clients: view.takes_clients,
        has_quorum: view.has_quorum,
        filters: view.filters,
        problems: view.problems,
    }))
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlotList)]
pub struct ListedSlots {
    slots: Vec<Slot>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Slot {
    slot: u16,
    /// The broker that has the sessions of the slot.
    broker: String,
    /// The state of this broker.
    state: &'static str,
    /// Number of times that the slot was moved.
    generation: u64,
    /// The broker that is about to get the slot; `None`: it is not being moved, or the broker that is asked does not have
    /// it.
    moving_to: Option<String>,
}

/// Which slots are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WantedSlots {
    /// Only that of what this tenant has at one broker.
    tenant: Option<String>,
    /// Only that of this client of the tenant (`default`, if none is given).
    client: Option<String>,
}

/// Shows which broker has which sessions.
#[utoipa::path(
    get, path = "/v1/cluster/slots", operation_id = "list_slots",
    params(WantedSlots),
    responses((status = 200, body = ListedSlots))
)]
pub async fn slots(
    State(served): State<Served>,
    wanted: Result<Query<WantedSlots>, QueryRejection>,
) -> Answer<ListedSlots> {
    let Query(WantedSlots { tenant, client }) = wanted?;
    let cluster = cluster_of(&served)?;
    let map = map_of(cluster)?;
    let members =
        cluster.view(served.shared.engine.clock.now(), served.shared.watchdogs.len()).members;
    let state = |broker: &str| match members.iter().find(|member| member.name == broker) {
        Some(member) => member.state,
        None if broker == cluster.name() => "up",
        None => "unknown",
    };
    let only = match (tenant, client) {
        (tenant, Some(client)) => {
            Some(map.slot(tenant.as_deref().unwrap_or(DEFAULT_TENANT), &client))
        }
        (Some(tenant), None) => Some(map.slot_of_tenant(&tenant)),
        (None, None) => None,
    };
    let wanted = (0..map.count()).filter(|slot| only.is_none_or(|only| *slot == only));
    let slots = wanted.map(|slot| {
        let Moved { broker, generation } = map.place(slot);
        let (state, moving_to) = (state(&broker), cluster.moves.of(slot));
        Slot { slot, broker: (*broker).into(), state, generation, moving_to }
    });
    Ok(Json(ListedSlots { slots: slots.collect() }))
}

/// Where a slot is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WantedPlace)]
pub struct WantedPlace {
    /// The name of the broker that is to have the slot.
    broker: String,
}

/// A slot that was moved.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MovedSlot)]
pub struct MovedSlot {
    slot: u16,
    /// The broker that has it now.
    broker: String,
    /// Number of times that the slot was moved.
    generation: u64,
    /// Number of its sessions.
    sessions: usize,
    /// Size of its contents, in bytes.
    bytes: usize,
    /// Time for which its clients could not connect, in milliseconds.
    closed_ms: u64,
    /// Time for which no broker took messages from clients, in milliseconds.
    held_ms: u64,
    /// Whether the broker has said that it has the slot. Otherwise it takes it over when it can be reached.
    is_active: bool,
}

/// Moves a slot to another broker, with its sessions, and with the state store, queues, topics and bindings of its tenants.
#[utoipa::path(
    patch, path = "/v1/cluster/slots/{slot}", operation_id = "move_slot",
    request_body = WantedPlace,
    responses((status = 200, body = MovedSlot))
)]
pub async fn move_slot(
    State(served): State<Served>,
    slot: Result<Path<u16>, PathRejection>,
    text: Bytes,
) -> Answer<MovedSlot> {
    let Path(slot) = slot?;
    let WantedPlace { broker } = body::properties(&text)?;
    let cluster = cluster_of(&served)?;
    let map = map_of(cluster)?;
    if slot >= map.count() {
        let sentence = format!("there is no slot {slot}; the cluster has {}", map.count());
        return Err(Refusal::not_found(sentence));
    }
    let (reply, outcome) = oneshot::channel();
    if !cluster.moves.want(WantedMove { slot, to: broker.clone(), reply }) {
        return Err(Refusal::unavailable("too many slots are being moved: try again later"));
    }
    let outcome = outcome.await.map_err(|_| Refusal::unavailable("the broker stops"))?;
    let Given { generation, sessions, bytes, closed_ms, held_ms, is_active } =
        outcome.map_err(|reason| match reason {
            NotMoved::Failed(_) => Refusal::unavailable(reason.to_string()),
            _ => Refusal::conflict(reason.to_string()),
        })?;
    Ok(Json(MovedSlot { slot, broker, generation, sessions, bytes, closed_ms, held_ms, is_active }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RouteQuestion {
    /// Only filters that match this topic.
    topic: Option<String>,
    #[serde(default = "default_limit")]
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RouteList)]
pub struct ListedRoutes {
    /// In the order of their bytes.
    routes: Vec<Route>,
    /// The last of these, if there are more: the next page is the one `after` it.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Route {
    /// The topic filter; that of a shared subscription is `$share/{name}/{filter}`.
    filter: String,
    /// The other brokers whose sessions have subscribed to it, by name. One of those of a shared subscription gets a message,
    /// or this broker if it has members too.
    brokers: Vec<String>,
}

/// Lists the topic filters to which sessions of other brokers have subscribed, as far as this broker has heard of them:
/// messages that match are sent there.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/routes", operation_id = "list_routes",
    params(RouteQuestion),
    responses((status = 200, body = ListedRoutes))
)]
pub async fn routes(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<RouteQuestion>, QueryRejection>,
) -> Answer<ListedRoutes> {
    let (Path(tenant), Query(RouteQuestion { topic, limit, after })) = (path?, question?);
    check_limit(limit, LIMIT_MAX)?;
    if let Some(topic) = &topic {
        topic::validate_name(topic)
            .map_err(|error| Refusal::bad_request(format!("{topic:?} is not a topic: {error}")))?;
    }
    cluster_of(&served)?;
    let cluster = served.shared.engine.cluster.as_ref().expect("the broker belongs to one");
    let (topic, after) = (topic.as_deref(), after.as_deref());
    let found = cluster.routes(&tenant, WantedRoutes { topic, after, count: limit + 1 });
    if found.is_empty() {
        tenants::named(&served, &tenant)?;
    }
    let (found, next) = cut(found, limit, |(filter, _)| String::from(&**filter));
    let routes = found.into_iter().map(|(filter, members)| {
        let names = members.into_iter().filter_map(|member| cluster.name_of(member));
        let mut brokers: Vec<_> = names.collect();
        brokers.sort_unstable();
        Route { filter: filter.into(), brokers }
    });
    Ok(Json(ListedRoutes { routes: routes.collect(), next }))
}

fn map_of(cluster: &Clustering) -> Result<&Slots, Refusal> {
    let map = cluster.slots().map(|slots| &**slots);
    map.ok_or_else(|| {
        Refusal::not_found(
            "this cluster has no slots, because its configuration has no `homes`: a session is at the broker where it began",
        )
    })
}

fn cluster_of(served: &Served) -> Result<&Clustering, Refusal> {
    served.shared.cluster.as_deref().ok_or_else(|| {
        Refusal::not_found(
            "this broker does not belong to a cluster: its configuration has no [cluster]",
        )
    })
}
