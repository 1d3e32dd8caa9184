//! `/v1/tenants/{tenant}/drops`: messages that did not reach a subscriber.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use barid_core::drop_reason::DropReason;
use barid_engine::drops::{self, DroppedMessage, Wanted};
use mqtt_proto::topic;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use super::{Served, facts, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only messages to this client.
    client: Option<String>,
    /// Only messages of topics that this filter matches.
    topic: Option<String>,
    /// Only messages that were dropped for this reason.
    reason: Option<String>,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { client: None, topic: None, reason: None, limit: 100 }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DropList)]
pub struct Drops {
    drops: Vec<Dropped>,
    /// Counts of the tenant since the start of the broker, for all clients.
    totals: BTreeMap<&'static str, u64>,
    /// Maximum number of drops that each thread remembers.
    remembered: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DroppedMessage)]
struct Dropped {
    at: Rfc3339,
    /// The topic; `None`: it is not known any more.
    topic: Option<String>,
    /// The client that the message was for.
    client: String,
    /// The name of the reason, as in `totals`.
    reason: &'static str,
    /// The reason, in a sentence.
    explanation: &'static str,
}

/// Lists messages that were dropped, with the reasons.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/drops", operation_id = "list_drops",
    params(Question),
    responses((status = 200, body = Drops))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Drops> {
    let (Path(tenant), Query(question)) = (path?, question?);
    let tenant = tenants::named(&served, &tenant)?;
    let wanted = Wanted {
        client: question.client.as_deref(),
        topic: question.topic.as_deref().map(filter).transpose()?,
        reason: question.reason.as_deref().map(reason).transpose()?,
    };
    let recent = drops::merge(facts::drop_logs(&tenant), &wanted, question.limit);
    let totals = tenant.totals().dropped;
    Ok(Json(Drops {
        drops: recent.drops.into_iter().map(Dropped::from).collect(),
        totals: DropReason::ALL.map(|reason| (reason.name(), totals[reason as usize])).into(),
        remembered: recent.remembered,
    }))
}

impl From<DroppedMessage> for Dropped {
    fn from(drop: DroppedMessage) -> Self {
        Self {
            at: Rfc3339::from(drop.at),
            topic: drop.topic,
            client: drop.client,
            reason: drop.reason.name(),
            explanation: drops::explanation(drop.reason),
        }
    }
}

/// Checks a topic or topic filter. Returns it, or the filter in it if it is that of a shared subscription.
fn filter(topic: &str) -> Result<&str, Refusal> {
    let bad =
        |error| Refusal::bad_request(format!("{topic:?} is not a valid topic or filter: {error}"));
    topic::validate_filter(topic).map_err(bad)?;
    Ok(topic::parse_shared(topic).map_err(bad)?.map_or(topic, |shared| shared.filter))
}

fn reason(name: &str) -> Result<DropReason, Refusal> {
    DropReason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        let names = DropReason::ALL.map(DropReason::name).join(", ");
        Refusal::bad_request(format!("unknown reason {name:?}; valid reasons: {names}"))
    })
}
