//! `/v1/tenants/{tenant}/amqp-connections`: the clients that are connected over AMQP.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use barid_engine::amqp_clients::AmqpClient;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut};
use super::rfc3339::Rfc3339;
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// The `next` of an earlier answer: the page behind it.
    after: u64,
}

impl Default for Question {
    fn default() -> Self {
        Self { limit: 100, after: 0 }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AmqpConnectionList)]
pub struct Page {
    connections: Vec<Described>,
    /// The number of the last connection, if there are more: the next page is the one `after` it.
    next: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AmqpConnection)]
struct Described {
    /// The number of the connection.
    id: u64,
    /// The container id.
    container: String,
    /// The shared access key that it has shown; `None`: it is a user.
    key: Option<String>,
    /// The user; `None`: it has shown a key.
    user: Option<String>,
    /// Address and port of the client.
    address: String,
    connected_at: Rfc3339,
}

/// Lists the connections of AMQP clients.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/amqp-connections", operation_id = "list_amqp_connections",
    params(Question),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), Query(question)) = (path?, question?);
    check_limit(question.limit, LIMIT_MAX)?;
    let tenant = tenants::named(&served, &tenant)?;
    let found = tenant.amqp_clients.page(question.after, question.limit + 1);
    let (clients, next) = cut(found, question.limit, |last| last.id.0);
    Ok(Json(Page { connections: clients.iter().map(Described::of).collect(), next }))
}

/// Closes the connection of an AMQP client.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/amqp-connections/{id}", operation_id = "close_amqp_connection",
    responses((status = 202))
)]
pub async fn close(
    State(served): State<Served>,
    path: Result<Path<(String, u64)>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let Path((tenant, id)) = path?;
    let client = tenants::named(&served, &tenant)?.amqp_clients.get(id);
    let missing =
        || Refusal::not_found(format!("the tenant {tenant:?} has no AMQP connection {id}"));
    client.ok_or_else(missing)?.close();
    Ok(StatusCode::ACCEPTED)
}

impl Described {
    fn of(client: &Arc<AmqpClient>) -> Self {
        Self {
            id: client.id.0,
            container: client.container.clone(),
            key: client.key.clone(),
            user: client.user.clone(),
            address: client.peer.to_string(),
            connected_at: Rfc3339::from(client.since),
        }
    }
}
