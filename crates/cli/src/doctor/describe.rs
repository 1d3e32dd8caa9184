//! Descriptions of a data directory's records by their keys.

use barid_core::durable::keys::{
    self, AnsweredKey, EntityKey, EntryKey, ManagedKey, ManagedKind, MessageKey, QueueBodyKey,
    QueueEntryKey, QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey, SessionKey,
    ShardKey, StateClockKey, StateKey, SubscriptionKey,
};
use barid_core::durable::records::RecordError;
use barid_store::Keyspace;

/// Separator of the levels of a topic in a key.
const SEPARATOR: u8 = 0;

/// Describes the record with this key, and its tenant.
pub fn describe(keyspace: Keyspace, key: &[u8]) -> String {
    let name = keys::NAMES.get(usize::from(keyspace.0)).copied().unwrap_or("unknown keyspace");
    match (in_words(keyspace, key), keys::tenant_of(key)) {
        (Ok(words), Some("")) => words,
        (Ok(words), Some(tenant)) => format!("{words} (tenant {tenant:?})"),
        _ => format!("a record of {name} with the damaged key {}", hex(key)),
    }
}

fn in_words(keyspace: Keyspace, key: &[u8]) -> Result<String, RecordError> {
    Ok(match keyspace {
        keys::SESSIONS => format!("the session of client {:?}", SessionKey::decode(key)?.client_id),
        keys::SUBSCRIPTIONS => {
            let SubscriptionKey { session, filter, .. } = SubscriptionKey::decode(key)?;
            format!("the subscription of session {session} to {filter:?}")
        }
        keys::ENTRIES => {
            let EntryKey { session, entry, .. } = EntryKey::decode(key)?;
            format!("entry {entry} in the queue of session {session}")
        }
        keys::MESSAGES => format!("message {}", MessageKey::decode(key)?.message),
        keys::RECEIVED => {
            let ReceivedKey { session, packet_id, .. } = ReceivedKey::decode(key)?;
            format!("packet identifier {packet_id} received from session {session}")
        }
        keys::RETAINED => format!("the retained message of {:?}", topic(key)),
        keys::STATE => {
            let StateKey { key, .. } = StateKey::decode(key)?;
            format!("the key {:?} of the state store", String::from_utf8_lossy(key))
        }
        keys::STATE_CLOCKS => {
            StateClockKey::decode(key)?;
            "the clock of the state store".into()
        }
        keys::STATE_ANSWERS => {
            let AnsweredKey { session, packet_id, .. } = AnsweredKey::decode(key)?;
            format!("the answer to request {packet_id} of session {session}")
        }
        keys::ENTITIES => format!("the definition of {:?}", EntityKey::decode(key)?.path),
        keys::QUEUE_ENTRIES => {
            let QueueEntryKey { queue, part, number, .. } = QueueEntryKey::decode(key)?;
            format!("message {number} of queue {queue}, {part:?}")
        }
        keys::QUEUE_BODIES => {
            let QueueBodyKey { queue, id, .. } = QueueBodyKey::decode(key)?;
            format!("body {id} of a message in queue {queue}")
        }
        keys::QUEUE_SESSIONS => {
            let QueueSessionKey { queue, session, .. } = QueueSessionKey::decode(key)?;
            format!("the state of message session {session:?} of queue {queue}")
        }
        keys::QUEUE_SEEN => {
            let QueueSeenKey { queue, message_id, .. } = QueueSeenKey::decode(key)?;
            format!("the message id {message_id:?} in the duplicate detection of queue {queue}")
        }
        keys::QUEUE_NUMBERS => {
            let QueueNumbersKey { queue, part, .. } = QueueNumbersKey::decode(key)?;
            format!("the sequence numbers of queue {queue}, {part:?}")
        }
        keys::SHARD => {
            ShardKey::decode(key)?;
            "the reserved numbers of sessions and queues".into()
        }
        keys::MANAGED => match ManagedKey::decode(key)? {
            key if key.is_mark() => format!("the note that there was a {}", key.kind.name()),
            key if key.kind == ManagedKind::Tenant => "the settings".into(),
            key => format!("the {} {:?}", key.kind.name(), key.full_name()),
        },
        _ => return Err(RecordError::Malformed("its keyspace is unknown")),
    })
}

/// Returns the topic in the key of a retained message: behind the tenant and the version.
fn topic(key: &[u8]) -> String {
    let behind = keys::tenant_of(key).map_or(0, |tenant| 1 + tenant.len() + 1);
    let topic = key.get(behind..).unwrap_or_default();
    let topic = topic.iter().map(|byte| if *byte == SEPARATOR { b'/' } else { *byte });
    String::from_utf8_lossy(&topic.collect::<Vec<_>>()).into_owned()
}

/// Formats the first bytes of a key in hexadecimal.
fn hex(key: &[u8]) -> String {
    let more = if key.len() > 32 { "…" } else { "" };
    data_encoding::HEXLOWER.encode(&key[..key.len().min(32)]) + more
}

#[cfg(test)]
mod tests {
    use barid_core::durable::keys::RetainedKey;

    use super::*;

    #[test]
    fn records_are_named_by_their_keys() {
        let mut key = Vec::new();
        RetainedKey { tenant: "acme", topic: "a/b" }.encode(&mut key);
        let said = describe(keys::RETAINED, &key);
        assert_eq!(said, "the retained message of \"a/b\" (tenant \"acme\")");
        SessionKey { tenant: "default", client_id: "pump" }.encode(&mut key);
        let said = describe(keys::SESSIONS, &key);
        assert_eq!(said, "the session of client \"pump\" (tenant \"default\")");
        let managed = |kind, name| {
            let mut key = Vec::new();
            ManagedKey::of(kind, name).unwrap().encode(&mut key);
            describe(keys::MANAGED, &key)
        };
        let said = managed(ManagedKind::User, "acme/pump");
        assert_eq!(said, "the user \"acme/pump\" (tenant \"acme\")");
        assert_eq!(managed(ManagedKind::Tenant, "acme"), "the settings (tenant \"acme\")");
        assert_eq!(managed(ManagedKind::Ban, "x"), "the ban \"x\"");
        ManagedKey::mark(ManagedKind::User).encode(&mut key);
        assert_eq!(describe(keys::MANAGED, &key), "the note that there was a user");
        assert!(describe(keys::SESSIONS, b"\xff\xfe").contains("damaged key fffe"));
        assert!(describe(Keyspace(99), b"").contains("unknown keyspace"));
    }
}
