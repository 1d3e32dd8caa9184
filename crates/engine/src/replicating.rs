//! Replicas of other brokers: lists of what is here, and merges of what comes.

use std::time::Duration;

use barid_core::durable::keys::ManagedKind;
use barid_core::durable::records::RecordError;
use barid_core::durable::{ManagedRecord, RetainedRecord};
use barid_core::retained::Walked;
use barid_core::stamp::Stamp;
use barid_peers::{Listed, Object, ObjectHash, Parts};
use hashbrown::HashMap;

use crate::durable::Commits;
use crate::engine::Engine;
use crate::replicated::{RETAINED, retained};
use crate::retaining::{self, Merged};
use crate::tenant::Tenant;

/// Time for which a tombstone is kept in any case: what other brokers sent before they heard of the removal has arrived
/// by then.
const TOMBSTONE_LEAST: Duration = Duration::from_mins(2);

/// Time after which a tombstone is forgotten, although a broker of the cluster has not heard of the removal.
const TOMBSTONE_MOST: Duration = Duration::from_hours(30 * 24);

/// The name of a replicated object, with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    kind: u8,
    tenant: Box<str>,
    name: Box<str>,
}

impl From<Object<'_>> for ObjectName {
    fn from(Object { kind, tenant, name }: Object<'_>) -> Self {
        Self { kind, tenant: tenant.into(), name: name.into() }
    }
}

impl ObjectName {
    /// Returns the name.
    pub fn as_object(&self) -> Object<'_> {
        Object { kind: self.kind, tenant: &self.tenant, name: &self.name }
    }
}

impl Engine {
    /// Lists the objects of some parts.
    pub fn list_replicas(&self, parts: &Parts) -> Vec<Listed> {
        let mut listed = Vec::new();
        self.visit_replicas(parts, |object, stamp, is_tombstone| {
            if !is_tombstone {
                listed.push(Listed { object: object.hash(), stamp });
            }
        });
        listed
    }

    /// Returns the objects of some parts whose last change here is later than that of another broker, which has `theirs`.
    /// Removals count only for objects that the other broker has.
    pub fn later_replicas(
        &self,
        parts: &Parts,
        theirs: &HashMap<ObjectHash, Stamp>,
    ) -> Vec<ObjectName> {
        let mut later = Vec::new();
        self.visit_replicas(parts, |object, stamp, is_tombstone| {
            let is_later = match theirs.get(&object.hash()) {
                Some(their) => *their < stamp,
                None => !is_tombstone,
            };
            if is_later {
                later.push(object.into());
            }
        });
        later
    }

    /// Appends the record of an object as it is now, or its tombstone. Returns false if there is neither.
    pub fn encode_replica(&self, object: Object<'_>, out: &mut Vec<u8>) -> bool {
        match managed_kind(object.kind) {
            Some(kind) => {
                let record = self.managed.record(kind, object.name);
                record.map(|record| record.encode(out)).is_some()
            }
            None => {
                let tenant = self.tenants.get(object.tenant);
                let record = tenant.and_then(|tenant| tenant.retained.read().record(object.name));
                record.map(|record| record.encode(out)).is_some()
            }
        }
    }

    /// Takes over the state of an object from another broker. Returns whether it is later than the own one. What cannot be
    /// changed now, because a shard is closed or the limits of the broker are reached, stays as it is.
    ///
    /// # Errors
    /// [`RecordError`]: the record is malformed.
    pub fn merge_replica(&self, object: Object<'_>, record: &[u8]) -> Result<bool, RecordError> {
        let mut commits = Commits::default();
        if let Some(kind) = managed_kind(object.kind) {
            let record = ManagedRecord::decode(record)?;
            let merged = self.managed.merge(kind, object.name, record, &mut commits);
            return Ok(merged.unwrap_or_else(|error| {
                tracing::warn!("a change of another broker is not made here yet: {error}");
                false
            }));
        }
        if object.kind != RETAINED {
            return Err(RecordError::Malformed("its kind is unknown"));
        }
        let record = RetainedRecord::decode(record)?;
        if record.message.publication().topic != object.name {
            return Err(RecordError::Malformed("its name is that of another topic"));
        }
        let tenant = self.tenants.recover(object.tenant);
        let merged = retaining::merge(&tenant, record, self.clock.now(), &mut commits);
        Ok(merged == Merged::Changed)
    }

    /// Forgets the tombstones that no other broker needs any more, and those that are too old.
    pub(crate) fn forget_tombstones(&self) {
        let Some(cluster) = &self.cluster else { return };
        let now = self.clock.wall_micros();
        let equal_since = cluster.equal_since();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let is_over = |object: Object<'_>, stamp: Stamp| {
            let age = now.saturating_sub(stamp.time);
            let heard_by = stamp.time.saturating_add(micros(TOMBSTONE_LEAST));
            let is_heard = || equal_since[object.hash().part()] > heard_by;
            age > micros(TOMBSTONE_MOST) || (age > micros(TOMBSTONE_LEAST) && is_heard())
        };
        self.managed.forget_tombstones(is_over);
        for tenant in self.tenants.all() {
            retaining::forget_tombstones(&tenant, |topic, stamp| {
                is_over(retained(&tenant.name, topic), stamp)
            });
        }
    }

    /// Calls `each` with the objects of some parts, and with their tombstones.
    fn visit_replicas(&self, parts: &Parts, mut each: impl FnMut(Object<'_>, Stamp, bool)) {
        let mut visit = |object: Object<'_>, stamp, is_tombstone| {
            if parts.contains(object.hash().part()) {
                each(object, stamp, is_tombstone);
            }
        };
        self.managed.visit(&mut visit);
        for tenant in self.tenants.all() {
            visit_retained(&tenant, &mut visit);
        }
    }
}

fn visit_retained(tenant: &Tenant, visit: &mut impl FnMut(Object<'_>, Stamp, bool)) {
    let mut after = None;
    loop {
        let walked = tenant.retained.read().visit(after.as_deref(), |topic, stamp| {
            visit(retained(&tenant.name, topic), stamp, false);
        });
        match walked {
            Walked::To(topic) => after = Some(topic),
            Walked::All => break,
        }
    }
    let mut after: Option<Box<str>> = None;
    loop {
        after = tenant.retained.read().visit_tombstones(after.as_deref(), |topic, stamp| {
            visit(retained(&tenant.name, topic), stamp, true);
        });
        if after.is_none() {
            return;
        }
    }
}

/// The kind of a managed object; `None`: it is no managed object.
fn managed_kind(kind: u8) -> Option<ManagedKind> {
    ManagedKind::ALL.into_iter().find(|known| *known as u8 == kind)
}

#[cfg(test)]
mod tests;
