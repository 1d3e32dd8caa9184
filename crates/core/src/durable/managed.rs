//! Changes of managed objects.

use super::changes::Change;
use super::keys::ManagedKey;
use super::{ManagedRecord, Shard};

impl Shard {
    /// Puts a managed object, or the mark of a kind, in place of its earlier record.
    pub fn put_managed(&mut self, key: ManagedKey<'_>, record: ManagedRecord) {
        self.changes.managed.note(owned(key), Change::Put(record));
    }

    /// Removes a managed object.
    pub fn remove_managed(&mut self, key: ManagedKey<'_>) {
        self.changes.managed.note(owned(key), Change::Remove);
    }
}

fn owned(key: ManagedKey<'_>) -> super::write_set::ManagedName {
    (key.kind, key.tenant.into(), key.name.into())
}
