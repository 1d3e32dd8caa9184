//! `/v1/tenants/{tenant}/topics`: topics.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use barid_engine::entities::{
    self, DeclaredBy, Definition, Entities, Node, Topic, TopicDefinition, TopicProperties,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::described::DescribedTopic;
use super::{Cut, Paging, of_any_tenant, of_tenant, sent};
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TopicList)]
pub struct Page {
    topics: Vec<DescribedTopic>,
    next: Option<String>,
}

type TopicPath = Result<Path<(String, String)>, PathRejection>;

/// Lists topics, by name.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics", operation_id = "list_topics",
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
        Node::Topic(topic) => Some(topic),
        Node::Queue(_) => None,
    });
    let behind = all.filter(|topic| after.as_deref().is_none_or(|after| topic.key() > after));
    let Cut { found, next } = paging.cut(behind, |topic: &Arc<Topic>| topic.path().into());
    Ok(Json(Page { topics: found.iter().map(|topic| DescribedTopic::of(topic)).collect(), next }))
}

/// Shows a topic.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}", operation_id = "show_topic",
    responses((status = 200, body = DescribedTopic))
)]
pub async fn show(State(served): State<Served>, path: TopicPath) -> Answer<DescribedTopic> {
    let Path((tenant, name)) = path?;
    let (_, topic) = named(&served, &tenant, &name)?;
    Ok(Json(DescribedTopic::of(&topic)))
}

/// Creates a topic, or replaces its properties.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/topics/{topic}", operation_id = "put_topic",
    request_body = Option<TopicProperties>,
    responses((status = 201, body = DescribedTopic), (status = 200, body = DescribedTopic))
)]
pub async fn put(
    State(served): State<Served>,
    path: TopicPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<DescribedTopic>), Refusal> {
    let Path((tenant, name)) = path?;
    let properties = body::properties(&body)?;
    let entities = of_any_tenant(&served, &tenant)?;
    let before = entities.find_topic(&entities::key(&name));
    if before.is_some() && only_new(&headers) {
        return Err(Refusal::exists(format!("there is a topic {name:?} already")));
    }
    let name = before.as_ref().map_or(name, |topic| topic.path().into());
    let definition = TopicDefinition { name, properties, subscriptions: Vec::new() };
    let (is_new, by) = (before.is_none(), DeclaredBy::Admin);
    let topic = change(&served, |commits| {
        Ok(match is_new {
            true => entities.create_topic(&definition, by, commits)?,
            false => entities.update_topic(&definition, by, commits)?,
        })
    });
    Ok((made(is_new), Json(DescribedTopic::of(&*topic.await?))))
}

/// Changes some properties of a topic.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/topics/{topic}", operation_id = "patch_topic",
    request_body = Option<TopicProperties>,
    responses((status = 200, body = DescribedTopic))
)]
pub async fn patch(
    State(served): State<Served>,
    path: TopicPath,
    body: Bytes,
) -> Answer<DescribedTopic> {
    let Path((tenant, name)) = path?;
    let (entities, topic) = named(&served, &tenant, &name)?;
    let properties = body::changed(&properties(&topic), &body)?;
    let name = topic.path().into();
    let definition = TopicDefinition { name, properties, subscriptions: Vec::new() };
    let topic = change(&served, |commits| {
        Ok(entities.update_topic(&definition, DeclaredBy::Admin, commits)?)
    });
    Ok(Json(DescribedTopic::of(&*topic.await?)))
}

/// Deletes a topic with its subscriptions.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/topics/{topic}", operation_id = "delete_topic",
    responses((status = 204))
)]
pub async fn delete(State(served): State<Served>, path: TopicPath) -> Result<StatusCode, Refusal> {
    let Path((tenant, name)) = path?;
    let (entities, topic) = named(&served, &tenant, &name)?;
    change(&served, |commits| Ok(entities.delete(topic.path(), commits)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a message to a topic.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/topics/{topic}/messages", operation_id = "send_to_topic",
    request_body = Option<sent::Wanted>,
    responses((status = 201, body = sent::Sent))
)]
pub async fn send(
    State(served): State<Served>,
    path: TopicPath,
    body: Bytes,
) -> Result<(StatusCode, Json<sent::Sent>), Refusal> {
    let Path((tenant, name)) = path?;
    let (_, topic) = named(&served, &tenant, &name)?;
    sent::send(&served, &Node::Topic(topic), &body).await
}

/// Returns a topic, and the entities of its tenant.
pub fn named(
    served: &Served,
    tenant: &str,
    name: &str,
) -> Result<(Arc<Entities>, Arc<Topic>), Refusal> {
    let entities = of_tenant(served, tenant)?;
    let topic = entities.find_topic(&entities::key(name)).ok_or_else(|| {
        Refusal::not_found(format!("the tenant {tenant:?} has no topic {name:?}"))
    })?;
    Ok((entities, topic))
}

fn properties(topic: &Topic) -> TopicProperties {
    match &topic.configured().definition {
        Definition::Topic(definition) => definition.properties.clone(),
        Definition::Queue(_) | Definition::Subscription(_) => TopicProperties::default(),
    }
}
