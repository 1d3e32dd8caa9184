//! Metrics of the contents of queues and subscriptions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use barid_core::entity::Counts;
use barid_core::time::WallTime;
use barid_engine::entities::{Node, Queue};

use super::header;
use crate::shared::Shared;
use crate::tenant_labels::Named;

/// Maximum number of queues and subscriptions with series of their own, in all tenants together. The others
/// of a tenant are summed up under `entity="*"`, which is no entity's name.
const ENTITIES_MAX: usize = 1_000;

/// Value of the `entity` label for the sum of the others.
const OTHERS: &str = "*";

/// A queue or subscription, or the sum of the others of a tenant.
struct Row {
    tenant: String,
    entity: String,
    counts: Counts,
    receivers: usize,
}

/// A metric with one value for each queue and subscription: name, help text, value.
type PerEntity = (&'static str, &'static str, fn(&Row, WallTime) -> u64);

const PER_ENTITY: [PerEntity; 5] = [
    ("barid_entity_sessions", "Sessions with a message, a state or a lock.", |row, _| {
        row.counts.sessions as u64
    }),
    ("barid_entity_bytes", "Bytes of messages and states.", |row, _| row.counts.bytes as u64),
    (
        "barid_entity_footprint_bytes",
        "Bytes that count against MaxSizeInMegabytes: messages and states, with the overhead of each.",
        |row, _| row.counts.footprint as u64,
    ),
    ("barid_entity_receivers", "Receivers.", |row, _| row.receivers as u64),
    ("barid_entity_oldest_seconds", "Age of the oldest message.", |row, now| {
        row.counts.oldest.map_or(0, |oldest| now.since(oldest).as_secs())
    }),
];

/// A state of messages in an entity: value of the `state` label, and count.
type State = (&'static str, fn(&Counts) -> usize);

const STATES: [State; 6] = [
    ("active", |counts| counts.active),
    ("locked", |counts| counts.locked),
    ("deferred", |counts| counts.deferred),
    ("scheduled", |counts| counts.scheduled),
    ("dead_lettered", |counts| counts.dead_lettered),
    ("transfer_dead_lettered", |counts| counts.transfer_dead_lettered),
];

/// Appends the metrics of all entities.
pub fn entities(text: &mut String, shared: &Shared, named: &Named) {
    let rows = rows(shared, named);
    let name = "barid_entity_messages";
    header(text, name, "gauge", "Messages in queues and subscriptions.");
    for Row { tenant, entity, counts, .. } in &rows {
        for (state, count) in STATES {
            let count = count(counts);
            let _ = writeln!(
                text,
                "{name}{{tenant=\"{tenant}\",entity=\"{entity}\",state=\"{state}\"}} {count}"
            );
        }
    }
    let now = shared.engine.clock.wall();
    for (name, help, value) in PER_ENTITY {
        header(text, name, "gauge", help);
        for row in &rows {
            let Row { tenant, entity, .. } = row;
            let value = value(row, now);
            let _ = writeln!(text, "{name}{{tenant=\"{tenant}\",entity=\"{entity}\"}} {value}");
        }
    }
}

/// Returns a row for each queue and subscription, by tenant and name. Beyond [`ENTITIES_MAX`], returns one
/// row for the others of each tenant. Tenants without series of their own have one row together.
fn rows(shared: &Shared, named: &Named) -> Vec<Row> {
    let (mut rows, mut others) = (Vec::new(), BTreeMap::new());
    for tenant in shared.engine.tenants.all() {
        let Some(entities) = tenant.used_entities() else { continue };
        for queue in entities.list().iter().flat_map(queues) {
            let (counts, receivers) = (queue.counts(), queue.receivers());
            let has_row = rows.len() < ENTITIES_MAX && named.is_own(&tenant.name);
            let tenant = named.label(&tenant.name);
            if has_row {
                // A path has no characters that need an escape.
                rows.push(Row { tenant, entity: queue.path().into(), counts, receivers });
                continue;
            }
            let row = others.entry(tenant.clone()).or_insert_with(|| Row {
                tenant,
                entity: OTHERS.into(),
                counts: Counts::default(),
                receivers: 0,
            });
            row.add(&counts, receivers);
        }
    }
    rows.extend(others.into_values());
    rows
}

/// Returns the queues that hold the messages of a queue or topic.
fn queues(node: &Node) -> Vec<Arc<Queue>> {
    match node {
        Node::Queue(queue) => vec![Arc::clone(queue)],
        Node::Topic(topic) => topic.subscriptions().to_vec(),
    }
}

impl Row {
    fn add(&mut self, more: &Counts, receivers: usize) {
        let counts = &mut self.counts;
        counts.active += more.active;
        counts.locked += more.locked;
        counts.deferred += more.deferred;
        counts.scheduled += more.scheduled;
        counts.dead_lettered += more.dead_lettered;
        counts.transfer_dead_lettered += more.transfer_dead_lettered;
        counts.sessions += more.sessions;
        counts.bytes += more.bytes;
        counts.footprint += more.footprint;
        counts.oldest = counts.oldest.into_iter().chain(more.oldest).min();
        self.receivers += receivers;
    }
}
