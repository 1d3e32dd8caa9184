//! Tests of messages against the encodings of real clients and against another implementation.

mod batches;
mod building;
mod delivering;
mod hostile;
mod nodes;
mod splitting;

use barid_amqp::message::{Delivered, Sections, State};
use fe2o3_amqp_types::messaging::message::__private::Deserializable;
use fe2o3_amqp_types::messaging::{Body, Message};
use serde_amqp::Value;

/// Reads a message with the other implementation.
fn read(encoded: &[u8]) -> Message<Body<Value>> {
    serde_amqp::from_slice::<Deserializable<Message<Body<Value>>>>(encoded).expect("a message").0
}

/// Decodes hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A first delivery without any special properties.
const FRESH: Delivered<'_> = Delivered {
    delivery_count: 0,
    ttl: None,
    enqueued_at: 1_000,
    expires_at: None,
    sequence_number: 7,
    enqueued_sequence_number: 7,
    locked_until: Some(31_000),
    state: State::Active,
    scheduled_at: None,
    dead_letter_source: None,
    lock_token: None,
    changes: &[],
};

fn deliver(message: &[u8], delivered: &Delivered<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    delivered.encode(&Sections::split(message).expect("a message"), &mut out);
    out
}

/// Message that azure-servicebus 7.15 (Python) encodes, with every section and property that it can
/// have.
const PYTHON: &str = "005370c00a054040700000ea604040005372c12802a31c782d6f70742d7363686564756c65642d656e71756575652d74696d6583000001b8dac5b400005373c03c0da1026d3140a10174a1036c6162a10172a10163a30a746578742f706c61696e4083000001a1fffa483883000001a1fff95dd8a102733140a1027273005374c14a10a1016e5407a10166823ff8000000000000a10173a10178a10162a10179a101745601a101759800000000000000000000000000000005a1046e6f6e6540a10164830000019b76daa800005375a00568656c6c6f";

/// Message that @azure/service-bus 7.9 (JavaScript) encodes.
const JAVASCRIPT: &str = "005370d00000000b000000034040700000ea60005372d10000004400000004a31c782d6f70742d7363686564756c65642d656e71756575652d74696d6583000001b8dac5b400a313782d6f70742d706172746974696f6e2d6b6579a1027331005373d0000000180000000ba1016d4040a1036c6162404040404040a1027331005374d1000000400000000ea1016e5207a10166823ff8000000000000a10173a10178a1017441a103626967800000010000000000a10164830000000000000000a1036e656754ff005375a00568656c6c6f";

/// Message of the same client with a session id only, without a message id.
const JAVASCRIPT_BARE: &str =
    "00537045005373d0000000120000000b40404040404040404040a1027331005375a00568656c6c6f";
