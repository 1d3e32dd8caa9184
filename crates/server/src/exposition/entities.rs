//! Queues and subscriptions: what lies in each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use barid_core::entity::Counts;
use barid_core::time::WallTime;
use barid_engine::entities::{Node, Queue};

use super::{escaped, header};
use crate::shared::Shared;

/// The most queues and subscriptions with series of their own, in all tenants together. What lies in the others
/// of a tenant is summed up under `entity="*"`, which no entity is called.
const ENTITIES_MAX: usize = 1_000;

/// The name of all others.
const OTHERS: &str = "*";

/// A queue or subscription, or all others of a tenant.
struct Row {
    tenant: String,
    entity: String,
    counts: Counts,
    receivers: usize,
}

/// A metric that has one value for each queue and subscription.
type PerEntity = (&'static str, &'static str, fn(&Row, WallTime) -> u64);

const PER_ENTITY: [PerEntity; 5] = [
    ("barid_entity_sessions", "Sessions with a message, a state or a lock.", |row, _| {
        row.counts.sessions as u64
    }),
    ("barid_entity_bytes", "Bytes of messages and states.", |row, _| row.counts.bytes as u64),
    (
        "barid_entity_footprint_bytes",
        "Bytes that count against MaxSizeInMegabytes: of messages and states, and of what is kept with each.",
        |row, _| row.counts.footprint as u64,
    ),
    ("barid_entity_receivers", "Receivers.", |row, _| row.receivers as u64),
    ("barid_entity_oldest_seconds", "Age of the oldest message.", |row, now| {
        row.counts.oldest.map_or(0, |oldest| now.since(oldest).as_secs())
    }),
];

/// What the messages of an entity wait for.
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
pub fn entities(text: &mut String, shared: &Shared) {
    let rows = rows(shared);
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

/// Queues and subscriptions by tenant and name; those beyond the most as one.
fn rows(shared: &Shared) -> Vec<Row> {
    let (mut rows, mut others) = (Vec::new(), BTreeMap::new());
    for tenant in shared.engine.tenants.all() {
        let Some(entities) = tenant.used_entities() else { continue };
        for queue in entities.list().iter().flat_map(queues) {
            let (counts, receivers) = (queue.counts(), queue.receivers());
            let tenant = escaped(&tenant.name);
            if rows.len() < ENTITIES_MAX {
                // What a path may have needs no escape.
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

/// What holds messages of a queue or topic.
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
