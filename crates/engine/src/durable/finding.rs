//! Lookup of messages and bodies of a shard, wherever they are: noted, on their way to the log, or in the store.

use std::sync::Arc;

use barid_core::durable::{WriteSet, keys};
use barid_core::ids::{MessageId, QueueNumber, TenantNumber};
use barid_core::message::Message;
use barid_store::StoreError;
use tracing::error;

use super::DurableShard;
use super::shard::Pending;
use crate::faults::{IfHolds as _, Rule};

impl DurableShard {
    /// Returns a message of the shard, wherever it is; `None`: it is lost. Blocks for the disk.
    ///
    /// # Errors
    /// Only errors that may pass. A damaged message counts as lost: trying again would not help.
    pub fn message(
        &self,
        tenant: TenantNumber,
        name: &str,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>, StoreError> {
        let noted = |pending: &Pending| pending.find(|writes| writes.message(tenant, id)).cloned();
        match self.find(noted, || self.read(name, id)) {
            Err(error @ StoreError::Corrupt(_)) => {
                error!(shard = self.index(), %error, "cannot read a message back: it is lost");
                Ok(None)
            }
            found => found,
        }
    }

    /// Returns the bytes of a message in a queue, wherever they are; `None`: they are lost. Blocks for the disk.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub fn body(
        &self,
        tenant: TenantNumber,
        name: &str,
        queue: QueueNumber,
        id: u64,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let noted = |pending: &Pending| {
            let found = pending.find(|writes| writes.queue_body(tenant, queue, id)).cloned();
            found.if_holds(Rule::FindWhatIsOnItsWay)
        };
        self.find(noted, || self.read_body(name, queue, id))
    }

    /// Looks in the write set and in the batches in flight, and then in the store.
    fn find<T>(
        &self,
        noted: impl Fn(&Pending) -> Option<T>,
        read: impl Fn() -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let found = noted(&self.pending.lock());
        if found.is_some() {
            return Ok(found);
        }
        let stored = read()?;
        if stored.is_some() {
            return Ok(stored);
        }
        // It may have moved from one place to another between the two lookups. It does not move while this is
        // locked.
        let pending = self.pending.lock();
        match noted(&pending) {
            None => read(),
            found => Ok(found),
        }
    }

    fn read_body(
        &self,
        name: &str,
        queue: QueueNumber,
        id: u64,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let mut key = Vec::new();
        keys::QueueBodyKey { tenant: name, queue, id }.encode(&mut key);
        let Some(value) = self.store.get(keys::QUEUE_BODIES, &key)? else { return Ok(None) };
        match barid_core::durable::records::decode_body(&value) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => {
                error!(shard = self.index(), %error, "cannot read a message back: it is lost");
                Ok(None)
            }
        }
    }

    fn read(&self, name: &str, id: MessageId) -> Result<Option<Arc<Message>>, StoreError> {
        let mut key = Vec::new();
        keys::MessageKey { tenant: name, message: id }.encode(&mut key);
        let Some(value) = self.store.get(keys::MESSAGES, &key)? else { return Ok(None) };
        let message = barid_core::durable::records::decode_message(&value);
        message.map(|message| Some(Arc::new(message))).map_err(|error| {
            StoreError::Corrupt(format!("message {id} of shard {}: {error}", self.index()))
        })
    }
}

impl Pending {
    /// Looks in the accumulating batch, in the sealed one, and in the batches in flight. Returns what the newest of those batches has
    /// that have anything.
    fn find<'a, T>(&'a self, of: impl FnMut(&'a WriteSet) -> Option<T>) -> Option<T> {
        let on_their_way = self.in_flight.iter().rev().map(|(_, writes)| &**writes);
        let noted = std::iter::once(self.shard.pending()).chain(self.shard.sealed());
        noted.chain(on_their_way).find_map(of)
    }
}
