//! `/v1/tenants/{tenant}/retained`: the retained messages.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use barid_core::message::Message;
use barid_core::retained::Walked;
use barid_engine::retained::STEPS;
use barid_engine::retaining::{self, Removed};
use barid_engine::tenant::Tenant;
use mqtt_proto::{Properties, topic};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::changing::change;
use super::contents::Contents;
use super::page::{LIMIT_MAX, check_limit};
use super::rfc3339::Rfc3339;
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only messages of topics that this filter matches; `#` if it is not given.
    filter: String,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { filter: "#".into(), after: None, limit: 100 }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetainedMessageList)]
pub struct Page {
    messages: Vec<Described>,
    /// The last topic that was looked at, if there are more: the next page is the one `after` it.
    next: Option<Box<str>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetainedMessageSummary)]
struct Described {
    topic: String,
    qos: u8,
    /// Length of the payload, in bytes.
    payload_bytes: usize,
    /// `None`: the message does not expire.
    expires_at: Option<Rfc3339>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetainedMessage)]
pub struct Detailed {
    #[serde(flatten)]
    described: Described,
    #[serde(flatten)]
    contents: Contents,
}

/// Maximum number of times that the retained messages are locked for one answer: with a filter that matches few of many,
/// a page may be short although more follow.
const LOCKS: usize = 100;

type MessagePath = Result<Path<(String, String)>, PathRejection>;

/// Lists retained messages, by topic.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/retained", operation_id = "list_retained",
    params(Question),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), Query(Question { filter, after, limit })) = (path?, question?);
    check_limit(limit, LIMIT_MAX)?;
    topic::validate_filter(&filter)
        .map_err(|error| Refusal::bad_request(format!("{filter:?} is not a filter: {error}")))?;
    let tenant = tenants::named(&served, &tenant)?;
    let (mut messages, mut next) = (Vec::new(), after.map(String::into_boxed_str));
    for _ in 0..LOCKS {
        // The lock is held for a bounded time, because publishers of retained messages wait for it.
        let mut steps = STEPS;
        let walked =
            tenant.retained.read().walk(&filter, next.as_deref(), &mut steps, |_, message| {
                messages.push(describe(message));
                match messages.len() < limit {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
        next = match walked {
            Walked::All => None,
            Walked::To(topic) => Some(topic),
        };
        if next.is_none() || messages.len() >= limit {
            break;
        }
    }
    Ok(Json(Page { messages, next }))
}

/// Shows a retained message, with its payload.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/retained/{*topic}", operation_id = "show_retained",
    responses((status = 200, body = Detailed))
)]
pub async fn show(State(served): State<Served>, path: MessagePath) -> Answer<Detailed> {
    let (tenant, topic) = named(&served, path)?;
    let message = tenant.retained.read().get(&topic).cloned();
    let message = message.ok_or_else(|| missing(&tenant, &topic))?;
    let publication = message.publication();
    let properties = Properties::from_validated(publication.properties);
    let contents = Contents::of(publication.payload, properties, usize::MAX);
    Ok(Json(Detailed { described: describe(&message), contents }))
}

/// Removes a retained message. Subscribers are not told.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/retained/{*topic}", operation_id = "remove_retained",
    responses((status = 204))
)]
pub async fn remove(
    State(served): State<Served>,
    path: MessagePath,
) -> Result<StatusCode, Refusal> {
    let (tenant, topic) = named(&served, path)?;
    change(&served, |commits| match retaining::remove(&tenant, &topic, commits) {
        Removed::Removed => Ok(()),
        Removed::Missing => Err(missing(&tenant, &topic)),
        Removed::Closed => {
            Err(Refusal::unavailable("the shard of the message is closed: try again later"))
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn named(served: &Served, path: MessagePath) -> Result<(Arc<Tenant>, String), Refusal> {
    let Path((tenant, topic)) = path?;
    Ok((tenants::named(served, &tenant)?, topic))
}

fn missing(tenant: &Tenant, topic: &str) -> Refusal {
    let name = &tenant.name;
    Refusal::not_found(format!(
        "the tenant {name:?} has no retained message of the topic {topic:?}"
    ))
}

fn describe(message: &Arc<Message>) -> Described {
    let publication = message.publication();
    Described {
        topic: publication.topic.into(),
        qos: publication.qos as u8,
        payload_bytes: publication.payload.len(),
        expires_at: publication.expires_at.map(Rfc3339::from),
    }
}
