//! `/health`, in the format of the emulator for Service Bus.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Served;

/// Answers while the broker accepts connections.
#[utoipa::path(
    get, path = "/healthz", operation_id = "is_alive",
    responses((status = 200, content_type = "text/plain", body = String))
)]
pub async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the broker serves clients, and all shards accept messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// A sentence about it.
    message: &'static str,
    /// `healthy` or `unhealthy`.
    status: &'static str,
}

/// Answers whether the broker serves clients and all shards accept messages: 200 or 503.
#[utoipa::path(
    get, path = "/health", operation_id = "show_health",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub async fn health(State(served): State<Served>) -> (StatusCode, Json<Health>) {
    let engine = &served.shared.engine;
    let shards = &engine.shards;
    let takes_clients = engine.cluster.as_ref().is_none_or(|cluster| cluster.takes_clients());
    let message = if !takes_clients {
        "The broker has not joined its cluster yet, or too few others hear it."
    } else if shards.iter().any(|shard| shard.is_failing()) {
        "The disk is full or broken."
    } else if shards.any_refuses() {
        "A shard is closed."
    } else {
        "Service is healthy."
    };
    let (status, word) = match shards.any_refuses() || !takes_clients {
        true => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
        false => (StatusCode::OK, "healthy"),
    };
    (status, Json(Health { status: word, message }))
}
