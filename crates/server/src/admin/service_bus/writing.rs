//! Answers to PUT and DELETE: entities are created, changed and deleted. A change is answered when it is durable.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use barid_core::rules::same_name;
use barid_engine::durable::Commits;
use barid_engine::entities::{
    self, DeclaredBy, Entities, EntityError, Node, QueueDefinition, RuleDefinition,
    SubscriptionDefinition, TopicDefinition,
};

use super::atom::Context;
use super::reading::{entity_entry, find_subscription, find_topic, not_found, rule_entry};
use super::signer::Signer;
use super::target::Target;
use super::{properties, rule, xml};
use crate::admin::Served;
use crate::admin::answer::Refusal;
use crate::admin::changing::change;
use crate::admin::entities::{definition, name_of, of_any_tenant};

const BY: DeclaredBy = DeclaredBy::Admin;

/// What a PUT describes.
enum Description {
    Queue(QueueDefinition),
    Topic(TopicDefinition),
    Subscription { topic: String, definition: SubscriptionDefinition },
    Rule { topic: String, subscription: String, rule: RuleDefinition },
}

/// Creates what the body describes; with `If-Match`, changes it.
pub async fn put(
    served: &Served,
    signer: &Signer<'_>,
    target: &Target,
    headers: &HeaderMap,
    body: &[u8],
    context: &Context,
) -> Result<Response, Refusal> {
    let description = Description::read(target, body, context)?;
    for entity in description.forwards_to() {
        signer.check_target(entity)?;
    }
    let is_update = headers.contains_key(header::IF_MATCH);
    let status = if is_update { StatusCode::OK } else { StatusCode::CREATED };
    let entities = of_any_tenant(served, signer.tenant())?;
    let node = match description {
        Description::Rule { topic, subscription, rule } => {
            let queue = find_subscription(&entities, &topic, &subscription)?;
            change(served, |commits| {
                put_rule(&entities, &topic, &queue, &rule, is_update, commits)
            })
            .await?;
            return Ok(rule_entry(status, &queue, &rule, context));
        }
        Description::Queue(mut definition) => {
            keep_spelling(&entities, &mut definition.name);
            let put = |commits: &mut _| {
                let put = match is_update {
                    true => entities.update_queue(&definition, BY, commits),
                    false => entities.create_queue(&definition, BY, commits),
                };
                put.map_err(|error| refusal(&error))
            };
            Node::Queue(change(served, put).await?)
        }
        Description::Topic(mut definition) => {
            keep_spelling(&entities, &mut definition.name);
            let put = |commits: &mut _| {
                let put = match is_update {
                    true => entities.update_topic(&definition, BY, commits),
                    false => entities.create_topic(&definition, BY, commits),
                };
                put.map_err(|error| refusal(&error))
            };
            Node::Topic(change(served, put).await?)
        }
        Description::Subscription { topic, mut definition } => {
            let topic = find_topic(&entities, &topic)?;
            if let Ok(known) = find_subscription(&entities, topic.path(), &definition.name) {
                definition.name = name_of(&known);
            }
            let put = |commits: &mut _| {
                let put = match is_update {
                    true => entities.update_subscription(topic.path(), &definition, BY, commits),
                    false => entities.create_subscription(topic.path(), &definition, BY, commits),
                };
                put.map_err(|error| refusal(&error))
            };
            Node::Queue(change(served, put).await?)
        }
    };
    Ok(entity_entry(status, &node, context))
}

/// Deletes an entity or a rule.
pub async fn delete(served: &Served, tenant: &str, target: &Target) -> Result<Response, Refusal> {
    let entities = of_any_tenant(served, tenant)?;
    match target {
        Target::Entity(path) => {
            let node = entities.find_key(&entities::key(path)).ok_or_else(|| not_found(path))?;
            change(served, |commits| {
                entities.delete(node.path(), commits).map_err(|error| refusal(&error))
            })
            .await?;
        }
        Target::Subscription { topic, name } => {
            let queue = find_subscription(&entities, topic, name)?;
            change(served, |commits| {
                entities.delete(queue.path(), commits).map_err(|error| refusal(&error))
            })
            .await?;
        }
        Target::Rule { topic, subscription, name } => {
            let queue = find_subscription(&entities, topic, subscription)?;
            change(served, |commits| {
                entities.remove_rule(&queue, name, commits).map_err(|error| refusal(&error))
            })
            .await?;
        }
        _ => return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "a list cannot be deleted")),
    }
    Ok(StatusCode::OK.into_response())
}

impl Description {
    fn read(target: &Target, body: &[u8], context: &Context) -> Result<Self, Refusal> {
        let document = xml::parse(body)?;
        let description = xml::description(&document)?;
        let message_size = "MaxMessageSizeInKilobytes";
        if !context.has_message_size() && xml::child(description, message_size).is_some() {
            let sentence = format!(
                "{message_size}: the api-version of the request does not have it; 2021-05 does"
            );
            return Err(Refusal::bad_request(sentence));
        }
        match (target, xml::name(description)) {
            (Target::Entity(name), "QueueDescription") => {
                let properties = properties::read(description)?;
                Ok(Self::Queue(QueueDefinition { name: name.clone(), properties }))
            }
            (Target::Entity(name), "TopicDescription") => {
                let properties = properties::read(description)?;
                let name = name.clone();
                Ok(Self::Topic(TopicDefinition { name, properties, subscriptions: Vec::new() }))
            }
            (Target::Subscription { topic, name }, "SubscriptionDescription") => {
                let properties = properties::read(description)?;
                let first = xml::child(description, "DefaultRuleDescription");
                let first = first.map(|rule| {
                    let name =
                        xml::child(rule, "Name").map(xml::text).filter(|name| !name.is_empty());
                    let default = RuleDefinition::default_rule().name;
                    let name = name.map_or(default, Into::into);
                    Ok::<_, Refusal>(RuleDefinition { name, properties: rule::read(rule)? })
                });
                let rules = first.transpose()?.into_iter().collect();
                let definition = SubscriptionDefinition { name: name.clone(), properties, rules };
                Ok(Self::Subscription { topic: topic.clone(), definition })
            }
            (Target::Rule { topic, subscription, name }, "RuleDescription") => {
                let rule =
                    RuleDefinition { name: name.clone(), properties: rule::read(description)? };
                let (topic, subscription) = (topic.clone(), subscription.clone());
                Ok(Self::Rule { topic, subscription, rule })
            }
            (_, other) => Err(Refusal::bad_request(format!(
                "the path does not name what a {other} describes"
            ))),
        }
    }

    /// Returns the entities to which messages and dead letters are to be forwarded; empty: none.
    fn forwards_to(&self) -> [&str; 2] {
        match self {
            Self::Queue(QueueDefinition { properties, .. }) => {
                [&properties.forward_to, &properties.forward_dead_lettered_messages_to]
            }
            Self::Subscription {
                definition: SubscriptionDefinition { properties, .. }, ..
            } => [&properties.forward_to, &properties.forward_dead_lettered_messages_to],
            Self::Topic(_) | Self::Rule { .. } => ["", ""],
        }
    }
}

/// Keeps the letters of an entity's path as they are, if it exists.
fn keep_spelling(entities: &Entities, name: &mut String) {
    if let Some(node) = entities.find_key(&entities::key(name)) {
        *name = node.path().into();
    }
}

fn put_rule(
    entities: &Entities,
    topic: &str,
    subscription: &entities::Queue,
    rule: &RuleDefinition,
    is_update: bool,
    commits: &mut Commits,
) -> Result<(), Refusal> {
    if !is_update {
        return entities.add_rule(subscription, rule, commits).map_err(|error| refusal(&error));
    }
    let mut definition = definition(subscription);
    let known = definition.rules.iter_mut().find(|known| same_name(&known.name, &rule.name));
    known.ok_or_else(|| not_found(&rule.name))?.properties = rule.properties.clone();
    entities
        .update_subscription(topic, &definition, BY, commits)
        .map_err(|error| refusal(&error))?;
    Ok(())
}

/// Returns the error of Service Bus for an error of an entity. Clients know some by their number.
fn refusal(error: &EntityError) -> Refusal {
    let sentence = error.to_string();
    match error {
        EntityError::Definition(_) | EntityError::NoTarget { .. } | EntityError::Fixed { .. } => {
            Refusal::bad_request(format!("SubCode=40000. {sentence}"))
        }
        EntityError::NotFound(_) => Refusal::not_found(format!("SubCode=40400. {sentence}")),
        EntityError::Exists(_) => Refusal::conflict(format!("SubCode=40900. Conflict. {sentence}")),
        EntityError::TooMany(_) => Refusal::forbidden(format!("SubCode=40300. {sentence}")),
        EntityError::Closed(_) => Refusal::unavailable(format!("SubCode=50300. {sentence}")),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;
    use proptest::prelude::*;

    use super::*;

    /// Elements and texts of descriptions, in any order.
    const PIECES: &str = "<entry>|</entry>|<content>|</content>|<(Queue|Topic|Subscription|Rule)Description>|\
        <(LockDuration|ForwardTo|Filter|Action|Properties|P|Key|Value|Name)( t='[a-zA-Z:]{0,12}')?/?>|\
        </[a-zA-Z]{1,12}>|[a-zA-Z0-9:/.& -]{0,12}|<!DOCTYPE a>|&#[0-9]{1,8};";

    proptest! {
        #[test]
        fn no_body_ends_the_broker(
            pieces in prop::collection::vec(PIECES, 0..40),
            well_formed in any::<bool>(),
        ) {
            let content = pieces.concat();
            let body = match well_formed {
                true => format!("<entry><content><QueueDescription>{content}</QueueDescription></content></entry>"),
                false => content,
            };
            let context = Context::of(&HeaderMap::new(), &Uri::from_static("/q"));
            for target in [
                Target::Entity("q".into()),
                Target::Subscription { topic: "t".into(), name: "s".into() },
                Target::Rule { topic: "t".into(), subscription: "s".into(), name: "r".into() },
                Target::Queues,
            ] {
                let _ = Description::read(&target, body.as_bytes(), &context);
            }
        }
    }
}
