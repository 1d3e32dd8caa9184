//! `/v1/shards`: the shards of the data directory. Each can be closed and opened again while the others
//! serve.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use barid_engine::durable::DurableShard;
use serde::{Deserialize, Serialize};

use super::Served;
use super::answer::{Answer, Refusal};

#[derive(Debug, Serialize)]
pub struct Listed {
    shards: Vec<Described>,
}

#[derive(Debug, Serialize)]
pub struct Described {
    shard: u16,
    state: &'static str,
    /// Bytes that wait for their commit.
    pending_bytes: usize,
    commits: u64,
}

/// The state that a request asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    state: Standing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Standing {
    Open,
    Closed,
}

pub async fn list(State(served): State<Served>) -> Json<Listed> {
    let shards = served.shared.engine.shards.iter();
    Json(Listed { shards: shards.map(|shard| describe(&shard)).collect() })
}

pub async fn show(
    State(served): State<Served>,
    path: Result<Path<u16>, PathRejection>,
) -> Answer<Described> {
    let Path(index) = path?;
    let shard = find(&served, index)?;
    Ok(Json(describe(&shard)))
}

/// Answers when the shard has the state. What was noted in a closed shard is durable then.
pub async fn patch(
    State(served): State<Served>,
    path: Result<Path<u16>, PathRejection>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Answer<Described> {
    let Path(index) = path?;
    let Json(wanted) = wanted.map_err(|error| Refusal::bad_request(error.body_text()))?;
    find(&served, index)?;
    let shared = &served.shared;
    match wanted.state {
        Standing::Closed => {
            shared.shards.close(&shared.engine, index);
        }
        Standing::Open => {
            let opened = shared.shards.open(&shared.engine, index);
            opened.map_err(|error| Refusal::unavailable(error.to_string()))?;
            // The configuration of the shard's entities may have changed while it was closed.
            if let Err((tenant, error)) = shared.declare(&shared.settings()) {
                tracing::error!(
                    tenant,
                    "not all queues and topics could be applied as configured: {error}"
                );
            }
        }
    }
    let shard = find(&served, index)?;
    Ok(Json(describe(&shard)))
}

fn find(served: &Served, index: u16) -> Result<Arc<DurableShard>, Refusal> {
    let shards = &served.shared.engine.shards;
    if usize::from(index) >= shards.count() {
        let last = shards.count() - 1;
        return Err(Refusal::not_found(format!(
            "there is no shard {index}: the data directory has the shards 0 to {last}"
        )));
    }
    Ok(shards.get(index))
}

fn describe(shard: &DurableShard) -> Described {
    let state = match () {
        () if shard.is_open() && shard.is_failing() => "failing",
        () if shard.is_open() => "open",
        () if shard.is_closed() => "closed",
        () if shard.is_closing() => "closing",
        () => "opening",
    };
    Described {
        shard: shard.index(),
        state,
        pending_bytes: shard.pending_bytes(),
        commits: shard.commits(),
    }
}
