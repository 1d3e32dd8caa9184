//! `/health`, as the emulator for Service Bus has it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Served;

/// Whether messages are taken: 200 or 503.
pub async fn health(State(served): State<Served>) -> (StatusCode, Json<Value>) {
    let (status, word, message) = if served.shared.engine.shards.any_refuses() {
        (StatusCode::SERVICE_UNAVAILABLE, "unhealthy", "The disk is full or broken.")
    } else {
        (StatusCode::OK, "healthy", "Service is healthy.")
    };
    (status, Json(json!({ "status": word, "message": message })))
}
