//! `/v1/tenants/{tenant}/topics/{topic}/subscriptions`: subscriptions of a topic and their contents.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use barid_engine::entities::{
    self, DeclaredBy, Definition, Entities, Node, Queue, SubscriptionDefinition,
    SubscriptionProperties, Topic, subscription_path,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::described::{DescribedSubscription, name_of};
use super::{Cut, Paging, messages, received, sessions, topics};
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionList)]
pub struct Page {
    subscriptions: Vec<DescribedSubscription>,
    next: Option<String>,
}

type SubscriptionPath = Result<Path<(String, String, String)>, PathRejection>;

/// Lists the subscriptions of a topic, by name.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions", operation_id = "list_subscriptions",
    params(Paging),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<(String, String)>, PathRejection>,
    question: Result<Query<Paging>, QueryRejection>,
) -> Answer<Page> {
    let (Path((tenant, name)), paging) = (path?, Paging::of(question)?);
    let (_, topic) = topics::named(&served, &tenant, &name)?;
    let after = paging.after.as_deref();
    let after = after.map(|after| entities::key(&subscription_path(topic.path(), after)));
    let all = topic.subscriptions();
    let behind = all.iter().filter(|one| after.as_deref().is_none_or(|after| one.key() > after));
    let Cut { found, next } = paging.cut(behind, |one: &&Arc<Queue>| name_of(one));
    let subscriptions = found.iter().map(|one| DescribedSubscription::of(one)).collect();
    Ok(Json(Page { subscriptions, next }))
}

/// Shows a subscription, with its rules.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}", operation_id = "show_subscription",
    responses((status = 200, body = DescribedSubscription))
)]
pub async fn show(
    State(served): State<Served>,
    path: SubscriptionPath,
) -> Answer<DescribedSubscription> {
    Ok(Json(DescribedSubscription::of(&Named::of(&served, path)?.queue)))
}

/// Creates a subscription, or replaces its properties.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}", operation_id = "put_subscription",
    request_body = Option<SubscriptionProperties>,
    responses((status = 201, body = DescribedSubscription), (status = 200, body = DescribedSubscription))
)]
pub async fn put(
    State(served): State<Served>,
    path: SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<DescribedSubscription>), Refusal> {
    let Path((tenant, topic, name)) = path?;
    let properties = body::properties(&body)?;
    let (entities, topic) = topics::named(&served, &tenant, &topic)?;
    let before = find(&entities, topic.path(), &name);
    if before.is_some() && only_new(&headers) {
        return Err(Refusal::exists(format!("there is a subscription {name:?} already")));
    }
    let name = before.as_ref().map_or(name, |queue| name_of(queue));
    let definition = SubscriptionDefinition { name, properties, rules: Vec::new() };
    let (is_new, by) = (before.is_none(), DeclaredBy::Admin);
    let queue = change(&served, |commits| {
        Ok(match is_new {
            true => entities.create_subscription(topic.path(), &definition, by, commits)?,
            false => entities.update_subscription(topic.path(), &definition, by, commits)?,
        })
    });
    Ok((made(is_new), Json(DescribedSubscription::of(&*queue.await?))))
}

/// Changes some properties of a subscription.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}", operation_id = "patch_subscription",
    request_body = Option<SubscriptionProperties>,
    responses((status = 200, body = DescribedSubscription))
)]
pub async fn patch(
    State(served): State<Served>,
    path: SubscriptionPath,
    body: Bytes,
) -> Answer<DescribedSubscription> {
    let named = Named::of(&served, path)?;
    let mut definition = named.definition();
    definition.properties = body::changed(&definition.properties, &body)?;
    let queue = change(&served, |commits| named.update(&definition, commits)).await?;
    Ok(Json(DescribedSubscription::of(&queue)))
}

/// Deletes a subscription with its messages.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}", operation_id = "delete_subscription",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    path: SubscriptionPath,
) -> Result<StatusCode, Refusal> {
    let Named { entities, queue, .. } = Named::of(&served, path)?;
    change(&served, |commits| Ok(entities.delete(queue.path(), commits)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists messages of a subscription. They stay.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/messages", operation_id = "list_subscription_messages",
    params(messages::Question),
    responses((status = 200, body = messages::Page))
)]
pub async fn messages(
    State(served): State<Served>,
    path: SubscriptionPath,
    question: messages::Asked,
) -> Answer<messages::Page> {
    messages::list(&Named::of(&served, path)?.queue, question)
}

/// Removes all messages of a subscription.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/messages", operation_id = "purge_subscription",
    params(messages::Of),
    responses((status = 200, body = messages::Purged))
)]
pub async fn purge(
    State(served): State<Served>,
    path: SubscriptionPath,
    question: messages::Whole,
) -> Answer<messages::Purged> {
    messages::purge(&served, &Named::of(&served, path)?.queue, question).await
}

/// Receives messages of a subscription, and removes them.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/messages/receive", operation_id = "receive_from_subscription",
    request_body = Option<received::Wanted>,
    responses((status = 200, body = received::Received))
)]
pub async fn receive(
    State(served): State<Served>,
    path: SubscriptionPath,
    body: Bytes,
) -> Answer<received::Received> {
    received::receive(&served, &Named::of(&served, path)?.queue, &body).await
}

/// Lets dead letters of a subscription be received again.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/messages/resubmit", operation_id = "resubmit_to_subscription",
    params(messages::OfDead),
    request_body = Option<messages::Chosen>,
    responses((status = 200, body = messages::Resubmitted))
)]
pub async fn resubmit(
    State(served): State<Served>,
    path: SubscriptionPath,
    dead: messages::Dead,
    body: Bytes,
) -> Answer<messages::Resubmitted> {
    messages::resubmit(&served, &Named::of(&served, path)?.queue, dead, &body).await
}

/// Lists the message sessions of a subscription.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/sessions", operation_id = "list_subscription_sessions",
    params(Paging),
    responses((status = 200, body = sessions::Page))
)]
pub async fn sessions(
    State(served): State<Served>,
    path: SubscriptionPath,
    question: Result<Query<Paging>, QueryRejection>,
) -> Answer<sessions::Page> {
    sessions::list(&Named::of(&served, path)?.queue, &Paging::of(question)?)
}

/// A subscription that a path names, with its topic and the entities of its tenant.
pub struct Named {
    pub entities: Arc<Entities>,
    pub topic: Arc<Topic>,
    pub queue: Arc<Queue>,
}

impl Named {
    fn of(served: &Served, path: SubscriptionPath) -> Result<Self, Refusal> {
        let Path((tenant, topic, name)) = path?;
        Self::find(served, &tenant, &topic, &name)
    }

    pub fn find(served: &Served, tenant: &str, topic: &str, name: &str) -> Result<Self, Refusal> {
        let (entities, topic) = topics::named(served, tenant, topic)?;
        let queue = find(&entities, topic.path(), name).ok_or_else(|| {
            Refusal::not_found(format!("the topic {:?} has no subscription {name:?}", topic.path()))
        })?;
        Ok(Self { entities, topic, queue })
    }

    /// Returns the definition of the subscription.
    pub fn definition(&self) -> SubscriptionDefinition {
        definition(&self.queue)
    }

    /// Replaces the properties and the rules.
    pub fn update(
        &self,
        definition: &SubscriptionDefinition,
        commits: &mut barid_engine::durable::Commits,
    ) -> Result<Arc<Queue>, Refusal> {
        let (topic, by) = (self.topic.path(), DeclaredBy::Admin);
        Ok(self.entities.update_subscription(topic, definition, by, commits)?)
    }
}

/// Returns the definition of a subscription.
pub fn definition(subscription: &Queue) -> SubscriptionDefinition {
    match &subscription.configured().definition {
        Definition::Subscription(definition) => definition.clone(),
        Definition::Queue(_) | Definition::Topic(_) => {
            SubscriptionDefinition::new(&name_of(subscription))
        }
    }
}

/// Returns the subscription of a topic with this name.
pub fn find(entities: &Entities, topic: &str, name: &str) -> Option<Arc<Queue>> {
    // A name with a slash would find another entity.
    if name.contains('/') {
        return None;
    }
    match entities.find_key(&entities::key(&subscription_path(topic, name))) {
        Some(Node::Queue(queue)) => Some(queue),
        _ => None,
    }
}
