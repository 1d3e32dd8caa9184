//! `/v1/cluster`: the cluster, as this broker sees it, and `/v1/cluster/slots`: which broker has which sessions.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Served;
use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use crate::cluster::{Clustering, MemberView, Problem};

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
pub struct Slots {
    slots: Vec<Slot>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Slot {
    slot: u16,
    /// The broker that has the sessions of the slot.
    broker: String,
    /// The state of this broker.
    state: &'static str,
}

/// Which slots are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WantedSlots {
    /// Only that of what this tenant has at one broker.
    tenant: Option<String>,
}

/// Shows which broker has which sessions.
#[utoipa::path(
    get, path = "/v1/cluster/slots", operation_id = "list_slots",
    params(WantedSlots),
    responses((status = 200, body = Slots))
)]
pub async fn slots(
    State(served): State<Served>,
    wanted: Result<Query<WantedSlots>, QueryRejection>,
) -> Answer<Slots> {
    let Query(WantedSlots { tenant }) = wanted?;
    let cluster = cluster_of(&served)?;
    let Some(placement) = cluster.placement() else {
        return Err(Refusal::not_found(
            "this cluster has no slots, because its configuration has no `homes`: a session is at the broker where it began",
        ));
    };
    let members =
        cluster.view(served.shared.engine.clock.now(), served.shared.watchdogs.len()).members;
    let state = |broker: &str| match members.iter().find(|member| member.name == broker) {
        Some(member) => member.state,
        None if broker == cluster.name() => "up",
        None => "unknown",
    };
    let of_tenant = tenant.map(|tenant| placement.slot_of_tenant(&tenant));
    let wanted = (0..placement.slots()).filter(|slot| of_tenant.is_none_or(|only| *slot == only));
    let slots = wanted.map(|slot| {
        let broker = placement.home_of(slot);
        Slot { slot, broker: broker.into(), state: state(broker) }
    });
    Ok(Json(Slots { slots: slots.collect() }))
}

fn cluster_of(served: &Served) -> Result<&Clustering, Refusal> {
    served.shared.cluster.as_deref().ok_or_else(|| {
        Refusal::not_found(
            "this broker does not belong to a cluster: its configuration has no [cluster]",
        )
    })
}
