//! Strategies for all kinds of records.

use std::num::NonZeroU32;
use std::sync::Arc;

use barid_core::durable::keys::ManagedKind;
use barid_core::durable::{
    EntityRecord, ManagedRecord, ReplayRecord, RetainedRecord, SessionRecord, SessionStateRecord,
    SubscriptionRecord, WillRecord,
};
use barid_core::entity::{Body, Entry, Overlay, Part, State};
use barid_core::holder::Holder;
use barid_core::message::{Message, Publication};
use barid_core::session::{EntryRecord, Phase};
use barid_core::stamp::Stamp;
use barid_core::state_store::{AnsweredRecord, FencingToken, StateRecord, Verdict};
use barid_core::time::{MonoTime, WallTime};
use barid_core::value::{Scope, Value};
use mqtt_proto::QoS;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_proto::{Hlc, Refusal, Version};

pub fn qos() -> impl Strategy<Value = QoS> {
    select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..])
}

/// Numbers at the limits of varint lengths, and others.
pub fn number() -> impl Strategy<Value = u64> {
    prop_oneof![select(&[0, 1, 127, 128, u64::MAX][..]), any::<u64>(), 0..1_000_000_u64]
}

pub fn time() -> impl Strategy<Value = MonoTime> {
    number().prop_map(MonoTime::from_millis)
}

pub fn wall_time() -> impl Strategy<Value = WallTime> {
    number().prop_map(WallTime::from_millis)
}

pub fn identifier() -> impl Strategy<Value = NonZeroU32> {
    (1..=u32::MAX).prop_map(|n| NonZeroU32::new(n).unwrap())
}

/// Texts for client identifiers, users and filters.
pub fn text() -> impl Strategy<Value = Box<str>> {
    "[a-z/+#$üß]{0,12}".prop_map(Box::from)
}

pub fn topic() -> impl Strategy<Value = String> {
    "[a-z$ü]{1,3}(/[a-z ]{0,2}){0,3}"
}

pub fn packet_id() -> impl Strategy<Value = u16> {
    prop_oneof![select(&[1, 255, 256, u16::MAX][..]), 1..=u16::MAX]
}

prop_compose! {
    pub fn message()(
        topic in topic(),
        properties in vec(any::<u8>(), 0..4),
        payload in vec(any::<u8>(), 0..40),
        qos in qos(),
        retain in any::<bool>(),
        expires_at in option::of(time()),
    ) -> Message {
        let (properties, payload) = (&properties, &payload);
        Message::new(&Publication { topic: &topic, payload, properties, qos, retain, expires_at })
    }
}

fn stamp() -> impl Strategy<Value = Stamp> {
    let some = (number(), any::<u64>()).prop_map(|(time, origin)| Stamp { time, origin });
    prop_oneof![Just(Stamp::NONE), some]
}

fn holder() -> impl Strategy<Value = Option<Arc<Holder>>> {
    option::of("[a-z]{1,3}(/[a-zü]{1,9})?".prop_map(|name| Arc::new(Holder::new(&name))))
}

prop_compose! {
    pub fn retained()(
        message in message(),
        holder in holder(),
        stamp in stamp(),
    ) -> RetainedRecord {
        RetainedRecord { message: Arc::new(message), holder, stamp }
    }
}

pub fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Waiting), packet_id().prop_map(Phase::Sent)]
}

prop_compose! {
    fn queued()(
        message in number(),
        size in any::<u32>(),
        qos in qos(),
        retain in any::<bool>(),
        expires_at in option::of(time()),
        queued_at in time(),
        identifiers in vec(identifier(), 0..4),
        shared in option::of(text()),
        phase in phase(),
    ) -> EntryRecord {
        let (identifiers, shared) = (identifiers.into(), shared.map(Arc::from));
        EntryRecord {
            message, size, qos, retain, expires_at, queued_at, identifiers, shared, phase,
        }
    }
}

pub fn entry() -> impl Strategy<Value = EntryRecord> {
    prop_oneof![9 => queued(), 1 => packet_id().prop_map(EntryRecord::released)]
}

prop_compose! {
    pub fn subscription()(
        qos in qos(),
        no_local in any::<bool>(),
        retain_as_published in any::<bool>(),
        identifier in option::of(identifier()),
    ) -> SubscriptionRecord {
        SubscriptionRecord { qos, no_local, retain_as_published, identifier }
    }
}

prop_compose! {
    fn will()(
        message in message(),
        expiry in option::of(any::<u32>()),
        delay in any::<u32>(),
    ) -> WillRecord {
        WillRecord { message: Arc::new(message), expiry, delay }
    }
}

prop_compose! {
    fn replay()(
        filter in text(),
        qos in qos(),
        identifier in option::of(identifier()),
        after in option::of(text()),
    ) -> ReplayRecord {
        ReplayRecord { filter, qos, identifier, after }
    }
}

prop_compose! {
    pub fn session()(
        number in number(),
        user in option::of(text()),
        expiry in any::<u32>(),
        away_since in option::of(time()),
        will in option::of(will()),
        replays in vec(replay(), 0..3),
        answered_as in option::of(number()),
    ) -> SessionRecord {
        SessionRecord { number, user, expiry, away_since, will, replays, answered_as }
    }
}

prop_compose! {
    pub fn version()(wall in number(), counter in any::<u32>()) -> Version {
        Version { wall, counter }
    }
}

prop_compose! {
    fn fencing_token()(
        wall in number(),
        counter in any::<u32>(),
        node in "[a-zü$-]{1,12}",
    ) -> FencingToken {
        Hlc { wall: wall >> 1, counter, node: &node }.into()
    }
}

prop_compose! {
    pub fn state()(
        value in vec(any::<u8>(), 0..40),
        version in version(),
        fencing_token in option::of(fencing_token()),
        expires_at in option::of(wall_time()),
        holder in holder(),
    ) -> StateRecord {
        StateRecord { value: value.into(), version, fencing_token, expires_at, holder }
    }
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let verdicts = [Verdict::Ok, Verdict::NotApplied, Verdict::Deleted, Verdict::Nothing];
    select([&verdicts[..], &Refusal::ALL.map(Verdict::Refused)[..]].concat())
}

prop_compose! {
    pub fn answered()(
        correlation in any::<u128>(),
        verdict in verdict(),
        version in option::of(version()),
        answered_at in version(),
    ) -> AnsweredRecord {
        AnsweredRecord { correlation, verdict, version, answered_at }
    }
}

pub fn part() -> impl Strategy<Value = Part> {
    select(&Part::ALL[..])
}

prop_compose! {
    pub fn entity()(queue in number(), definition in vec(any::<u8>(), 0..40)) -> EntityRecord {
        EntityRecord { queue, definition: definition.into() }
    }
}

pub fn kind() -> impl Strategy<Value = ManagedKind> {
    select(&ManagedKind::ALL[..])
}

prop_compose! {
    pub fn managed()(text in "[a-z{}\":ü]{0,40}", stamp in stamp()) -> ManagedRecord {
        ManagedRecord { text: text.into(), stamp }
    }
}

prop_compose! {
    pub fn session_state()(
        state in vec(any::<u8>(), 0..40),
        updated_at in wall_time(),
    ) -> SessionStateRecord {
        SessionStateRecord { state: state.into(), updated_at }
    }
}

/// Ids: UUIDs in their different notations, and others.
fn id() -> impl Strategy<Value = Arc<str>> {
    let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    let ids = prop_oneof![uuid, "[0-9a-f]{32}", "[0-9a-fA-F-]{36}", "[a-z0-9 /-]{0,40}", "ü{0,3}"];
    ids.prop_map(Arc::from)
}

/// Any value except NaN, which is not equal to itself.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Value::Double),
        text().prop_map(Value::String),
        vec(any::<u8>(), 0..5).prop_map(|bytes| Value::Binary(bytes.into())),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any::<i64>().prop_map(Value::Timestamp),
    ]
}

fn overlay() -> impl Strategy<Value = Arc<Overlay>> {
    let scope = select(&[Scope::System, Scope::User, Scope::Annotation][..]);
    vec((scope, text(), value()), 0..4).prop_map(|properties| {
        let mut overlay = Overlay::new();
        for (scope, name, value) in properties {
            overlay.set(scope, &name, value);
        }
        Arc::new(overlay)
    })
}

fn state_of_entry() -> impl Strategy<Value = State> {
    let scheduled = wall_time().prop_map(|at| State::Scheduled { at });
    prop_oneof![Just(State::Active), Just(State::Deferred), scheduled]
}

prop_compose! {
    /// An entry with this number, whose body is in the store only.
    pub fn queue_entry(number: u64)(
        session in option::of(id()),
        message_id in option::of(id()),
        enqueued_number in prop_oneof![Just(number), self::number()],
        enqueued_at in wall_time(),
        expires_at in option::of(wall_time()),
        delivery_count in any::<u32>(),
        state in state_of_entry(),
        body in prop_oneof![Just(number), self::number()],
        size in any::<u32>(),
        overlay in option::of(overlay()),
    ) -> Entry {
        let body = Body { id: body, size, bytes: None };
        Entry {
            number, session, message_id, enqueued_number, enqueued_at, expires_at, delivery_count,
            state, body, overlay,
        }
    }
}
