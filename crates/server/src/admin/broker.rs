//! `/v1/broker`: the process, its disk and its certificate.

use axum::Json;
use axum::extract::State;
use barid_engine::durable::DurableShard;
use serde::Serialize;
use utoipa::ToSchema;

use super::Served;
use super::rfc3339::Rfc3339;
use crate::process::Usage;
use crate::watchdog::Watchdog;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Broker)]
pub struct Described {
    version: &'static str,
    /// The name in the cluster; `None`: there is none.
    broker: Option<String>,
    /// The name of the cluster; `None`: there is none.
    cluster: Option<String>,
    started_at: Rfc3339,
    /// The time at this broker.
    now: Rfc3339,
    /// CPU time of the process, in seconds; `None`: the system does not tell, like the following.
    cpu_seconds: Option<f64>,
    /// Resident memory of the process, in bytes.
    resident_bytes: Option<f64>,
    /// File descriptors in use.
    open_descriptors: Option<u64>,
    /// Maximum number of file descriptors.
    max_descriptors: Option<u64>,
    /// Bytes of the data directory.
    disk_bytes: u64,
    /// Bytes that can still be written to its disk.
    disk_free_bytes: Option<u64>,
    /// Whether the disk is full or broken, so that nothing durable is accepted.
    disk_refuses: bool,
    /// Number of shards that are closed.
    closed_shards: usize,
    /// When the certificate of the TLS listeners expires; `None`: there is none, or it cannot be read.
    certificate_expires_at: Option<Rfc3339>,
    /// The longest time in the last minute that one connection kept the others of its thread waiting.
    longest_turn_seconds: f64,
    /// Number of tenants.
    tenants: usize,
    /// Maximum number of tenants.
    max_tenants: usize,
}

/// Shows the process, its disk and its certificate.
#[utoipa::path(
    get, path = "/v1/broker", operation_id = "show_broker",
    responses((status = 200, body = Described))
)]
pub async fn show(State(served): State<Served>) -> Json<Described> {
    let shared = &served.shared;
    let engine = &shared.engine;
    let (usage, wall) = (Usage::now(), engine.clock.wall());
    let cluster = shared
        .cluster
        .as_ref()
        .map(|cluster| cluster.view(shared.engine.clock.now(), shared.watchdogs.len()));
    let (cluster, broker) = cluster.map(|view| (view.cluster, view.broker)).unzip();
    let shards: Vec<_> = engine.shards.iter().collect();
    let longest = shared.watchdogs.iter().map(|watchdog| Watchdog::longest(watchdog)).max();
    Json(Described {
        version: env!("CARGO_PKG_VERSION"),
        broker,
        cluster,
        started_at: wall.before(engine.clock.uptime()).into(),
        now: wall.into(),
        cpu_seconds: usage.cpu_seconds,
        resident_bytes: usage.resident_bytes,
        open_descriptors: usage.open_descriptors,
        max_descriptors: usage.max_descriptors,
        disk_bytes: shards.iter().map(|shard| shard.store().disk_bytes()).sum(),
        disk_free_bytes: barid_store::free_bytes(&shared.settings().data_dir).ok(),
        disk_refuses: shards.iter().any(|shard| DurableShard::refuses(shard)),
        closed_shards: shards.iter().filter(|shard| !shard.is_open()).count(),
        certificate_expires_at: shared.certificate_expires().map(Rfc3339::from),
        longest_turn_seconds: longest.unwrap_or_default().as_secs_f64(),
        tenants: engine.tenants.count(),
        max_tenants: engine.tenants.most(),
    })
}
