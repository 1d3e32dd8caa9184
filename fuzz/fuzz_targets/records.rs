//! Any bytes as a key or a record of the store: the decoder does not panic, and encoding what it decodes gives
//! the same bytes. The first byte of an input is the kind of the rest.

#![no_main]

use barid_core::durable::keys::{
    AnsweredKey, EntityKey, EntryKey, ManagedKey, MessageKey, QueueBodyKey, QueueEntryKey,
    QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey, RetainedKey, SessionKey, ShardKey,
    StateClockKey, StateKey, SubscriptionKey,
};
use barid_core::durable::records::{
    decode_body, decode_message, decode_numbers, decode_queue_entry, decode_seen,
    decode_state_clock, encode_body, encode_message, encode_numbers, encode_queue_entry,
    encode_seen, encode_state_clock,
};
use barid_core::durable::{
    EntityRecord, ManagedRecord, ReceivedRecord, RetainedRecord, SessionRecord, SessionStateRecord,
    ShardRecord, SubscriptionRecord,
};
use barid_core::session::EntryRecord;
use barid_core::state_store::{AnsweredRecord, StateRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let mut again = Vec::new();
    let out = &mut again;
    let read = match kind {
        0 => SessionRecord::decode(bytes).map(|record| record.encode(out)),
        1 => SubscriptionRecord::decode(bytes).map(|record| record.encode(out)),
        2 => EntryRecord::decode(bytes).map(|record| record.encode(out)),
        3 => decode_message(bytes).map(|message| encode_message(&message, out)),
        4 => SessionKey::decode(bytes).map(|key| key.encode(out)),
        5 => SubscriptionKey::decode(bytes).map(|key| key.encode(out)),
        6 => EntryKey::decode(bytes).map(|key| key.encode(out)),
        7 => MessageKey::decode(bytes).map(|key| key.encode(out)),
        8 => ReceivedKey::decode(bytes).map(|key| key.encode(out)),
        9 => RetainedKey::decode(bytes, "a/b").map(|key| key.encode(out)),
        10 => StateRecord::decode(bytes).map(|record| record.encode(out)),
        11 => decode_state_clock(bytes).map(|latest| encode_state_clock(latest, out)),
        12 => AnsweredRecord::decode(bytes).map(|record| record.encode(out)),
        13 => StateKey::decode(bytes).map(|key| key.encode(out)),
        14 => StateClockKey::decode(bytes).map(|key| key.encode(out)),
        15 => AnsweredKey::decode(bytes).map(|key| key.encode(out)),
        16 => EntityRecord::decode(bytes).map(|record| record.encode(out)),
        17 => decode_queue_entry(1, bytes).map(|entry| encode_queue_entry(&entry, out)),
        18 => decode_body(bytes).map(|body| encode_body(body, out)),
        19 => SessionStateRecord::decode(bytes).map(|record| record.encode(out)),
        20 => decode_seen(bytes).map(|until| encode_seen(until, out)),
        21 => decode_numbers(bytes).map(|reserved| encode_numbers(reserved, out)),
        22 => EntityKey::decode(bytes).map(|key| key.encode(out)),
        23 => QueueEntryKey::decode(bytes).map(|key| key.encode(out)),
        24 => QueueBodyKey::decode(bytes).map(|key| key.encode(out)),
        25 => QueueSessionKey::decode(bytes).map(|key| key.encode(out)),
        26 => QueueSeenKey::decode(bytes).map(|key| key.encode(out)),
        27 => QueueNumbersKey::decode(bytes).map(|key| key.encode(out)),
        28 => ReceivedRecord::decode(bytes).map(|record| record.encode(out)),
        29 => ShardRecord::decode(bytes).map(|record| record.encode(out)),
        30 => ShardKey::decode(bytes).map(|key| key.encode(out)),
        31 => RetainedRecord::decode(bytes).map(|record| record.encode(out)),
        32 => ManagedRecord::decode(bytes).map(|record| record.encode(out)),
        33 => ManagedKey::decode(bytes).map(|key| key.encode(out)),
        _ => return,
    };
    if read.is_ok() {
        assert_eq!(again, bytes);
    }
});
