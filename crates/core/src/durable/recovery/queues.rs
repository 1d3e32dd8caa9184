//! Reading of entities and of the contents of their queues.

use super::{Reading, RecoveryError};
use crate::durable::keys::{
    self, EntityKey, QueueEntryKey, QueueNumbersKey, QueueSeenKey, QueueSessionKey,
};
use crate::durable::records::{RecordError, decode_numbers, decode_queue_entry, decode_seen};
use crate::durable::{EntityRecord, SessionStateRecord};
use crate::ids::{QueueNumber, TenantNumber};

impl Reading<'_> {
    pub(super) fn entities(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::ENTITIES, |this, key, value| {
            let EntityKey { tenant, path } = EntityKey::decode(key)?;
            let record = EntityRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            let shard = &mut this.recovered.shard;
            if this.queues.insert(record.queue, tenant).is_some() {
                return Err(RecordError::Malformed("two entities have the same queue"));
            }
            shard.skip_number(record.queue);
            this.recovery.entity(tenant, path, record);
            Ok(())
        })
    }

    pub(super) fn queue_numbers(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::QUEUE_NUMBERS, |this, key, value| {
            let QueueNumbersKey { tenant, queue, part } = QueueNumbersKey::decode(key)?;
            let reserved = decode_numbers(value)?;
            let tenant = this.tenant(tenant);
            if this.has_queue(tenant, queue) {
                this.recovery.queue_numbers(tenant, queue, part, reserved);
            } else {
                this.recovered.shard.remove_queue_numbers(tenant, queue, part);
            }
            Ok(())
        })
    }

    pub(super) fn queue_states(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::QUEUE_SESSIONS, |this, key, value| {
            let QueueSessionKey { tenant, queue, session } = QueueSessionKey::decode(key)?;
            let record = SessionStateRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            let session = session.into();
            if this.has_queue(tenant, queue) {
                this.recovery.queue_state(tenant, queue, session, record);
            } else {
                this.recovered.shard.remove_queue_state(tenant, queue, &session);
            }
            Ok(())
        })
    }

    pub(super) fn queue_entries(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::QUEUE_ENTRIES, |this, key, value| {
            let QueueEntryKey { tenant, queue, part, number } = QueueEntryKey::decode(key)?;
            let entry = decode_queue_entry(number, value)?;
            let tenant = this.tenant(tenant);
            if this.has_queue(tenant, queue) {
                this.recovered.shard.recover_queue_entry(queue, part, number);
                this.recovery.queue_entry(tenant, queue, part, entry);
            } else {
                this.recovered.shard.remove_queue_entry(tenant, queue, part, number);
                this.recovered.shard.remove_queue_body(tenant, queue, entry.body.id);
            }
            Ok(())
        })
    }

    pub(super) fn queue_seen(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::QUEUE_SEEN, |this, key, value| {
            let QueueSeenKey { tenant, queue, message_id } = QueueSeenKey::decode(key)?;
            let until = decode_seen(value)?;
            let tenant = this.tenant(tenant);
            if this.has_queue(tenant, queue) {
                this.recovery.queue_seen(tenant, queue, message_id.into(), until);
            } else {
                this.recovered.shard.remove_queue_seen(tenant, queue, &message_id.into());
            }
            Ok(())
        })
    }

    /// Returns whether an entity has the queue. If none has, ensures that its number is not
    /// assigned again.
    fn has_queue(&mut self, tenant: TenantNumber, queue: QueueNumber) -> bool {
        let has = self.queues.get(&queue) == Some(&tenant);
        if !has {
            self.recovered.shard.skip_number(queue);
        }
        has
    }
}
