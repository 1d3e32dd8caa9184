//! Whether every entry of a queue has its message.

use std::collections::HashSet;

use barid_core::durable::keys::{ENTRIES, MESSAGES, MessageKey};
use barid_core::durable::{EntryRecord, MessageId};
use barid_store::Keyspace;

/// Messages that entries refer to and that have not been seen. Keyspaces are read in the order of their
/// numbers, entries before messages.
#[derive(Debug, Default)]
pub struct References {
    missing: HashSet<(usize, MessageId)>,
}

impl References {
    /// Notes one record. What cannot be read is a finding of somebody else's.
    pub fn note(&mut self, shard: usize, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        const { assert!(ENTRIES.0 < MESSAGES.0) };
        if keyspace == ENTRIES {
            let message = EntryRecord::decode(value).ok().and_then(|entry| entry.refers_to());
            self.missing.extend(message.map(|message| (shard, message)));
        } else if keyspace == MESSAGES
            && let Ok(key) = MessageKey::decode(key)
        {
            self.missing.remove(&(shard, key.message));
        }
    }

    /// A sentence for each shard where messages are missing.
    pub fn findings(&self) -> Vec<String> {
        let mut shards: Vec<usize> = self.missing.iter().map(|(shard, _)| *shard).collect();
        shards.sort_unstable();
        let same = shards.chunk_by(|one, other| one == other);
        same.map(|same| {
            let (shard, count) = (same[0], same.len());
            format!("shard {shard}: {count} messages that wait for clients are missing")
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
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
                "shard 0: 1 messages that wait for clients are missing",
                "shard 1: 1 messages that wait for clients are missing",
            ]
        );
        references.note(0, MESSAGES, &message(2), b"");
        references.note(1, MESSAGES, &message(1), b"");
        assert_eq!(references.findings(), [""; 0]);
    }
}
