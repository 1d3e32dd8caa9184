//! Consequences of a command: changes of the store, and notifications.

use std::sync::Arc;

use statestore_proto::{Notification, Version};

use crate::ids::{PacketId, SessionNumber};
use crate::state_store::{AnsweredRecord, StateRecord};

/// Receives the consequences of a command, in order, while the partition is locked.
///
/// The consequences of one command must be durable together or not at all: the implementation holds the shard from the
/// first call to the last. Each put and removal returns the number of the batch that contains it, which is therefore
/// the same for the whole command.
pub trait Effects<W> {
    /// Stores the record of a key.
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64;

    /// Removes a key that was put before.
    fn remove(&mut self, key: &Arc<[u8]>) -> u64;

    /// Stores a version that was assigned and must never be assigned again.
    fn put_clock(&mut self, version: Version) -> u64;

    /// Stores the answer to a request, which gets the same answer if it comes again.
    fn put_answered(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) -> u64;

    /// Removes an answer that is not needed any more.
    fn remove_answered(&mut self, session: SessionNumber, packet_id: PacketId);

    /// Tells `watchers` of the change of a key, once the batch `after` is durable.
    fn notify(
        &mut self,
        watchers: &[W],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
    );
}
