//! `/v1/tenants/{tenant}/receivers`: who receives messages of a topic, and through which subscriptions.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use barid_core::topic_index::SharedGroup;
use barid_engine::session::SessionRef;
use barid_engine::tenant::Tenant;
use mqtt_proto::topic;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut, default_limit};
use super::sessions::{Subscription, subscriptions_where};
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// The topic of the messages.
    topic: String,
    #[serde(default = "default_limit")]
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Receivers {
    /// The sessions that get a copy each, by client identifier.
    sessions: Vec<Receiver>,
    /// The last of these, if there are more: the next page is the one `after` it.
    next: Option<Box<str>>,
    /// The shared subscriptions, each of which one member gets a copy for.
    shared: Vec<Shared>,
    /// The bindings that put a copy into a queue or topic.
    bindings: Vec<String>,
    /// The other brokers of the cluster whose sessions have subscribed.
    brokers: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Receiver {
    client: Box<str>,
    connected: bool,
    /// The QoS with which it gets them, at most that of the message.
    qos: u8,
    /// The subscriptions that match.
    subscriptions: Vec<Subscription>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SharedSubscription)]
struct Shared {
    /// The share name.
    name: String,
    filter: String,
    /// Number of members.
    count: usize,
    /// The first of them, by client identifier.
    members: Vec<Member>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SharedSubscriptionMember)]
struct Member {
    client: Box<str>,
    connected: bool,
    /// The QoS with which it gets them, at most that of the message.
    qos: u8,
}

/// Shows who receives the messages of a topic, and through which subscriptions.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/receivers", operation_id = "show_receivers",
    params(Question),
    responses((status = 200, body = Receivers))
)]
pub async fn show(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Receivers> {
    let (Path(tenant), Query(Question { topic, limit, after })) = (path?, question?);
    check_limit(limit, LIMIT_MAX)?;
    topic::validate_name(&topic)
        .map_err(|error| Refusal::bad_request(format!("{topic:?} is not a topic: {error}")))?;
    let tenant = tenants::named(&served, &tenant)?;
    let route = tenant.index.route(&topic);
    let mut recipients: Vec<_> = route
        .recipients()
        .iter()
        .filter(|one| after.as_deref().is_none_or(|after| *one.subscriber.client_id > *after))
        .collect();
    recipients.sort_unstable_by(|a, b| a.subscriber.client_id.cmp(&b.subscriber.client_id));
    let (recipients, next) = cut(recipients, limit, |last| last.subscriber.client_id.clone());
    let sessions = recipients.iter().map(|recipient| Receiver {
        client: recipient.subscriber.client_id.clone(),
        connected: recipient.subscriber.is_online(),
        qos: recipient.qos as u8,
        subscriptions: matching(&recipient.subscriber, &topic),
    });
    let (_, bindings) = tenant.bindings.of_topic(&topic);
    Ok(Json(Receivers {
        sessions: sessions.collect(),
        next,
        shared: route.groups().iter().map(|group| shared(group, limit)).collect(),
        bindings: bindings.iter().map(|binding| binding.binding.name.to_string()).collect(),
        brokers: brokers(&served, &tenant, &topic),
    }))
}

/// Returns the subscriptions of a session that match a topic. Shared ones are not among them.
fn matching(session: &SessionRef, topic: &str) -> Vec<Subscription> {
    subscriptions_where(&session.state(), |filter| topic::matches(filter, topic))
}

fn shared(group: &SharedGroup<SessionRef>, limit: usize) -> Shared {
    let all = group.members();
    let mut members: Vec<_> = all.iter().collect();
    members.sort_unstable_by(|a, b| a.subscriber.client_id.cmp(&b.subscriber.client_id));
    let members = members.into_iter().take(limit).map(|member| Member {
        client: member.subscriber.client_id.clone(),
        connected: member.subscriber.is_online(),
        qos: member.options.qos as u8,
    });
    Shared {
        name: group.name().into(),
        filter: group.filter().into(),
        count: all.iter().count(),
        members: members.collect(),
    }
}

/// Returns the names of the other brokers that get messages of a topic.
pub(super) fn brokers(served: &Served, tenant: &Tenant, topic: &str) -> Vec<String> {
    let Some((cluster, remote)) = served.shared.cluster.as_ref().zip(tenant.remote.as_ref()) else {
        return Vec::new();
    };
    let mut names: Vec<_> =
        remote.receivers(topic).into_iter().filter_map(|member| cluster.name_of(member)).collect();
    names.sort_unstable();
    names.dedup();
    names
}
