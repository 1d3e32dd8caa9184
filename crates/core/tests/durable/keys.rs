//! Keys: every key is read as it was written, sorts by its fields, and belongs to one tenant.

use barid_core::durable::RecordError;
use barid_core::durable::keys::{
    AnsweredKey, EntityKey, EntryKey, MANAGED_NAME_MAX, ManagedKey, ManagedKind, MessageKey,
    QueueBodyKey, QueueEntryKey, QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey,
    RetainedKey, SessionKey, StateClockKey, StateKey, SubscriptionKey, tenant_of,
};
use barid_core::entity::Part;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::samples::{kind, number, packet_id, part, text, topic};

/// Tenant names, among them pairs of which one is a prefix of the other.
fn tenant() -> impl Strategy<Value = String> {
    "[ab]{0,3}|[a-zü]{1,64}"
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut key = b"what was there before".to_vec();
    encode(&mut key);
    key
}

proptest! {
    #[test]
    fn every_key_is_read_as_it_was_written(
        tenant in tenant(),
        text in text(),
        topic in topic(),
        session in number(),
        number in 1..=u64::MAX,
        packet_id in packet_id(),
        of_store in vec(any::<u8>(), 1..20),
    ) {
        let (tenant, client_id, filter) = (&*tenant, &*text, &*text);
        let key = SessionKey { tenant, client_id };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(SessionKey::decode(&bytes), Ok(key));
        let key = SubscriptionKey { tenant, session, filter };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(SubscriptionKey::decode(&bytes), Ok(key));
        let key = EntryKey { tenant, session, entry: number };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(EntryKey::decode(&bytes), Ok(key));
        let key = MessageKey { tenant, message: session };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(MessageKey::decode(&bytes), Ok(key));
        let key = ReceivedKey { tenant, session, packet_id };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(ReceivedKey::decode(&bytes), Ok(key));
        let key = RetainedKey { tenant, topic: &topic };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(RetainedKey::decode(&bytes, &topic), Ok(key));
        prop_assert!(RetainedKey::decode(&bytes, &(topic.clone() + "/")).is_err());
        prop_assert_eq!(tenant_of(&bytes), Some(tenant));
        let key = StateKey { tenant, key: &of_store };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(StateKey::decode(&bytes), Ok(key));
        let key = StateClockKey { tenant };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(StateClockKey::decode(&bytes), Ok(key));
        let key = AnsweredKey { tenant, session, packet_id };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(AnsweredKey::decode(&bytes), Ok(key));
    }

    #[test]
    fn every_key_of_a_queue_is_read_as_it_was_written(
        tenant in tenant(),
        path in topic(),
        queue in number(),
        part in part(),
        number in 1..=u64::MAX,
        id in number(),
        text in text(),
    ) {
        let (tenant, text) = (&*tenant, &*text);
        let key = EntityKey { tenant, path: &path };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(EntityKey::decode(&bytes), Ok(key));
        let key = QueueEntryKey { tenant, queue, part, number };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(QueueEntryKey::decode(&bytes), Ok(key));
        let key = QueueBodyKey { tenant, queue, id };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(QueueBodyKey::decode(&bytes), Ok(key));
        let key = QueueSessionKey { tenant, queue, session: text };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(QueueSessionKey::decode(&bytes), Ok(key));
        let key = QueueSeenKey { tenant, queue, message_id: text };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(QueueSeenKey::decode(&bytes), Ok(key));
        let key = QueueNumbersKey { tenant, queue, part };
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(QueueNumbersKey::decode(&bytes), Ok(key));
        prop_assert_eq!(tenant_of(&bytes), Some(tenant));
    }

    #[test]
    fn every_key_of_a_managed_object_is_read_as_it_was_written(
        kind in kind(),
        name in "[ab/ü]{0,6}|[a-z]{1,64}/[a-z/ü ]{1,1000}",
        other in "[ab/ü]{0,6}",
    ) {
        let key = ManagedKey::of(kind, &name);
        let has_client = name.split_once('/').map(|(tenant, client)| !tenant.is_empty() && !client.is_empty());
        let is_possible = match kind {
            ManagedKind::Tenant => has_client.is_none(),
            _ => has_client.unwrap_or(true),
        };
        let is_possible = is_possible && !name.is_empty() && name.len() <= MANAGED_NAME_MAX;
        prop_assert_eq!(key.is_some(), is_possible, "{:?}", name);
        let Some(key) = key else { return Ok(()) };
        prop_assert_eq!(key.full_name(), name.as_str());
        prop_assert!(!key.is_mark());
        let bytes = encoded(|out| key.encode(out));
        prop_assert_eq!(ManagedKey::decode(&bytes), Ok(key));
        prop_assert_eq!(tenant_of(&bytes), Some(key.tenant));
        if let Some(other) = ManagedKey::of(kind, &other) {
            let same = encoded(|out| other.encode(out)) == bytes;
            prop_assert_eq!(same, other.full_name() == name);
        }
        let mark = encoded(|out| ManagedKey::mark(kind).encode(out));
        prop_assert_eq!(ManagedKey::decode(&mark), Ok(ManagedKey::mark(kind)));
        prop_assert_ne!(mark, bytes);
    }

    #[test]
    fn garbage_is_refused_or_read_exactly(bytes in vec(any::<u8>(), 0..30), tenant in tenant()) {
        let of_tenant = [&[tenant.len() as u8], tenant.as_bytes(), &[1], &bytes[..]].concat();
        for key in [&bytes, &of_tenant] {
            if let Ok(read) = SessionKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = SubscriptionKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = EntryKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = MessageKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = ReceivedKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = RetainedKey::decode(key, "a/b") {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = StateKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = StateClockKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = AnsweredKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = EntityKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = QueueEntryKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = QueueBodyKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = QueueSessionKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = QueueSeenKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = QueueNumbersKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
            }
            if let Ok(read) = ManagedKey::decode(key) {
                prop_assert_eq!(&encoded(|out| read.encode(out)), key);
                if !read.is_mark() {
                    let name = read.full_name();
                    prop_assert_eq!(ManagedKey::of(read.kind, &name), Some(read));
                }
            }
        }
    }

    #[test]
    fn entries_sort_as_their_numbers(a in (number(), 1..=u64::MAX), b in (number(), 1..=u64::MAX)) {
        let key = |(session, entry)| encoded(|out| EntryKey { tenant: "t", session, entry }.encode(out));
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
    }

    #[test]
    fn messages_in_a_queue_sort_by_part_and_number(
        a in (number(), part(), 1..=u64::MAX),
        b in (number(), part(), 1..=u64::MAX),
    ) {
        let key = |(queue, part, number)| {
            encoded(|out| QueueEntryKey { tenant: "t", queue, part, number }.encode(out))
        };
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
    }

    #[test]
    fn topics_sort_by_their_levels(a in topic(), b in topic()) {
        let key = |topic: &str| {
            encoded(|out| RetainedKey { tenant: "t", topic }.encode(out))
        };
        let levels = |topic: &str| topic.split('/').map(str::to_owned).collect::<Vec<_>>();
        prop_assert_eq!(key(&a).cmp(&key(&b)), levels(&a).cmp(&levels(&b)));
    }

    #[test]
    fn no_tenant_has_a_key_among_those_of_another(a in tenant(), b in tenant(), text in text()) {
        prop_assume!(a != b);
        let begin = encoded(|out| SessionKey { tenant: &a, client_id: "" }.encode(out));
        let key = encoded(|out| SessionKey { tenant: &b, client_id: &text }.encode(out));
        prop_assert!(!key.starts_with(&begin));
    }
}

#[test]
fn a_key_of_a_later_version_is_refused() {
    let newer = RecordError::Newer { found: 2, known: 1 };
    assert_eq!(SessionKey::decode(b"\x01t\x02client"), Err(newer));
    assert_eq!(RetainedKey::decode(b"\x01t\x02a", "a"), Err(newer));
    assert!(matches!(SessionKey::decode(b"\x01t\0client"), Err(RecordError::Malformed(_))));
}

#[test]
fn the_form_of_a_key_stays_as_it_was_once_written() {
    let key = encoded(|out| EntryKey { tenant: "acme", session: 1 << 48, entry: 2 }.encode(out));
    assert_eq!(key, b"\x04acme\x01\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
    let key = encoded(|out| RetainedKey { tenant: "", topic: "a//b" }.encode(out));
    assert_eq!(key, b"\0\x01a\0\0b");
    let key = encoded(|out| StateKey { tenant: "t", key: b"a/\0b" }.encode(out));
    assert_eq!(key, b"\x01t\x01a/\0b");
    let key = encoded(|out| AnsweredKey { tenant: "t", session: 3, packet_id: 4 }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03\0\x04");
    let key = encoded(|out| EntityKey { tenant: "t", path: "a/b" }.encode(out));
    assert_eq!(key, b"\x01t\x01a/b");
    let part = Part::DeadLetter;
    let key = encoded(|out| QueueEntryKey { tenant: "t", queue: 3, part, number: 4 }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03\x01\0\0\0\0\0\0\0\x04");
    let key = encoded(|out| QueueBodyKey { tenant: "t", queue: 3, id: 4 }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04");
    let key = encoded(|out| QueueSessionKey { tenant: "t", queue: 3, session: "s" }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03s");
    let key = encoded(|out| QueueSeenKey { tenant: "t", queue: 3, message_id: "m" }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03m");
    let part = Part::TransferDeadLetter;
    let key = encoded(|out| QueueNumbersKey { tenant: "t", queue: 3, part }.encode(out));
    assert_eq!(key, b"\x01t\x01\0\0\0\0\0\0\0\x03\x02");
    for (kind, name, expected) in [
        (ManagedKind::User, "t/a/b", &b"\x01t\x01\x01a/b"[..]),
        (ManagedKind::Tenant, "t", b"\x01t\x01\x02"),
        (ManagedKind::Ban, "x", b"\0\x01\x03x"),
        (ManagedKind::Token, "t/x", b"\x01t\x01\x04x"),
        (ManagedKind::Slot, "12", b"\0\x01\x0512"),
    ] {
        let key = ManagedKey::of(kind, name).unwrap();
        assert_eq!(encoded(|out| key.encode(out)), expected);
    }
    assert_eq!(encoded(|out| ManagedKey::mark(ManagedKind::User).encode(out)), b"\0\x01\x01");
}
