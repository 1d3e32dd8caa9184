//! Check that every entry of a queue has its message, and every message in an entity its body.

use std::collections::HashSet;

use barid_core::durable::keys::{
    ENTRIES, MESSAGES, MessageKey, QUEUE_BODIES, QUEUE_ENTRIES, QueueBodyKey, QueueEntryKey,
};
use barid_core::durable::records::decode_queue_entry;
use barid_core::ids::{MessageId, QueueNumber};
use barid_core::session::EntryRecord;
use barid_store::Keyspace;

use crate::plural;

/// Messages and bodies that entries refer to and that have not been read. Keyspaces are read in the order
/// of their numbers, so entries come before messages and bodies.
#[derive(Debug, Default)]
pub struct References {
    messages: HashSet<(usize, MessageId)>,
    bodies: HashSet<(usize, QueueNumber, u64)>,
}

impl References {
    /// Notes one record. Unreadable records are ignored: another check reports them.
    pub fn note(&mut self, shard: usize, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        const { assert!(ENTRIES.0 < MESSAGES.0 && QUEUE_ENTRIES.0 < QUEUE_BODIES.0) };
        match keyspace {
            ENTRIES => {
                let message = EntryRecord::decode(value).ok().and_then(|entry| entry.refers_to());
                self.messages.extend(message.map(|message| (shard, message)));
            }
            MESSAGES => {
                if let Ok(key) = MessageKey::decode(key) {
                    self.messages.remove(&(shard, key.message));
                }
            }
            QUEUE_ENTRIES => {
                if let Ok(QueueEntryKey { queue, number, .. }) = QueueEntryKey::decode(key)
                    && let Ok(entry) = decode_queue_entry(number, value)
                {
                    self.bodies.insert((shard, queue, entry.body.id));
                }
            }
            QUEUE_BODIES => {
                if let Ok(QueueBodyKey { queue, id, .. }) = QueueBodyKey::decode(key) {
                    self.bodies.remove(&(shard, queue, id));
                }
            }
            _ => (),
        }
    }

    /// Returns a sentence for each shard with missing messages, and for each with missing bodies.
    pub fn findings(&self) -> Vec<String> {
        let messages = by_shard(self.messages.iter().map(|(shard, _)| *shard));
        let bodies = by_shard(self.bodies.iter().map(|(shard, ..)| *shard));
        let message = |(shard, count)| {
            let messages = plural::count(count as u64, "message", "messages");
            let (waits, is) = if count == 1 { ("waits", "is") } else { ("wait", "are") };
            format!("shard {shard}: {messages} that {waits} for clients {is} missing")
        };
        let body = |(shard, count)| {
            let bodies = plural::count(count as u64, "body", "bodies");
            let is = if count == 1 { "is" } else { "are" };
            format!("shard {shard}: {bodies} of messages in queues {is} missing")
        };
        messages.into_iter().map(message).chain(bodies.into_iter().map(body)).collect()
    }
}

/// Counts the occurrences of each shard, in ascending order of shards.
fn by_shard(shards: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut shards: Vec<usize> = shards.collect();
    shards.sort_unstable();
    shards.chunk_by(|one, other| one == other).map(|same| (same[0], same.len())).collect()
}

#[cfg(test)]
mod tests {
    use barid_core::entity::Part;

    use super::*;

    fn entry(message: MessageId) -> Vec<u8> {
        let waiting =
            EntryRecord { message, phase: Default::default(), ..EntryRecord::released(1) };
        let mut record = Vec::new();
        waiting.encode(&mut record);
        record
    }

    fn message(message: MessageId) -> Vec<u8> {
        let mut key = Vec::new();
        MessageKey { tenant: "default", message }.encode(&mut key);
        key
    }

    #[test]
    fn a_message_that_is_referred_to_has_to_be_there() {
        let mut released = Vec::new();
        EntryRecord::released(7).encode(&mut released);
        let mut references = References::default();
        for (shard, value) in
            [(0, entry(1)), (0, entry(2)), (0, entry(2)), (1, entry(1)), (1, released)]
        {
            references.note(shard, ENTRIES, b"", &value);
        }
        references.note(0, MESSAGES, &message(1), b"");
        references.note(0, MESSAGES, &message(3), b"");
        assert_eq!(
            references.findings(),
            [
                "shard 0: 1 message that waits for clients is missing",
                "shard 1: 1 message that waits for clients is missing",
            ]
        );
        references.note(0, MESSAGES, &message(2), b"");
        references.note(1, MESSAGES, &message(1), b"");
        assert_eq!(references.findings(), [""; 0]);
    }

    #[test]
    fn a_body_that_is_referred_to_has_to_be_there() {
        let key = |number: u64| {
            let (tenant, queue, part) = ("default", 5, Part::DeadLetter);
            let mut key = Vec::new();
            QueueEntryKey { tenant, queue, part, number }.encode(&mut key);
            key
        };
        let body = |id: u64| {
            let mut key = Vec::new();
            QueueBodyKey { tenant: "default", queue: 5, id }.encode(&mut key);
            key
        };
        let own_body = [1, 0, 5, 100, 0];
        let body_9 = [1, 0b1_0000, 5, 100, 0, 9, 9];
        let mut references = References::default();
        references.note(2, QUEUE_ENTRIES, &key(1), &own_body);
        references.note(2, QUEUE_ENTRIES, &key(2), &body_9);
        references.note(2, QUEUE_BODIES, &body(2), b"");
        assert_eq!(references.findings(), ["shard 2: 2 bodies of messages in queues are missing"]);
        references.note(2, QUEUE_BODIES, &body(1), b"");
        references.note(2, QUEUE_BODIES, &body(9), b"");
        assert_eq!(references.findings(), [""; 0]);
    }
}
