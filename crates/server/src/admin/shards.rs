//! `/v1/shards`: the shards of the data directory. Each can be closed and opened again while the others
//! serve.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use barid_engine::durable::DurableShard;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{Answer, Refusal};
use super::{Served, body};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ShardList)]
pub struct Listed {
    shards: Vec<Described>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Shard)]
pub struct Described {
    /// The number of the shard.
    shard: u16,
    /// `open`, `closing`, `closed`, `opening`, or `failing` if its disk is full or broken.
    state: &'static str,
    /// Bytes that wait for their commit.
    pending_bytes: usize,
    /// Number of commits since the start of the broker.
    commits: u64,
}

/// The state that a request asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WantedShard)]
pub struct Wanted {
    /// The state that the shard is to have.
    state: Standing,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = WantedShardState)]
enum Standing {
    Open,
    Closed,
}

/// Lists the shards of the data directory.
#[utoipa::path(
    get, path = "/v1/shards", operation_id = "list_shards",
    responses((status = 200, body = Listed))
)]
pub async fn list(State(served): State<Served>) -> Json<Listed> {
    let shards = served.shared.engine.shards.iter();
    Json(Listed { shards: shards.map(|shard| describe(&shard)).collect() })
}

/// Shows a shard.
#[utoipa::path(
    get, path = "/v1/shards/{shard}", operation_id = "show_shard",
    responses((status = 200, body = Described))
)]
pub async fn show(
    State(served): State<Served>,
    path: Result<Path<u16>, PathRejection>,
) -> Answer<Described> {
    let Path(index) = path?;
    let shard = find(&served, index)?;
    Ok(Json(describe(&shard)))
}

/// Closes or opens a shard. The answer comes when it is done. What was noted in a closed shard is durable then.
#[utoipa::path(
    patch, path = "/v1/shards/{shard}", operation_id = "change_shard",
    request_body = Wanted,
    responses((status = 200, body = Described))
)]
pub async fn patch(
    State(served): State<Served>,
    path: Result<Path<u16>, PathRejection>,
    body: Bytes,
) -> Answer<Described> {
    let Path(index) = path?;
    let wanted: Wanted = body::properties(&body)?;
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
