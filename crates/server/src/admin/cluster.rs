//! `/v1/cluster`: the cluster, as this broker sees it.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Served;
use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use crate::cluster::{MemberView, Problem, View};

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
    let Some(cluster) = &served.shared.cluster else {
        return Err(Refusal::not_found(
            "this broker does not belong to a cluster: its configuration has no [cluster]",
        ));
    };
    let view = cluster.view(served.shared.watchdogs.len());
    let View { cluster, broker, address, incarnation, filters, members, problems } = view;
    let members = members.into_iter().map(|view| Member { since: view.since.into(), view });
    let members = members.collect();
    Ok(Json(Described { cluster, broker, address, incarnation, filters, members, problems }))
}
