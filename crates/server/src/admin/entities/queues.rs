//! `/v1/tenants/{tenant}/queues`: queues and their contents.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use barid_engine::entities::{
    self, DeclaredBy, Entities, Node, Queue, QueueDefinition, QueueProperties,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::described::DescribedQueue;
use super::{Cut, Paging, messages, of_any_tenant, of_tenant, received, sent, sessions};
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueList)]
pub struct Page {
    queues: Vec<DescribedQueue>,
    next: Option<String>,
}

type QueuePath = Result<Path<(String, String)>, PathRejection>;

/// Lists queues, by name.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/queues", operation_id = "list_queues",
    params(Paging),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Paging>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), paging) = (path?, Paging::of(question)?);
    let after = paging.after.as_deref().map(entities::key);
    let all = of_tenant(&served, &tenant)?.list().into_iter().filter_map(|node| match node {
        Node::Queue(queue) => Some(queue),
        Node::Topic(_) => None,
    });
    let behind = all.filter(|queue| after.as_deref().is_none_or(|after| queue.key() > after));
    let Cut { found, next } = paging.cut(behind, |queue: &Arc<Queue>| queue.path().into());
    Ok(Json(Page { queues: found.iter().map(|queue| DescribedQueue::of(queue)).collect(), next }))
}

/// Shows a queue.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/queues/{queue}", operation_id = "show_queue",
    responses((status = 200, body = DescribedQueue))
)]
pub async fn show(State(served): State<Served>, path: QueuePath) -> Answer<DescribedQueue> {
    let (_, queue) = named(&served, path)?;
    Ok(Json(DescribedQueue::of(&queue)))
}

/// Creates a queue, or replaces its properties.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/queues/{queue}", operation_id = "put_queue",
    request_body = Option<QueueProperties>,
    responses((status = 201, body = DescribedQueue), (status = 200, body = DescribedQueue))
)]
pub async fn put(
    State(served): State<Served>,
    path: QueuePath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<DescribedQueue>), Refusal> {
    let Path((tenant, name)) = path?;
    let properties = body::properties(&body)?;
    let entities = of_any_tenant(&served, &tenant)?;
    let before = find(&entities, &name);
    if before.is_some() && only_new(&headers) {
        return Err(Refusal::exists(format!("there is a queue {name:?} already")));
    }
    let name = before.as_ref().map_or(name, |queue| queue.path().into());
    let definition = QueueDefinition { name, properties };
    let (is_new, by) = (before.is_none(), DeclaredBy::Admin);
    let queue = change(&served, |commits| {
        Ok(match is_new {
            true => entities.create_queue(&definition, by, commits)?,
            false => entities.update_queue(&definition, by, commits)?,
        })
    });
    Ok((made(is_new), Json(DescribedQueue::of(&*queue.await?))))
}

/// Changes some properties of a queue.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/queues/{queue}", operation_id = "patch_queue",
    request_body = Option<QueueProperties>,
    responses((status = 200, body = DescribedQueue))
)]
pub async fn patch(
    State(served): State<Served>,
    path: QueuePath,
    body: Bytes,
) -> Answer<DescribedQueue> {
    let (entities, queue) = named(&served, path)?;
    let properties = body::changed(&queue.configured().properties, &body)?;
    let definition = QueueDefinition { name: queue.path().into(), properties };
    let queue = change(&served, |commits| {
        Ok(entities.update_queue(&definition, DeclaredBy::Admin, commits)?)
    });
    Ok(Json(DescribedQueue::of(&*queue.await?)))
}

/// Deletes a queue with its messages.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/queues/{queue}", operation_id = "delete_queue",
    responses((status = 204))
)]
pub async fn delete(State(served): State<Served>, path: QueuePath) -> Result<StatusCode, Refusal> {
    let (entities, queue) = named(&served, path)?;
    change(&served, |commits| Ok(entities.delete(queue.path(), commits)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists messages of a queue. They stay.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/queues/{queue}/messages", operation_id = "list_queue_messages",
    params(messages::Question),
    responses((status = 200, body = messages::Page))
)]
pub async fn messages(
    State(served): State<Served>,
    path: QueuePath,
    question: messages::Asked,
) -> Answer<messages::Page> {
    let (_, queue) = named(&served, path)?;
    messages::list(&queue, question)
}

/// Removes all messages of a queue.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/queues/{queue}/messages", operation_id = "purge_queue",
    params(messages::Of),
    responses((status = 200, body = messages::Purged))
)]
pub async fn purge(
    State(served): State<Served>,
    path: QueuePath,
    question: messages::Whole,
) -> Answer<messages::Purged> {
    let (_, queue) = named(&served, path)?;
    messages::purge(&served, &queue, question).await
}

/// Sends a message to a queue.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/queues/{queue}/messages", operation_id = "send_to_queue",
    request_body = Option<sent::Wanted>,
    responses((status = 201, body = sent::Sent))
)]
pub async fn send(
    State(served): State<Served>,
    path: QueuePath,
    body: Bytes,
) -> Result<(StatusCode, Json<sent::Sent>), Refusal> {
    let (_, queue) = named(&served, path)?;
    sent::send(&served, &Node::Queue(queue), &body).await
}

/// Receives messages of a queue, and removes them.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/queues/{queue}/messages/receive", operation_id = "receive_from_queue",
    request_body = Option<received::Wanted>,
    responses((status = 200, body = received::Received))
)]
pub async fn receive(
    State(served): State<Served>,
    path: QueuePath,
    body: Bytes,
) -> Answer<received::Received> {
    let (_, queue) = named(&served, path)?;
    received::receive(&served, &queue, &body).await
}

/// Lets dead letters of a queue be received again.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/queues/{queue}/messages/resubmit", operation_id = "resubmit_to_queue",
    params(messages::OfDead),
    request_body = Option<messages::Chosen>,
    responses((status = 200, body = messages::Resubmitted))
)]
pub async fn resubmit(
    State(served): State<Served>,
    path: QueuePath,
    dead: messages::Dead,
    body: Bytes,
) -> Answer<messages::Resubmitted> {
    let (_, queue) = named(&served, path)?;
    messages::resubmit(&served, &queue, dead, &body).await
}

/// Lists the message sessions of a queue.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/queues/{queue}/sessions", operation_id = "list_queue_sessions",
    params(Paging),
    responses((status = 200, body = sessions::Page))
)]
pub async fn sessions(
    State(served): State<Served>,
    path: QueuePath,
    question: Result<Query<Paging>, QueryRejection>,
) -> Answer<sessions::Page> {
    let (_, queue) = named(&served, path)?;
    sessions::list(&queue, &Paging::of(question)?)
}

/// Returns the queue that a path names, and the entities of its tenant.
fn named(served: &Served, path: QueuePath) -> Result<(Arc<Entities>, Arc<Queue>), Refusal> {
    let Path((tenant, name)) = path?;
    let entities = of_tenant(served, &tenant)?;
    let queue = find(&entities, &name).ok_or_else(|| {
        Refusal::not_found(format!("the tenant {tenant:?} has no queue {name:?}"))
    })?;
    Ok((entities, queue))
}

fn find(entities: &Entities, name: &str) -> Option<Arc<Queue>> {
    match entities.find_key(&entities::key(name)) {
        Some(Node::Queue(queue)) if !queue.is_subscription() => Some(queue),
        _ => None,
    }
}
