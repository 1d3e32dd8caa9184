//! `/health`, in the format of the emulator for Service Bus.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Served;

/// Answers whether all shards accept messages: 200 or 503.
pub async fn health(State(served): State<Served>) -> (StatusCode, Json<Value>) {
    let shards = &served.shared.engine.shards;
    let message = if shards.iter().any(|shard| shard.is_failing()) {
        "The disk is full or broken."
    } else if shards.any_refuses() {
        "A shard is closed."
    } else {
        "Service is healthy."
    };
    let (status, word) = match shards.any_refuses() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
        false => (StatusCode::OK, "healthy"),
    };
    (status, Json(json!({ "status": word, "message": message })))
}
