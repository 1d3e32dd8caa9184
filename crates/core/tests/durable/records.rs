//! Records: every record is read as it was written, and nothing else is read as a record.

use std::fmt::Debug;

use barid_core::durable::records::{
    MANAGED_TEXT_MAX, decode_body, decode_message, decode_numbers, decode_queue_entry, decode_seen,
    decode_state_clock, encode_body, encode_message, encode_numbers, encode_queue_entry,
    encode_seen, encode_state_clock, verify,
};
use barid_core::durable::{
    EntityRecord, ManagedRecord, ReceivedRecord, RecordError, RetainedRecord, SessionRecord,
    SessionStateRecord, SubscriptionRecord, keys,
};
use barid_core::entity::{Entry, State};
use barid_core::session::EntryRecord;
use barid_core::state_store::{AnsweredRecord, StateRecord, Verdict};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use statestore_proto::{Refusal, Version};

use crate::samples;

/// The functions that write and read one kind of record.
struct Format<T> {
    encode: fn(&T, &mut Vec<u8>),
    decode: fn(&[u8]) -> Result<T, RecordError>,
    /// Whether a prefix of a record may be a valid record, too: its last field ends where the
    /// record does.
    is_open_ended: bool,
    /// The latest version.
    known: u8,
}

impl<T: PartialEq + Debug> Format<T> {
    fn write(&self, record: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        (self.encode)(record, &mut bytes);
        bytes
    }

    fn check(&self, record: &T, at: usize, byte: u8) {
        let bytes = self.write(record);
        assert_eq!((self.decode)(&bytes).as_ref(), Ok(record));
        for len in 0..bytes.len() {
            let part = (self.decode)(&bytes[..len]);
            assert!(part.is_err() || self.is_open_ended, "{part:?} is not all of {record:?}");
        }
        for version in 0..=u8::MAX {
            let other = [&[version], &bytes[1..]].concat();
            if (1..=self.known).contains(&version) {
                self.check_garbage(&other);
                continue;
            }
            let newer = RecordError::Newer { found: version, known: self.known };
            let read = (self.decode)(&other);
            assert!(read.as_ref().is_err_and(|error| version == 0 || *error == newer), "{read:?}");
        }
        let mut damaged = bytes.clone();
        damaged[at % bytes.len()] = byte;
        self.check_garbage(&damaged);
    }

    /// Checks that bytes which can be read are read exactly: writing the record gives the same
    /// bytes.
    fn check_garbage(&self, bytes: &[u8]) {
        if let Ok(record) = (self.decode)(bytes) {
            assert_eq!(self.write(&record), bytes, "{record:?}");
        }
    }
}

const SESSION: Format<SessionRecord> = Format {
    encode: SessionRecord::encode,
    decode: SessionRecord::decode,
    is_open_ended: false,
    known: 2,
};
/// A truncated record has fewer queues, and may be valid.
const RECEIVED: Format<ReceivedRecord> = Format {
    encode: ReceivedRecord::encode,
    decode: ReceivedRecord::decode,
    is_open_ended: true,
    known: 2,
};
const SUBSCRIPTION: Format<SubscriptionRecord> = Format {
    encode: SubscriptionRecord::encode,
    decode: SubscriptionRecord::decode,
    is_open_ended: false,
    known: 1,
};
const ENTRY: Format<EntryRecord> = Format {
    encode: EntryRecord::encode,
    decode: EntryRecord::decode,
    is_open_ended: false,
    known: 1,
};
const MESSAGE: Format<barid_core::message::Message> =
    Format { encode: encode_message, decode: decode_message, is_open_ended: true, known: 1 };
const STATE: Format<StateRecord> = Format {
    encode: StateRecord::encode,
    decode: StateRecord::decode,
    is_open_ended: true,
    known: 2,
};
const RETAINED: Format<RetainedRecord> = Format {
    encode: RetainedRecord::encode,
    decode: RetainedRecord::decode,
    is_open_ended: true,
    known: 3,
};
const STATE_CLOCK: Format<Version> = Format {
    encode: |latest, out| encode_state_clock(*latest, out),
    decode: decode_state_clock,
    is_open_ended: false,
    known: 1,
};
const ANSWERED: Format<AnsweredRecord> = Format {
    encode: AnsweredRecord::encode,
    decode: AnsweredRecord::decode,
    is_open_ended: false,
    known: 1,
};
const ENTITY: Format<EntityRecord> = Format {
    encode: EntityRecord::encode,
    decode: EntityRecord::decode,
    is_open_ended: true,
    known: 1,
};
const MANAGED: Format<ManagedRecord> = Format {
    encode: ManagedRecord::encode,
    decode: ManagedRecord::decode,
    is_open_ended: true,
    known: 2,
};
const NUMBER: u64 = 300;
const QUEUE_ENTRY: Format<Entry> = Format {
    encode: encode_queue_entry,
    decode: |record| decode_queue_entry(NUMBER, record),
    is_open_ended: false,
    known: 1,
};
const BODY: Format<Vec<u8>> = Format {
    encode: |body, out| encode_body(body, out),
    decode: |record| decode_body(record).map(<[u8]>::to_vec),
    is_open_ended: true,
    known: 1,
};
const SESSION_STATE: Format<SessionStateRecord> = Format {
    encode: SessionStateRecord::encode,
    decode: SessionStateRecord::decode,
    is_open_ended: true,
    known: 1,
};
const SEEN: Format<WallTime> = Format {
    encode: |until, out| encode_seen(*until, out),
    decode: decode_seen,
    is_open_ended: false,
    known: 1,
};
const NUMBERS: Format<u64> = Format {
    encode: |reserved, out| encode_numbers(*reserved, out),
    decode: decode_numbers,
    is_open_ended: false,
    known: 1,
};

proptest! {
    #[test]
    fn notes_of_what_was_received_are_read_as_they_were_written(
        last_session in samples::number(),
        queues in vec(samples::number(), 0..4),
        bytes in vec(any::<u8>(), 0..12),
        version in 3..=u8::MAX,
    ) {
        let some = ReceivedRecord::Some { last_session, queues: queues.into() };
        for record in [ReceivedRecord::All, some] {
            let mut written = RECEIVED.write(&record);
            assert_eq!(ReceivedRecord::decode(&written).as_ref(), Ok(&record));
            written[0] = version;
            let newer = RecordError::Newer { found: version, known: 2 };
            assert_eq!(ReceivedRecord::decode(&written), Err(newer));
        }
        RECEIVED.check_garbage(&bytes);
    }

    #[test]
    fn sessions(record in samples::session(), at in any::<usize>(), byte in any::<u8>()) {
        SESSION.check(&record, at, byte);
    }

    #[test]
    fn subscriptions(record in samples::subscription(), at in any::<usize>(), byte in any::<u8>()) {
        SUBSCRIPTION.check(&record, at, byte);
    }

    #[test]
    fn entries(record in samples::entry(), at in any::<usize>(), byte in any::<u8>()) {
        ENTRY.check(&record, at, byte);
    }

    #[test]
    fn messages(record in samples::message(), at in any::<usize>(), byte in any::<u8>()) {
        MESSAGE.check(&record, at, byte);
    }

    #[test]
    fn state(record in samples::state(), at in any::<usize>(), byte in any::<u8>()) {
        STATE.check(&record, at, byte);
    }

    #[test]
    fn retained(record in samples::retained(), at in any::<usize>(), byte in any::<u8>()) {
        RETAINED.check(&record, at, byte);
    }

    #[test]
    fn state_clocks(latest in samples::version(), at in any::<usize>(), byte in any::<u8>()) {
        STATE_CLOCK.check(&latest, at, byte);
    }

    #[test]
    fn answers(record in samples::answered(), at in any::<usize>(), byte in any::<u8>()) {
        ANSWERED.check(&record, at, byte);
    }

    #[test]
    fn entities(record in samples::entity(), at in any::<usize>(), byte in any::<u8>()) {
        ENTITY.check(&record, at, byte);
    }

    #[test]
    fn managed_objects(record in samples::managed(), at in any::<usize>(), byte in any::<u8>()) {
        MANAGED.check(&record, at, byte);
    }

    #[test]
    fn entries_of_queues(
        entry in samples::queue_entry(NUMBER),
        at in any::<usize>(),
        byte in any::<u8>(),
    ) {
        QUEUE_ENTRY.check(&entry, at, byte);
    }

    #[test]
    fn bodies(body in vec(any::<u8>(), 0..40), at in any::<usize>(), byte in any::<u8>()) {
        BODY.check(&body, at, byte);
    }

    #[test]
    fn states_of_sessions(
        record in samples::session_state(),
        at in any::<usize>(),
        byte in any::<u8>(),
    ) {
        SESSION_STATE.check(&record, at, byte);
    }

    #[test]
    fn seen_and_reserved(
        until in samples::wall_time(),
        reserved in samples::number(),
        at in any::<usize>(),
        byte in any::<u8>(),
    ) {
        SEEN.check(&until, at, byte);
        NUMBERS.check(&reserved, at, byte);
    }

    #[test]
    fn garbage(version in 1..=2_u8, mut bytes in vec(any::<u8>(), 1..40)) {
        bytes[0] = version;
        SESSION.check_garbage(&bytes);
        SUBSCRIPTION.check_garbage(&bytes);
        ENTRY.check_garbage(&bytes);
        MESSAGE.check_garbage(&bytes);
        STATE.check_garbage(&bytes);
        RETAINED.check_garbage(&bytes);
        STATE_CLOCK.check_garbage(&bytes);
        ANSWERED.check_garbage(&bytes);
        ENTITY.check_garbage(&bytes);
        QUEUE_ENTRY.check_garbage(&bytes);
        BODY.check_garbage(&bytes);
        SESSION_STATE.check_garbage(&bytes);
        SEEN.check_garbage(&bytes);
        NUMBERS.check_garbage(&bytes);
        MANAGED.check_garbage(&bytes);
    }
}

#[test]
fn a_message_needs_a_topic_that_can_be_published_to() {
    let message = |topic: &[u8]| [&[1, 0, topic.len() as u8, 0], topic, b"payload"].concat();
    assert!(decode_message(&message(b"a/b")).is_ok());
    for topic in [&b""[..], b"a/#", b"+", b"a\0", b"\xFF"] {
        assert!(decode_message(&message(topic)).is_err(), "{topic:?}");
    }
}

#[test]
fn the_form_of_a_record_stays_as_it_was_once_written() {
    let mut bytes = Vec::new();
    EntryRecord::released(0x0102).encode(&mut bytes);
    assert_eq!(bytes, [1, 0x80, 1, 2]);
    let entry = [1, 0b0111_1110, 0, 7, 200, 1, 12, 5, 6, 2, 1, 129, 1, 2, b'$', b's'];
    let read = EntryRecord::decode(&entry).unwrap();
    assert_eq!((read.message, read.size), (200, 12));
    assert_eq!(read.identifiers.iter().map(|id| id.get()).collect::<Vec<_>>(), [1, 129]);
    assert_eq!((read.queued_at.as_millis(), read.expires_at.unwrap().as_millis()), (5, 6));
    assert_eq!(read.shared.as_deref(), Some("$s"));
    assert_eq!(SubscriptionRecord::decode(&[1, 0b1_1110, 9]).unwrap().identifier.unwrap().get(), 9);
    let session =
        [1, 0b1111, 0, 3, 0, 0, 0, 0, 0, 9, 60, 1, b'u', 5, 30, 2, 6, 1, 1, 1, 0, b't', b'p', 0];
    let read = SessionRecord::decode(&session).unwrap();
    assert_eq!((read.number, read.expiry, read.user.as_deref()), (3 << 48 | 9, 60, Some("u")));
    let will = read.will.unwrap();
    assert_eq!((will.expiry, will.delay), (Some(30), 2));
    assert_eq!(will.message.publication().payload, b"p");
    let state = [1, 0b11, 5, 6, 7, 8, 9, 1, b'c', b'v'];
    let read = StateRecord::decode(&state).unwrap();
    assert_eq!((read.version, &*read.value), (Version { wall: 5, counter: 6 }, &b"v"[..]));
    assert_eq!(read.expires_at.unwrap().as_millis(), 7);
    let token = read.fencing_token.unwrap();
    assert_eq!((token.as_hlc().wall, token.as_hlc().counter, token.as_hlc().node), (8, 9, "c"));
    assert_eq!(read.holder, None);
    let of_user = [&[2, 3, b'a', b'/', b'u'][..], &state].concat();
    let read = StateRecord::decode(&of_user).unwrap();
    assert_eq!((read.holder.unwrap().name(), &*read.value), ("a/u", &b"v"[..]));
    let read = RetainedRecord::decode(&[2, 1, b'u', 1, 0, 1, 0, b't', b'p']).unwrap();
    assert_eq!((read.holder.unwrap().name(), read.message.publication().payload), ("u", &b"p"[..]));
    let answered = [&[1, 1, 18][..], &[0; 15], &[7, 1, 2, 3, 4]].concat();
    let read = AnsweredRecord::decode(&answered).unwrap();
    assert_eq!(
        (read.correlation, read.verdict),
        (7, Verdict::Refused(Refusal::FencingTokenInFuture))
    );
    assert_eq!(read.answered_at, Version { wall: 1, counter: 2 });
    assert_eq!(read.version, Some(Version { wall: 3, counter: 4 }));
}

#[test]
fn the_form_of_what_lies_in_a_queue_stays_as_it_was_once_written() {
    let record = EntityRecord::decode(&[1, 0, 3, 0, 0, 0, 0, 0, 9, b'{', b'}']).unwrap();
    assert_eq!((record.queue, &*record.definition), (3 << 48 | 9, &b"{}"[..]));
    let short = [1, 0, 5, 100, 0];
    let read = decode_queue_entry(NUMBER, &short).unwrap();
    assert_eq!((read.enqueued_number, read.body.id, read.body.size), (NUMBER, NUMBER, 100));
    assert_eq!((read.enqueued_at.as_millis(), read.state), (5, State::Active));
    let numbers = [8, 9];
    let session = [4, b's', b'1'];
    let message_id = [&[0][..], &[0x1F; 16]].concat();
    let overlay = [2, 0, 1, b'L', 0, 1, 1, b'u', 3, 255, 255, 255, 255, 255, 255, 255, 254];
    let long = [&[1, 0b1001_1111, 5, 100, 2, 6, 7][..], &numbers, &session, &message_id, &overlay]
        .concat();
    let read = decode_queue_entry(NUMBER, &long).unwrap();
    assert_eq!(read.state, State::Scheduled { at: WallTime::from_millis(6) });
    assert_eq!((read.delivery_count, read.expires_at.unwrap().as_millis()), (2, 7));
    assert_eq!((read.enqueued_number, read.body.id), (8, 9));
    assert_eq!(read.session.as_deref(), Some("s1"));
    assert_eq!(read.message_id.as_deref(), Some("1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f"));
    let overlay = read.overlay.unwrap();
    let changes = [(Scope::System, "L", &Value::Null), (Scope::User, "u", &Value::Long(-2))];
    assert_eq!(overlay.iter().collect::<Vec<_>>(), changes);
    let read = SessionStateRecord::decode(&[1, 5, b's']).unwrap();
    assert_eq!((read.updated_at.as_millis(), &*read.state), (5, &b"s"[..]));
    assert_eq!(decode_body(&[1, 7, 8]), Ok(&[7, 8][..]));
    assert_eq!(decode_seen(&[1, 5]), Ok(WallTime::from_millis(5)));
    assert_eq!(decode_numbers(&[1, 129, 1]), Ok(129));
}

#[test]
fn an_entry_of_a_queue_has_one_form() {
    let same_numbers = [1, 0b1_0000, 5, 100, 0, 0xAC, 2, 0xAC, 2];
    assert!(decode_queue_entry(NUMBER, &same_numbers).is_err(), "its own number, written out");
    assert!(decode_queue_entry(NUMBER + 1, &same_numbers).is_ok());
    let twice = [1, 0b1000, 5, 100, 0, 2, 1, 1, b'u', 0, 1, 1, b'u', 1];
    assert!(decode_queue_entry(NUMBER, &twice).is_err(), "a property twice");
    let once_each = [1, 0b1000, 5, 100, 0, 2, 1, 1, b'u', 0, 2, 1, b'u', 1];
    assert!(decode_queue_entry(NUMBER, &once_each).is_ok());
    for (flags, why) in [(0b10_0000, "a flag"), (0b1100_0000, "a state")] {
        assert!(decode_queue_entry(NUMBER, &[1, flags, 5, 100, 0]).is_err(), "{why}");
    }
    for value in [&[9][..], &[3], &[4, 0], &[7, 1], &[5, 1, 0xFF], &[6, 2, 1]] {
        let record = [&[1, 0b1000, 5, 100, 0, 1, 1, 1, b'u'], value].concat();
        assert!(decode_queue_entry(NUMBER, &record).is_err(), "{value:?}");
    }
    let nan = [1, 0b1000, 5, 100, 0, 1, 1, 1, b'u', 4, 0x7F, 0xF8, 0, 0, 0, 0, 0, 9];
    let mut again = Vec::new();
    encode_queue_entry(&decode_queue_entry(NUMBER, &nan).unwrap(), &mut again);
    assert_eq!(again, nan, "no number either, but the same one");
}

#[test]
fn a_fencing_token_is_a_clock_reading() {
    let record = |node: &[u8]| [&[1, 0b10, 5, 6, 8, 9, node.len() as u8], node].concat();
    assert!(StateRecord::decode(&record(b"c")).is_ok());
    for node in [&b""[..], b"a:b", b"\xFF"] {
        assert!(StateRecord::decode(&record(node)).is_err(), "{node:?}");
    }
}

#[test]
fn a_damaged_pair_is_told_from_a_good_one() {
    let key = b"\x01t\x01a\0b";
    let value = b"\x01\x01\x03\x00a/bpayload";
    assert_eq!(verify(keys::RETAINED, key, value), Ok(()));
    assert!(verify(keys::RETAINED, b"\x01t\x01a\0c", value).is_err(), "another topic");
    assert!(verify(keys::RETAINED, b"\x01t\x01a/b", value).is_err(), "a slash");
    assert!(verify(keys::MESSAGES, key, value).is_err(), "no number");
    let of_user = |user: &[u8], value: &[u8]| [&[2, user.len() as u8][..], user, value].concat();
    assert_eq!(verify(keys::RETAINED, key, &of_user(b"t/u", value)), Ok(()));
    assert!(verify(keys::RETAINED, key, &of_user(b"", value)).is_err(), "a user without a name");
    let twice = of_user(b"t/u", &of_user(b"t/u", value));
    assert!(verify(keys::RETAINED, key, &twice).is_err(), "two users");
    let later = verify(keys::RETAINED, key, b"\x04").unwrap_err();
    assert_eq!(
        later.to_string(),
        "a newer version of Barid wrote it (its format is 4, this version knows 3)"
    );
    let stamped = |stamp: &[u8], value: &[u8]| [&[3], stamp, value].concat();
    let stamp = [&[5][..], &[7; 8]].concat();
    assert_eq!(verify(keys::RETAINED, key, &stamped(&stamp, value)), Ok(()));
    assert_eq!(verify(keys::RETAINED, key, &stamped(&stamp, &of_user(b"t/u", value))), Ok(()));
    assert!(verify(keys::RETAINED, key, &stamped(&[0; 9], value)).is_err(), "no stamp");
    let twice = stamped(&stamp, &stamped(&stamp, value));
    assert!(verify(keys::RETAINED, key, &twice).is_err(), "two stamps");
    let received = |value| verify(keys::RECEIVED, b"\x01t\x01\0\0\0\0\0\0\0\x01\0\x01", value);
    assert!(received(&[1]).is_ok());
    assert!(received(&[1, 0]).is_err());
    assert!(received(&[2, 5, 7, 7]).is_ok());
    assert!(received(&[2]).is_err());
    assert!(verify(keys::SHARD, &[0, 1], &[1, 1, 5]).is_ok());
    assert!(verify(keys::SHARD, &[0, 1], &[1, 1]).is_err());
    assert!(verify(keys::SHARD, b"\x01t\x01", &[1, 1, 5]).is_err(), "of a tenant");
    assert!(verify(keys::STATE, b"\x01t\x01key", b"\x01\0\x05\x02value").is_ok());
    assert!(verify(keys::STATE, b"\x01t\x01", b"\x01\0\x05\x02value").is_err(), "no key");
    assert!(verify(keys::STATE_CLOCKS, b"\x01t\x01", b"\x01\x05\x02").is_ok());
    assert!(verify(keys::STATE_CLOCKS, b"\x01t\x01k", b"\x01\x05\x02").is_err(), "a key");
    let answered = [&[1, 0, 2][..], &[0; 16], &[5, 2]].concat();
    assert!(verify(keys::STATE_ANSWERS, b"\x01t\x01\0\0\0\0\0\0\0\x01\0\x01", &answered).is_ok());
    assert!(verify(keys::STATE_ANSWERS, b"\x01t\x01\0\0\0\0\0\0\0\x01\0\0", &answered).is_err());
    let queue = b"\x01t\x01\0\0\0\0\0\0\0\x03";
    let of_queue = |rest: &[u8]| [queue, rest].concat();
    let number = [0, 0, 0, 0, 0, 0, 0, 1];
    let entry = of_queue(&[&[2][..], &number].concat());
    assert!(verify(keys::ENTITIES, b"\x01t\x01path", &[&[1][..], &number].concat()).is_ok());
    assert!(verify(keys::ENTITIES, b"\x01t\x01", &[&[1][..], &number].concat()).is_err());
    assert!(verify(keys::QUEUE_ENTRIES, &entry, &[1, 0, 5, 100, 0]).is_ok());
    assert!(
        verify(keys::QUEUE_ENTRIES, &of_queue(&[3, 0, 0, 0, 0, 0, 0, 0, 1]), &[1, 0, 5, 100, 0])
            .is_err()
    );
    assert!(
        verify(keys::QUEUE_ENTRIES, &of_queue(&[0; 9]), &[1, 0, 5, 100, 0]).is_err(),
        "number 0"
    );
    assert!(verify(keys::QUEUE_BODIES, &of_queue(&number), b"\x01body").is_ok());
    assert!(verify(keys::QUEUE_BODIES, &of_queue(b"1"), b"\x01body").is_err());
    assert!(verify(keys::QUEUE_SESSIONS, &of_queue(b"session"), b"\x01\x05state").is_ok());
    assert!(verify(keys::QUEUE_SESSIONS, &of_queue(b"\xFF"), b"\x01\x05state").is_err());
    assert!(verify(keys::QUEUE_SEEN, &of_queue(b"id"), &[1, 5]).is_ok());
    assert!(verify(keys::QUEUE_SEEN, &of_queue(b"id"), &[1, 5, 0]).is_err());
    assert!(verify(keys::QUEUE_NUMBERS, &of_queue(&[1]), &[1, 5]).is_ok());
    assert!(verify(keys::QUEUE_NUMBERS, &of_queue(&[]), &[1, 5]).is_err());
    assert!(verify(keys::MANAGED, b"\x01t\x01\x01a", b"\x01{}").is_ok());
    assert!(verify(keys::MANAGED, b"\x01t\x01\x01a", b"\x01").is_err(), "no text");
    assert!(verify(keys::MANAGED, b"\x01t\x01\x01a", b"\x01\xFF").is_err(), "no UTF-8");
    assert!(verify(keys::MANAGED, b"\0\x01\x01", b"\x01").is_ok(), "a mark");
    assert!(verify(keys::MANAGED, b"\0\x01\x01", b"\x01{}").is_err(), "a mark with a text");
    for (key, why) in [
        (&b"\x01t\x01\x06a"[..], "no such kind"),
        (b"\x01t\x01", "no kind"),
        (b"\x01t\x01\x01", "a user without a name"),
        (b"\x01t\x01\x02a", "settings with a name"),
        (b"\0\x01\x02a", "settings of no tenant"),
        (b"\0\x01\x01a/b", "a tenant in the name"),
        (b"\x03t/t\x01\x01a", "a slash in the tenant"),
    ] {
        assert!(verify(keys::MANAGED, key, b"\x01{}").is_err(), "{why}");
    }
    let text = |len: usize| [&b"\x01"[..], &b"x".repeat(len)].concat();
    assert!(ManagedRecord::decode(&text(MANAGED_TEXT_MAX)).is_ok());
    assert!(ManagedRecord::decode(&text(MANAGED_TEXT_MAX + 1)).is_err(), "too long");
    let unknown = barid_store::Keyspace(u8::try_from(keys::NAMES.len()).unwrap());
    assert!(verify(unknown, key, value).is_err(), "no such keyspace");
}
