use proptest::prelude::*;

use super::*;
use crate::common::CommonSettings;
use crate::heartbeat::{Seen, Support, Verdict};
use crate::inquiry::{InquiryKind, ToldKind};

fn identity() -> Identity {
    Identity {
        cluster: "test".into(),
        name: "one".into(),
        incarnation: 7,
        address: "127.0.0.1:7000".into(),
        software: "0.1.0".into(),
        placement: 5,
        reference: "one.example:1883".into(),
    }
}

fn all() -> Vec<Frame<'static>> {
    let seen = Seen {
        name: "two".into(),
        address: "[::1]:7000".into(),
        incarnation: 9,
        verdict: Verdict::Gone,
        heard: 4,
        support: Support::Yes,
    };
    let inquiry = Inquiry {
        kind: InquiryKind::Request,
        connection: 7,
        since: 1 << 40,
        session: 1 << 48 | 9,
        packet_id: 3,
        is_repeated: true,
        survives: true,
        is_stored: false,
        max_packet_size: u32::MAX,
        user: "acme/ada",
        user_limits: (10, 0),
    };
    let ended = Inquiry { kind: InquiryKind::SessionEnded, user: "", ..inquiry };
    let told = Told { connection: 7, session: 9, kind: ToldKind::Keys };
    let will = Will {
        tenant: "acme",
        client: "sensor",
        at: 1 << 40,
        user: "ada",
        expiry: Some(u32::MAX),
        message: b"message",
    };
    let run = Run {
        sequence: 3,
        tenant: "acme",
        publisher: "sensor",
        to: Destination::Sessions,
        is_v5: true,
        retaining: None,
        packets: b"packets",
    };
    let stamp = Stamp { time: 1 << 50, origin: u64::MAX };
    let mut parts = Parts::NONE;
    parts.insert(77);
    vec![
        Frame::Hello {
            versions: (1, 2),
            purpose: Purpose::Messages(3),
            identity: identity(),
            nonce: [1; NONCE],
        },
        Frame::Hello {
            versions: (1, 1),
            purpose: Purpose::Control,
            identity: identity(),
            nonce: [2; NONCE],
        },
        Frame::Welcome { version: 1, identity: identity(), nonce: [3; NONCE], proof: [4; PROOF] },
        Frame::Proof([5; PROOF]),
        Frame::Refused(Refusal::OtherCluster("test".into())),
        Frame::Refused(Refusal::Down),
        Frame::Ready,
        Frame::Heartbeat(Heartbeat {
            number: 1,
            wall: 2,
            settings: CommonSettings::new([3; CommonSettings::PARTS.len()]),
            serves: true,
            is_unbroken: true,
            brokers: 3,
            seen: vec![seen],
        }),
        Frame::SnapshotBegins,
        Frame::Filter(Change { is_added: true, tenant: "acme", filter: "a/+" }),
        Frame::Filter(Change { is_added: false, tenant: "acme", filter: "$share/g/#" }),
        Frame::Told(1),
        Frame::Heard(2),
        Frame::Leaving,
        Frame::Connected { tenant: "acme", client: "sensor", at: 1 << 40, begins_anew: true },
        Frame::WillsBegin { first: "three" },
        Frame::Will(will),
        Frame::Will(Will { user: "", expiry: None, message: b"", ..will }),
        Frame::NoWill { tenant: "acme", client: "sensor" },
        Frame::WillsTold,
        Frame::UsagesBegin,
        Frame::Used {
            tenant: "acme",
            used: Used {
                connections: 1,
                sessions: 2,
                subscriptions: 3,
                queued_messages: 4,
                queued_bytes: 5,
                spent: [6, 7, 8, u64::MAX],
            },
        },
        Frame::Hello {
            versions: (1, 1),
            purpose: Purpose::Client,
            identity: identity(),
            nonce: [6; NONCE],
        },
        Frame::Client(Client {
            address: "[::1]:50000",
            protocol: Protocol::Mqtt,
            listener: "[::]:8883",
            certificate: b"certificate",
        }),
        Frame::Client(Client {
            address: "127.0.0.1:50000",
            protocol: Protocol::Amqp,
            listener: "127.0.0.1:5672",
            certificate: b"",
        }),
        Frame::Run(run),
        Frame::Run(Run { to: Destination::Shared("$share/g/a"), is_v5: false, ..run }),
        Frame::Run(Run { retaining: Some(Retaining { stamp, user: "ada" }), ..run }),
        Frame::Run(Run { to: Destination::StateStore(inquiry), ..run }),
        Frame::Run(Run { to: Destination::StateStore(ended), packets: b"", ..run }),
        Frame::Run(Run { to: Destination::Inquirer(told), ..run }),
        Frame::Run(Run { to: Destination::OldSession(1 << 50), packets: b"", ..run }),
        Frame::Done(u64::MAX),
        Frame::Hello {
            versions: (1, 1),
            purpose: Purpose::Replication,
            identity: identity(),
            nonce: [7; NONCE],
        },
        Frame::Object {
            object: Object { kind: 1, tenant: "acme", name: "ada" },
            record: b"record",
        },
        Frame::Digests { comparison: Comparison::Again, digests: &[9; DIGESTS_LEN] },
        Frame::Listing { differing: parts, listed: parts, has_more: true, objects: b"objects" },
        Frame::Compared,
        Frame::Hello {
            versions: (1, 1),
            purpose: Purpose::Move,
            identity: identity(),
            nonce: [8; NONCE],
        },
        Frame::Hold { slot: 7 },
        Frame::Held,
        Frame::Part(b"records"),
        Frame::Stage { slot: 31, generation: 2, hash: u64::MAX },
        Frame::Staged,
        Frame::Activate { slot: 4_095, generation: 1 << 40 },
        Frame::Active,
    ]
}

#[test]
fn what_is_encoded_is_decoded() {
    for frame in all() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(decode(&bytes, 10_000), Ok(Some((frame.clone(), bytes.len()))));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], 10_000), Ok(None), "{frame:?}");
        }
    }
}

#[test]
fn the_packets_of_a_run_may_be_appended() {
    let Some(Frame::Run(run)) = all().into_iter().find(|one| matches!(one, Frame::Run(_))) else {
        panic!("there is one")
    };
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    Frame::Run(run).encode(&mut whole);
    run.encode_before(run.packets.len(), &mut parts);
    parts.extend_from_slice(run.packets);
    assert_eq!(whole, parts);
}

#[test]
fn what_is_no_frame_is_refused() {
    assert_eq!(decode(&[0, 0, 0, 1, 99], 1_000), Err(FrameError::Kind(99)));
    assert_eq!(decode(&[0, 0, 0, 0, 5], 1_000), Err(FrameError::CutOff));
    assert_eq!(decode(&[0, 0, 0, 2, 5, 0], 1_000), Err(FrameError::TooLong));
    assert_eq!(decode(&[0, 0, 4, 0], 1_000), Err(FrameError::TooLarge(1_024)));
    assert_eq!(decode(&[0, 0, 0, 3, 18, 2, 0], 1_000), Err(FrameError::Value));
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, 150);
    }

    /// Fields of known kinds, with any contents.
    #[test]
    fn no_fields_are_a_panic(kind in 0..90_u8, fields in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = frame(kind, &fields) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            prop_assert_eq!(decode(&bytes, 1_000), Ok(Some((frame, bytes.len()))));
        }
    }
}
