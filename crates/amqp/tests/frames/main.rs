//! Compares the codec of frames with another AMQP 1.0 library: each reads what the other writes, and
//! nothing changes on the way.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use barid_amqp::frame::{
    self, Attach, Begin, Body, Close, Detach, Disposition, End, Flow, Open, Performative, Sasl,
    Transfer,
};
use barid_amqp::message::ValueRef;
use barid_amqp::{
    DeliveryState, Error, Fields, Modified, ReceiverSettles, Role, SenderSettles, Tag, Terminus,
};
use fe2o3_amqp_types::{performatives, sasl};
use proptest::prelude::*;

/// Generates texts that do not have 255 bytes: the other library writes those in the long form, and
/// fields are compared in their encoded form.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,9}", "[a-z]{250,254}", "[a-z]{256,300}"]
}

fn entry() -> impl Strategy<Value = Fields> {
    prop_oneof![
        text().prop_map(|key| Fields::new().with(&key, ValueRef::Null)),
        (text(), any::<bool>()).prop_map(|(key, value)| Fields::new().with(&key, value)),
        (text(), any::<u32>()).prop_map(|(key, value)| Fields::new().with(&key, value)),
        (text(), any::<i64>()).prop_map(|(key, value)| Fields::new().with(&key, value)),
        (text(), text()).prop_map(|(key, value)| Fields::new().with(&key, &*value)),
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    prop::collection::vec(entry(), 0..4).prop_map(|entries| {
        let mut fields = Fields::new();
        for (key, value) in entries.iter().flat_map(Fields::iter) {
            fields.insert(key, value);
        }
        fields
    })
}

fn error() -> impl Strategy<Value = Error> {
    (text(), prop::option::of(text()), fields()).prop_map(|(name, description, info)| Error {
        condition: format!("com.example:{name}").into(),
        description: description.map(Into::into),
        info,
    })
}

fn state() -> impl Strategy<Value = DeliveryState> {
    prop_oneof![
        Just(DeliveryState::Accepted),
        Just(DeliveryState::Released),
        prop::option::of(error()).prop_map(|error| DeliveryState::Rejected(error.map(Box::new))),
        any::<(u32, u64)>().prop_map(|(section_number, section_offset)| {
            DeliveryState::Received { section_number, section_offset }
        }),
        (any::<bool>(), any::<bool>(), fields()).prop_map(
            |(delivery_failed, undeliverable_here, message_annotations)| {
                DeliveryState::Modified(Modified {
                    delivery_failed,
                    undeliverable_here,
                    message_annotations,
                })
            }
        ),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)]
}

fn attach() -> impl Strategy<Value = Attach> {
    let settles = (
        prop_oneof![
            Just(SenderSettles::Unsettled),
            Just(SenderSettles::Settled),
            Just(SenderSettles::Mixed)
        ],
        prop_oneof![Just(ReceiverSettles::First), Just(ReceiverSettles::Second)],
    );
    let source = (text(), prop::option::of(fields())).prop_map(|(address, filter)| {
        let source = Terminus::source(&address);
        match filter {
            Some(filter) => source.with_filter(&filter).dynamic(),
            None => source,
        }
    });
    let target = text().prop_map(|address| Terminus::target(&address));
    (
        (text(), any::<u32>(), role(), settles),
        (prop::option::of(source), prop::option::of(target)),
        (any::<Option<u32>>(), any::<Option<u64>>(), fields()),
    )
        .prop_map(|((name, handle, role, settles), (source, target), last)| Attach {
            name,
            handle,
            role,
            sender_settles: settles.0,
            receiver_settles: settles.1,
            source,
            target,
            initial_delivery_count: last.0,
            max_message_size: last.1,
            properties: last.2,
        })
}

fn open() -> impl Strategy<Value = Open> {
    let bounds = any::<(u32, u16, Option<u32>)>();
    (text(), prop::option::of(text()), bounds, fields()).prop_map(
        |(container_id, hostname, (max_frame_size, channel_max, idle_time_out), properties)| Open {
            container_id,
            hostname,
            max_frame_size,
            channel_max,
            idle_time_out,
            properties,
        },
    )
}

fn begin() -> impl Strategy<Value = Begin> {
    (any::<(Option<u16>, u32, u32, u32, u32)>(), fields()).prop_map(|(numbers, properties)| Begin {
        remote_channel: numbers.0,
        next_outgoing_id: numbers.1,
        incoming_window: numbers.2,
        outgoing_window: numbers.3,
        handle_max: numbers.4,
        properties,
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    type Optional = Option<u32>;
    any::<((Optional, u32, u32, u32), (Optional, Optional, Optional, Optional), (bool, bool))>()
        .prop_map(|(session, link, (drain, echo))| Flow {
            next_incoming_id: session.0,
            incoming_window: session.1,
            next_outgoing_id: session.2,
            outgoing_window: session.3,
            handle: link.0,
            delivery_count: link.1,
            link_credit: link.2,
            available: link.3,
            drain,
            echo,
        })
}

fn transfer() -> impl Strategy<Value = Transfer> {
    let tag = prop::collection::vec(any::<u8>(), 0..=32);
    let numbers = any::<(u32, Option<u32>, Option<u32>)>();
    let flags = any::<(Option<bool>, bool, bool)>();
    (numbers, prop::option::of(tag), flags, prop::option::of(state())).prop_map(
        |((handle, delivery_id, message_format), tag, (settled, more, aborted), state)| Transfer {
            handle,
            delivery_id,
            tag: tag.map(|tag| Tag::try_from(&tag[..]).unwrap()),
            message_format,
            settled,
            more,
            state,
            aborted,
        },
    )
}

fn performative() -> impl Strategy<Value = Performative> {
    let error = || prop::option::of(error());
    let disposition = (role(), any::<(u32, Option<u32>, bool)>(), prop::option::of(state()));
    prop_oneof![
        open().prop_map(|open| Performative::Open(Box::new(open))),
        begin().prop_map(|begin| Performative::Begin(Box::new(begin))),
        attach().prop_map(|attach| Performative::Attach(Box::new(attach))),
        flow().prop_map(Performative::Flow),
        transfer().prop_map(Performative::Transfer),
        disposition.prop_map(|(role, (first, last, settled), state)| {
            Performative::Disposition(Disposition { role, first, last, settled, state })
        }),
        (any::<(u32, bool)>(), error()).prop_map(|((handle, closed), error)| {
            Performative::Detach(Detach { handle, closed, error })
        }),
        error().prop_map(|error| Performative::End(End { error })),
        error().prop_map(|error| Performative::Close(Close { error })),
    ]
}

/// Separates the termini from a performative: their encoding depends on the library that wrote them,
/// their meaning does not.
fn meaning(performative: Performative) -> (Performative, Vec<String>) {
    match performative {
        Performative::Attach(mut attach) => {
            let ends = [attach.source.take(), attach.target.take()];
            let meaning = ends
                .iter()
                .flatten()
                .map(|end| format!("{:?} {:?} {}", end.address(), end.filter(), end.is_dynamic()));
            let meaning = meaning.collect();
            (Performative::Attach(attach), meaning)
        }
        other => (other, Vec::new()),
    }
}

/// Puts a frame's header before a body, because the other library writes bodies only.
fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
    [&length[..], &[2, kind, 0, 5], body].concat()
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(
        performative in performative(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        channel: u16,
    ) {
        let mut bytes = vec![1, 2, 3];
        frame::encode(&mut bytes, channel, &performative, &payload);
        let bytes = &bytes[3..];
        prop_assert_eq!(frame::length(bytes), Ok(Some(bytes.len())));
        let frame = frame::decode(bytes).unwrap();
        prop_assert_eq!(frame.channel, channel);
        prop_assert_eq!(frame.body, Body::Amqp(performative, &payload));
    }

    #[test]
    fn another_library_agrees(performative in performative()) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, 5, &performative, &[]);
        let theirs: performatives::Performative = serde_amqp::from_slice(&bytes[8..]).unwrap();
        let bytes = framed(0, &serde_amqp::to_vec(&theirs).unwrap());
        let frame = frame::decode(&bytes).unwrap();
        prop_assert_eq!(frame.channel, 5);
        let Body::Amqp(again, []) = frame.body else { panic!("{frame:?}") };
        prop_assert_eq!(meaning(again), meaning(performative));
    }

    #[test]
    fn every_prefix_is_refused(performative in performative()) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, 0, &performative, &[]);
        for length in 0..bytes.len() {
            let read = frame::decode(&bytes[..length]);
            prop_assert!(length == 8 || read.is_err(), "{read:?}");
        }
    }
}

#[test]
fn steps_of_sasl_agree_too() {
    let mechanisms = vec!["MSSBCBS".to_owned(), "ANONYMOUS".to_owned()];
    let steps = [
        Sasl::Mechanisms(mechanisms),
        Sasl::Mechanisms(vec!["PLAIN".to_owned()]),
        Sasl::Init {
            mechanism: "PLAIN".into(),
            initial_response: Some(b"\0user\0key".to_vec()),
            hostname: Some("localhost".into()),
        },
        Sasl::Init { mechanism: "ANONYMOUS".into(), initial_response: None, hostname: None },
        Sasl::Challenge(vec![1, 2]),
        Sasl::Response(vec![]),
        Sasl::Outcome { code: 1 },
    ];
    for step in steps {
        let mut bytes = Vec::new();
        frame::encode_sasl(&mut bytes, &step);
        assert_eq!(frame::decode(&bytes).unwrap().body, Body::Sasl(step.clone()));
        let body = &bytes[8..];
        let theirs = match step {
            Sasl::Mechanisms(_) => reread::<sasl::SaslMechanisms>(body),
            Sasl::Init { .. } => reread::<sasl::SaslInit>(body),
            Sasl::Challenge(_) => reread::<sasl::SaslChallenge>(body),
            Sasl::Response(_) => reread::<sasl::SaslResponse>(body),
            Sasl::Outcome { .. } => reread::<sasl::SaslOutcome>(body),
        };
        assert_eq!(frame::decode(&framed(1, &theirs)).unwrap().body, Body::Sasl(step));
    }
}

/// Reads and writes `body` with the other library.
fn reread<T: serde::Serialize + serde::de::DeserializeOwned>(body: &[u8]) -> Vec<u8> {
    serde_amqp::to_vec(&serde_amqp::from_slice::<T>(body).unwrap()).unwrap()
}

#[test]
fn all_fields_are_there() {
    let refused = Attach {
        name: "l".into(),
        handle: 0,
        role: Role::Sender,
        sender_settles: SenderSettles::Mixed,
        receiver_settles: ReceiverSettles::First,
        source: None,
        target: None,
        initial_delivery_count: Some(0),
        max_message_size: None,
        properties: Fields::new(),
    };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, 0, &Performative::Attach(Box::new(refused)), &[]);
    assert_eq!(
        bytes[8..],
        *b"\x00\x53\x12\xc0\x15\x0e\xa1\x01l\x43\x42\x50\x02\x50\x00\x40\x40\x40\x42\x43\x40\x40\x40\xc1\x01\x00"
    );
    for (performative, fields) in [
        (Performative::Open(Box::new(Open::new(""))), 10),
        (Performative::Flow(Flow::default()), 11),
        (Performative::Transfer(Transfer::default()), 11),
        (Performative::Close(Close::default()), 1),
    ] {
        bytes.clear();
        frame::encode(&mut bytes, 0, &performative, &[]);
        assert_eq!(bytes[13], fields, "{performative:?}");
    }
}

#[test]
fn tags_have_a_bound() {
    assert!(Tag::try_from(&[0; 32][..]).is_ok());
    assert!(Tag::try_from(&[0; 33][..]).is_err());
    let transfer = b"\0\0\0\x2f\x02\0\0\0\0\x53\x14\xc0\x25\x03\x43\x43\xa0\x21";
    let mut bytes = transfer.to_vec();
    bytes.extend([0; 33]);
    bytes[3] = bytes.len() as u8;
    bytes[12] = bytes.len() as u8 - 13;
    let error = frame::decode(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "malformed delivery tag: too long");
}
