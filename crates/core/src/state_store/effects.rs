//! What else follows from a command.

use std::sync::Arc;

use statestore_proto::{Notification, Version};

use crate::ids::{PacketId, SessionNumber};
use crate::state_store::{AnsweredRecord, StateRecord};

/// Hears what follows from a command, in order, while the partition is locked.
///
/// What follows from one command must be durable together or not at all: whoever implements it holds the
/// shard from the first call to the last. Each put and removal answers the number of the batch that has
/// it, which is therefore always the same.
pub trait Effects<W> {
    /// A key has what is in the record from now on.
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64;

    /// A key that was put has gone.
    fn remove(&mut self, key: &Arc<[u8]>) -> u64;

    /// This version has been given, and is never to be given again.
    fn put_clock(&mut self, version: Version) -> u64;

    /// A request has been answered, and is to be answered in the same way if it comes again.
    fn put_answered(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) -> u64;

    /// Such an answer is not needed any more.
    fn remove_answered(&mut self, session: SessionNumber, packet_id: PacketId);

    /// All these watch a key, and are to be told of its change when the batch `after` is durable.
    fn notify(
        &mut self,
        watchers: &[W],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
    );
}
