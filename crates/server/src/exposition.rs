//! Metrics of the broker in the text format of Prometheus.

mod bindings;
mod cluster;
mod entities;
mod logins;
mod process;
mod telemetry;

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barid_core::drop_reason::DropReason;
use barid_core::state_store::Usage;
use barid_core::time::WallTime;
use barid_engine::denied_action::Action;
use barid_engine::durable::DurableShard;
use barid_engine::limits::{Quota, THROTTLES};
use barid_engine::managed::ManagedKind;
use barid_engine::metrics::{OUTCOMES, Totals, VERBS};
use barid_engine::names::OTHERS;
use barid_engine::tenant::Tenant;
use mqtt_proto::PacketType;

use crate::shared::Shared;
use crate::tenant_labels::{Named, escaped};
use crate::watchdog::Watchdog;

const PACKETS: [PacketType; 15] = [
    PacketType::Connect,
    PacketType::ConnAck,
    PacketType::Publish,
    PacketType::PubAck,
    PacketType::PubRec,
    PacketType::PubRel,
    PacketType::PubComp,
    PacketType::Subscribe,
    PacketType::SubAck,
    PacketType::Unsubscribe,
    PacketType::UnsubAck,
    PacketType::PingReq,
    PacketType::PingResp,
    PacketType::Disconnect,
    PacketType::Auth,
];

/// The numbers of one tenant at one moment.
#[derive(Default)]
struct Snapshot {
    tenant: String,
    totals: Totals,
    connected: u64,
    amqp: u64,
    sessions: u64,
    in_flight: u64,
    in_flight_bytes: u64,
    subscription_bytes: u64,
    queued: u64,
    queued_bytes: u64,
    deepest: u64,
    retained: u64,
    retained_bytes: u64,
    subscriptions: u64,
    entities: u64,
    keys: u64,
    key_bytes: u64,
    watchers: u64,
}

impl Snapshot {
    fn of(tenant: &Tenant) -> Self {
        let of_keys = |count: fn(&Usage) -> u64| {
            tenant.used_state_store().map_or(0, |store| count(store.usage()))
        };
        // One guard: a thread that reads a lock twice waits for a writer that waits for it.
        let (retained, retained_bytes) = {
            let retained = tenant.retained.read();
            (retained.count() as u64, retained.bytes() as u64)
        };
        let mut snapshot = Self {
            tenant: tenant.name.to_string(),
            totals: tenant.totals(),
            amqp: tenant.amqp_clients.count() as u64,
            retained,
            retained_bytes,
            subscriptions: tenant.index.subscription_count() as u64,
            entities: tenant.used_entities().map_or(0, |entities| entities.len() as u64),
            keys: of_keys(Usage::keys),
            key_bytes: of_keys(Usage::bytes),
            watchers: of_keys(Usage::watchers),
            ..Self::default()
        };
        tenant.sessions.for_each(|session| {
            snapshot.sessions += 1;
            snapshot.connected += u64::from(session.is_online());
            snapshot.subscription_bytes += session.state().subscriptions.bytes() as u64;
            session.inspect(|outbound, _| {
                let queued = outbound.queue().len() as u64;
                snapshot.in_flight += u64::from(outbound.window().in_flight());
                snapshot.in_flight_bytes += outbound.window().kept_bytes() as u64;
                snapshot.queued += queued;
                snapshot.queued_bytes += outbound.queue().bytes() as u64;
                snapshot.deepest = snapshot.deepest.max(queued);
            });
        });
        snapshot.connected += snapshot.amqp;
        snapshot
    }

    /// Returns the snapshot of a removed tenant: its counters, and zero for every gauge.
    fn of_removed((tenant, totals): (String, Totals)) -> Self {
        Self { tenant, totals, ..Self::default() }
    }

    fn add(&mut self, more: &Self) {
        self.totals.join(&more.totals);
        self.connected += more.connected;
        self.amqp += more.amqp;
        self.sessions += more.sessions;
        self.in_flight += more.in_flight;
        self.in_flight_bytes += more.in_flight_bytes;
        self.subscription_bytes += more.subscription_bytes;
        self.queued += more.queued;
        self.queued_bytes += more.queued_bytes;
        self.deepest = self.deepest.max(more.deepest);
        self.retained += more.retained;
        self.retained_bytes += more.retained_bytes;
        self.subscriptions += more.subscriptions;
        self.entities += more.entities;
        self.keys += more.keys;
        self.key_bytes += more.key_bytes;
        self.watchers += more.watchers;
    }
}

/// Returns the snapshots of all tenants with series of their own, and the sum of the others.
fn snapshots(shared: &Shared) -> (Vec<Snapshot>, Named) {
    let (tenants, removed) = shared.engine.tenants.counted();
    let removed_names = removed.iter().map(|(name, _)| name.as_str()).filter(|it| *it != OTHERS);
    let names = tenants.iter().map(|tenant| &*tenant.name).chain(removed_names);
    let named = shared.labels.follow(names);
    let (mut own, mut others) = (Vec::new(), None::<Snapshot>);
    let all = tenants.iter().map(|tenant| Snapshot::of(tenant));
    for mut snapshot in all.chain(removed.into_iter().map(Snapshot::of_removed)) {
        if named.is_own(&snapshot.tenant) {
            snapshot.tenant = escaped(&snapshot.tenant);
            own.push(snapshot);
        } else {
            others.get_or_insert_default().add(&snapshot);
        }
    }
    own.extend(others.map(|others| Snapshot { tenant: OTHERS.into(), ..others }));
    (own, named)
}

/// A metric with one value for each tenant: name, type, help text, value.
type PerTenant = (&'static str, &'static str, &'static str, fn(&Snapshot) -> u64);

const PER_TENANT: [PerTenant; 23] = [
    ("barid_connections", "gauge", "Clients connected, over MQTT and AMQP.", |s| s.connected),
    ("barid_amqp_connections", "gauge", "Clients connected over AMQP.", |s| s.amqp),
    ("barid_sessions", "gauge", "Sessions, with and without a client.", |s| s.sessions),
    ("barid_subscriptions", "gauge", "Subscriptions.", |s| s.subscriptions),
    ("barid_subscription_bytes", "gauge", "Bytes of subscriptions, as limits count.", |s| {
        s.subscription_bytes
    }),
    ("barid_retained_messages", "gauge", "Retained messages.", |s| s.retained),
    ("barid_retained_bytes", "gauge", "Bytes of retained messages, as limits count.", |s| {
        s.retained_bytes
    }),
    ("barid_in_flight_messages", "gauge", "Messages sent and not acknowledged.", |s| s.in_flight),
    (
        "barid_in_flight_bytes",
        "gauge",
        "Bytes of messages in flight that are kept in memory.",
        |s| s.in_flight_bytes,
    ),
    ("barid_outbox_messages", "gauge", "Messages that wait for their clients.", |s| s.queued),
    ("barid_outbox_bytes", "gauge", "Bytes of messages that wait for their clients.", |s| {
        s.queued_bytes
    }),
    ("barid_outbox_messages_max", "gauge", "Most messages waiting for one client.", |s| s.deepest),
    ("barid_connects_total", "counter", "Clients admitted.", |s| s.totals.connects),
    (
        "barid_refused_connects_total",
        "counter",
        "Clients refused (of unknown tenants: under default).",
        |s| s.totals.refused_connects,
    ),
    ("barid_abnormal_disconnects_total", "counter", "Connections ended without DISCONNECT.", |s| {
        s.totals.abnormal_disconnects
    }),
    ("barid_take_overs_total", "counter", "Sessions taken over.", |s| s.totals.take_overs),
    (
        "barid_unmatched_messages_total",
        "counter",
        "Messages to which no session had subscribed.",
        |s| s.totals.unmatched,
    ),
    ("barid_unauthorised_total", "counter", "PUBLISH and SUBSCRIBE refused by rules.", |s| {
        s.totals.unauthorised
    }),
    ("barid_entities", "gauge", "Queues, topics and subscriptions.", |s| s.entities),
    ("barid_state_keys", "gauge", "Keys in the state store.", |s| s.keys),
    ("barid_state_bytes", "gauge", "Bytes of keys in the state store, as limits count.", |s| {
        s.key_bytes
    }),
    ("barid_state_watchers", "gauge", "Watched keys, counted once for each watcher.", |s| {
        s.watchers
    }),
    ("barid_state_expired_total", "counter", "Keys that have expired.", |s| s.totals.expired_keys),
];

/// A metric with one value for each IO thread: name, type, help text, value.
type PerThread = (&'static str, &'static str, &'static str, fn(&Watchdog) -> f64);

const PER_THREAD: [PerThread; 2] = [
    (
        "barid_io_longest_turn_seconds",
        "gauge",
        "Longest time in the last minute that one connection kept the others of its thread waiting.",
        |watchdog| watchdog.longest().as_secs_f64(),
    ),
    ("barid_io_slow_turns_total", "counter", "Turns of a connection longer than 100 ms.", |w| {
        w.slow() as f64
    }),
];

/// A metric with one value for each shard of the data directory: name, type, help text, value.
type PerShard = (&'static str, &'static str, &'static str, fn(&DurableShard) -> u64);

const PER_SHARD: [PerShard; 4] = [
    ("barid_store_commits_total", "counter", "Batches written and synced.", DurableShard::commits),
    (
        "barid_store_pending_bytes",
        "gauge",
        "Approximate number of bytes noted and not yet committed.",
        |shard| shard.pending_bytes() as u64,
    ),
    ("barid_store_disk_bytes", "gauge", "Approximate number of bytes on disk.", |shard| {
        shard.store().disk_bytes()
    }),
    ("barid_store_refuses", "gauge", "1 if the disk is full or broken, else 0.", |shard| {
        u64::from(shard.refuses())
    }),
];

/// Returns all metrics as text.
pub fn exposition(shared: &Shared) -> String {
    let (snapshots, named) = snapshots(shared);
    let mut text = String::with_capacity(4096 * (1 + snapshots.len()));
    header(&mut text, "barid_uptime_seconds", "gauge", "Time since the start.");
    let _ = writeln!(text, "barid_uptime_seconds {}", shared.engine.clock.uptime().as_secs_f64());
    process::process(&mut text, shared);
    let name = "barid_connecting_bytes";
    header(&mut text, name, "gauge", "Bytes from connections without a session, as limits count.");
    let _ = writeln!(text, "{name} {}", shared.strangers.bytes());
    for (name, kind, help, value) in PER_THREAD {
        header(&mut text, name, kind, help);
        for (thread, watchdog) in shared.watchdogs.iter().enumerate() {
            let _ = writeln!(text, "{name}{{thread=\"{thread}\"}} {}", value(watchdog));
        }
    }
    for (name, kind, help, value) in PER_SHARD {
        header(&mut text, name, kind, help);
        for shard in shared.engine.shards.iter() {
            let _ = writeln!(text, "{name}{{shard=\"{}\"}} {}", shard.index(), value(&shard));
        }
    }
    let name = "barid_store_memory_bytes";
    header(&mut text, name, "gauge", "Bytes of stored messages that wait in memory as well.");
    let _ = writeln!(text, "{name} {}", shared.engine.shards.in_memory());
    let name = "barid_refused_connections_total";
    header(&mut text, name, "counter", "Connections closed at once, before a byte was read.");
    let refused = shared.refused_connections.load(Ordering::Relaxed);
    let _ = writeln!(text, "{name}{{reason=\"descriptors\"}} {refused}");
    let (name, managed) = ("barid_managed_objects", &shared.engine.managed);
    header(&mut text, name, "gauge", "Objects that operators change while the broker runs.");
    for kind in ManagedKind::ALL {
        let _ = writeln!(text, "{name}{{kind=\"{}\"}} {}", kind.name(), managed.count(kind));
    }
    let name = "barid_managed_bytes";
    header(&mut text, name, "gauge", "Bytes of the names and descriptions of these objects.");
    let _ = writeln!(text, "{name} {}", managed.bytes());
    for (name, kind, help, value) in PER_TENANT {
        header(&mut text, name, kind, help);
        for snapshot in &snapshots {
            let _ = writeln!(text, "{name}{{tenant=\"{}\"}} {}", snapshot.tenant, value(snapshot));
        }
    }
    for (name, help, received, sent) in [
        (
            "barid_packets_total",
            "MQTT packets.",
            (|t| &t.packets_received) as fn(&Totals) -> &[u64; 16],
            (|t| &t.packets_sent) as fn(&Totals) -> &[u64; 16],
        ),
        ("barid_bytes_total", "Bytes of MQTT packets.", |t| &t.bytes_received, |t| &t.bytes_sent),
    ] {
        header(&mut text, name, "counter", help);
        for snapshot in &snapshots {
            for (direction, counts) in
                [("in", received(&snapshot.totals)), ("out", sent(&snapshot.totals))]
            {
                for kind in PACKETS.iter().filter(|kind| counts[**kind as usize] > 0) {
                    let _ = writeln!(
                        text,
                        "{name}{{tenant=\"{}\",direction=\"{direction}\",type=\"{}\"}} {}",
                        snapshot.tenant,
                        kind.name().to_lowercase(),
                        counts[*kind as usize]
                    );
                }
            }
        }
    }
    for (name, help, place) in [
        ("barid_amqp_messages_total", "Messages of AMQP clients.", 0),
        ("barid_amqp_message_bytes_total", "Bytes of these messages.", 1),
    ] {
        header(&mut text, name, "counter", help);
        for Snapshot { tenant, totals, .. } in &snapshots {
            for (direction, counts) in [("in", totals.amqp_received), ("out", totals.amqp_sent)] {
                let count = counts[place];
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{tenant}\",direction=\"{direction}\"}} {count}"
                );
            }
        }
    }
    requests(&mut text, shared, &snapshots);
    entities::entities(&mut text, shared, &named);
    bindings::bindings(&mut text, shared, &named);
    cluster::cluster(&mut text, shared);
    logins::logins(&mut text, shared);
    telemetry::telemetry(&mut text, shared);
    let name = "barid_dropped_messages_total";
    header(&mut text, name, "counter", "Messages that did not reach a session.");
    for snapshot in &snapshots {
        for reason in DropReason::ALL {
            let _ = writeln!(
                text,
                "{name}{{tenant=\"{}\",reason=\"{}\"}} {}",
                snapshot.tenant,
                reason.name(),
                snapshot.totals.dropped[reason as usize]
            );
        }
    }
    let name = "barid_denied_total";
    header(&mut text, name, "counter", "Actions that clients were not allowed to take.");
    for snapshot in &snapshots {
        for action in Action::ALL {
            let _ = writeln!(
                text,
                "{name}{{tenant=\"{}\",action=\"{}\"}} {}",
                snapshot.tenant,
                action.name(),
                snapshot.totals.denied[action as usize]
            );
        }
    }
    quotas(&mut text, &snapshots);
    text
}

/// Appends what the quotas of tenants have refused and delayed. A quota appears when it first does.
fn quotas(text: &mut String, snapshots: &[Snapshot]) {
    let name = "barid_quota_refused_total";
    header(
        text,
        name,
        "counter",
        "Refusals because a quota of the tenant or of a user is reached.",
    );
    for snapshot in snapshots {
        for (quota, count) in Quota::ALL.iter().zip(snapshot.totals.refused.as_slice()) {
            if *count > 0 {
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{}\",quota=\"{quota}\"}} {count}",
                    snapshot.tenant
                );
            }
        }
    }
    let name = "barid_quota_throttled_seconds_total";
    header(text, name, "counter", "Time for which connections had to wait because of a quota.");
    for snapshot in snapshots {
        for (quota, millis) in Quota::ALL[..THROTTLES].iter().zip(snapshot.totals.throttled_ms) {
            if millis > 0 {
                let seconds = Duration::from_millis(millis).as_secs_f64();
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{}\",quota=\"{quota}\"}} {seconds}",
                    snapshot.tenant
                );
            }
        }
    }
}

/// Appends the metrics of requests to the state store: number and duration.
fn requests(text: &mut String, shared: &Shared, snapshots: &[Snapshot]) {
    let name = "barid_state_requests_total";
    header(text, name, "counter", "Requests to the state store.");
    for snapshot in snapshots {
        for (verb, counts) in VERBS.iter().zip(&snapshot.totals.requests) {
            for (outcome, count) in OUTCOMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{}\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}",
                    snapshot.tenant
                );
            }
        }
    }
    let name = "barid_state_request_seconds";
    header(text, name, "summary", "Time from reading a request until its response is durable.");
    let times = shared.engine.request_times.summary();
    let _ = writeln!(text, "{name}{{quantile=\"0.5\"}} {}", times.p50.as_secs_f64());
    let _ = writeln!(text, "{name}{{quantile=\"0.99\"}} {}", times.p99.as_secs_f64());
    let _ = writeln!(text, "{name}_sum {}", times.sum.as_secs_f64());
    let _ = writeln!(text, "{name}_count {}", times.count);
}

/// Appends a time in the future, in seconds since 1970; only its description if there is none.
fn expiry(text: &mut String, name: &str, help: &str, expires: Option<WallTime>) {
    header(text, name, "gauge", help);
    if let Some(expires) = expires {
        let _ = writeln!(text, "{name} {}", expires.as_millis() / 1_000);
    }
}

fn header(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
