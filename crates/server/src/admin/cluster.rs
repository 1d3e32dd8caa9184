//! `/v1/cluster`: the cluster, as this broker sees it, and `/v1/cluster/slots`: which broker has which sessions.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Served;
use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use crate::cluster::{Clustering, MemberView, Problem, View};

#[derive(Debug, Serialize)]
pub struct Described {
    cluster: String,
    broker: String,
    address: String,
    incarnation: u64,
    filters: usize,
    members: Vec<Member>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Member {
    #[serde(flatten)]
    view: MemberView,
    since: Rfc3339,
}

pub async fn show(State(served): State<Served>) -> Answer<Described> {
    let cluster = cluster_of(&served)?;
    let view = cluster.view(served.shared.watchdogs.len());
    let View { cluster, broker, address, incarnation, filters, members, problems } = view;
    let members = members.into_iter().map(|view| Member { since: view.since.into(), view });
    let members = members.collect();
    Ok(Json(Described { cluster, broker, address, incarnation, filters, members, problems }))
}

#[derive(Debug, Serialize)]
pub struct Slots {
    slots: Vec<Slot>,
}

#[derive(Debug, Serialize)]
struct Slot {
    slot: u16,
    broker: String,
    state: &'static str,
}

pub async fn slots(State(served): State<Served>) -> Answer<Slots> {
    let cluster = cluster_of(&served)?;
    let Some(placement) = cluster.placement() else {
        return Err(Refusal::not_found(
            "this cluster has no slots, because its configuration has no `homes`: a session is at the broker where it began",
        ));
    };
    let members = cluster.view(served.shared.watchdogs.len()).members;
    let state = |broker: &str| match members.iter().find(|member| member.name == broker) {
        Some(member) => member.state,
        None if broker == cluster.name() => "up",
        None => "unknown",
    };
    let slots = (0..placement.slots()).map(|slot| {
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
