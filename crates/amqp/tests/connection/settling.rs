use barid_amqp::frame::{self, Modified, Performative};
use barid_amqp::message::ValueRef;
use barid_amqp::{DeliveryState, Disposition, Error, Event, Fields, OutgoingId, Role};

use crate::peer::{CHANNEL, Peer};

/// Returns a peer that has received `count` messages, and their ids.
fn with_messages(count: u32) -> (Peer, Vec<OutgoingId>) {
    let mut peer = Peer::new();
    let link = peer.receiver(0, count);
    let send = |at: u32| peer.server.send(link, &at.to_be_bytes(), false, 0, &[b"m"]).unwrap();
    let ids = (0..count).map(send).collect();
    peer.bytes();
    (peer, ids)
}

fn dispositions(peer: &mut Peer) -> Vec<Disposition> {
    let events = peer.events().into_iter().map(|event| match event {
        Event::Disposition(disposition) => disposition,
        other => panic!("{other:?}"),
    });
    events.collect()
}

fn echoes(peer: &mut Peer) -> Vec<(u32, Option<u32>, Option<DeliveryState>)> {
    let said = peer.said().into_iter().map(|said| match said {
        Performative::Disposition(said) => {
            assert_eq!((said.role, said.settled), (Role::Sender, true));
            (said.first, said.last, said.state)
        }
        other => panic!("{other:?}"),
    });
    said.collect()
}

#[test]
fn every_outcome_comes_as_it_was_said() {
    let changes = Fields::new().with("color", "red").with("n", ValueRef::Null);
    let dead = Error {
        info: Fields::new().with("DeadLetterReason", "r").with("more", ValueRef::Null),
        ..Error::new("com.microsoft:dead-letter", "because")
    };
    let modified =
        Modified { delivery_failed: true, undeliverable_here: true, message_annotations: changes };
    let outcomes = [
        DeliveryState::Accepted,
        DeliveryState::Released,
        DeliveryState::Modified(Modified::default()),
        DeliveryState::Modified(modified),
        DeliveryState::Rejected(None),
        DeliveryState::Rejected(Some(Box::new(dead))),
    ];
    let (mut peer, ids) = with_messages(outcomes.len() as u32);
    for (at, outcome) in outcomes.iter().enumerate() {
        peer.dispose(at as u32 + 1, None, false, outcome.clone());
        let said = dispositions(&mut peer);
        assert_eq!(said.len(), 1);
        assert_eq!((said[0].delivery, said[0].state.as_deref()), (ids[at], Some(outcome)));
        assert_eq!((&*said[0].tag, said[0].settled), (&(at as u32).to_be_bytes()[..], false));
        assert!(peer.server.settle_outgoing(ids[at], said[0].state.as_deref()));
        assert!(!peer.server.settle_outgoing(ids[at], None), "once");
        let id = at as u32 + 1;
        assert_eq!(echoes(&mut peer), [(id, None, Some(outcome.clone()))]);
    }
}

#[test]
fn a_state_that_is_no_outcome_decides_nothing() {
    let states = [
        DeliveryState::Received { section_number: 1, section_offset: 1 << 40 },
        DeliveryState::Declared { transaction: b"tx".to_vec() },
        DeliveryState::Transactional {
            transaction: b"tx".to_vec(),
            outcome: Some(Box::new(DeliveryState::Accepted)),
        },
    ];
    let (mut peer, ids) = with_messages(1);
    for state in states {
        peer.dispose(1, None, false, state);
        assert_eq!(dispositions(&mut peer), []);
    }
    peer.dispose(1, None, false, DeliveryState::Accepted);
    assert_eq!(dispositions(&mut peer)[0].delivery, ids[0]);
}

#[test]
fn dispositions_of_python_are_understood() {
    // The frames that pyamqp of azure-servicebus 7.15 writes to dead-letter and to abandon delivery
    // 3.
    let rejected = b"\0\0\0\x76\x02\0\0\x03\0\x53\x15\xc0\x69\x06\x56\x01\x52\x03\x52\x03\x56\0\
        \0\x53\x25\xc0\x5a\x01\0\x53\x1d\xc0\x54\x03\xa3\x19com.microsoft:dead-letter\xa1\x01d\
        \xc1\x33\x04\xa3\x10DeadLetterReason\xa1\x01r\xa3\x1aDeadLetterErrorDescription\x40\x40";
    let modified = b"\0\0\0\x28\x02\0\0\x03\0\x53\x15\xc0\x1b\x06\x56\x01\x52\x03\x52\x03\x56\0\
        \0\x53\x27\xc0\x0c\x03\x56\x01\x40\xc1\x06\x02\xa3\x01k\x54\x01\x40";
    let mut said = Vec::new();
    for bytes in [&rejected[..], &modified[..]] {
        let (mut peer, ids) = with_messages(4);
        peer.write(bytes).unwrap();
        said.append(&mut dispositions(&mut peer));
        assert!(said.iter().all(|said| said.delivery == ids[2] && !said.settled));
    }
    let Some(DeliveryState::Rejected(Some(error))) = said[0].state.as_deref() else {
        panic!("{said:?}")
    };
    assert_eq!(error.condition, "com.microsoft:dead-letter");
    let info = Fields::new()
        .with("DeadLetterReason", "r")
        .with("DeadLetterErrorDescription", ValueRef::Null);
    assert_eq!((error.description.as_deref(), &error.info), (Some("d"), &info));
    let modified = Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: Fields::new().with("k", 1i32),
    };
    assert_eq!(said[1].state.as_deref(), Some(&DeliveryState::Modified(modified)));
}

#[test]
fn a_range_tells_of_each_that_exists() {
    let (mut peer, ids) = with_messages(5);
    peer.server.settle_outgoing(ids[1], None);
    peer.dispose(0, Some(3), false, DeliveryState::Accepted);
    let said: Vec<_> = dispositions(&mut peer).iter().map(|said| said.delivery).collect();
    assert_eq!(said, [ids[0], ids[2]]);
    peer.dispose(0, Some(u32::MAX / 4), true, DeliveryState::Accepted);
    let said: Vec<_> = dispositions(&mut peer).iter().map(|said| said.delivery).collect();
    assert_eq!(said, [ids[3], ids[4]], "about the others it has said enough");
    assert!(!peer.server.settle_outgoing(ids[0], None), "the peer has forgotten it");
    peer.dispose(0, Some(u32::MAX / 4), false, DeliveryState::Accepted);
    assert_eq!(dispositions(&mut peer), []);
    peer.dispose(4, Some(1), false, DeliveryState::Accepted);
    assert_eq!(dispositions(&mut peer), []);
}

#[test]
fn what_the_peer_settled_is_not_answered() {
    let (mut peer, ids) = with_messages(1);
    peer.dispose(1, None, true, DeliveryState::Released);
    let said = dispositions(&mut peer);
    assert!(said[0].settled);
    assert!(!peer.server.settle_outgoing(ids[0], said[0].state.as_deref()));
    assert_eq!(echoes(&mut peer), []);
}

#[test]
fn a_delivery_is_decided_about_once() {
    let (mut peer, ids) = with_messages(1);
    peer.dispose(1, None, false, DeliveryState::Accepted);
    peer.dispose(1, None, false, DeliveryState::Released);
    let said = dispositions(&mut peer);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].state.as_deref(), Some(&DeliveryState::Accepted));
    assert!(peer.server.settle_outgoing(ids[0], Some(&DeliveryState::Accepted)));
}

#[test]
fn a_peer_may_settle_without_saying_how() {
    let (mut peer, ids) = with_messages(1);
    let silent = frame::Disposition {
        role: Role::Receiver,
        first: 1,
        last: None,
        settled: true,
        state: None,
    };
    peer.say(CHANNEL, Performative::Disposition(silent));
    let said = dispositions(&mut peer);
    assert_eq!((said[0].delivery, &said[0].state, said[0].settled), (ids[0], &None, true));
}

#[test]
fn a_sender_does_not_speak_of_what_it_received() {
    let (mut peer, ids) = with_messages(1);
    let wrong = frame::Disposition {
        role: Role::Sender,
        first: 1,
        last: None,
        settled: true,
        state: Some(DeliveryState::Accepted),
    };
    peer.say(CHANNEL, Performative::Disposition(wrong));
    assert_eq!(peer.events(), []);
    assert!(peer.server.settle_outgoing(ids[0], None));
}

#[test]
fn like_outcomes_share_a_frame() {
    let (mut peer, ids) = with_messages(8);
    let rejected = DeliveryState::Rejected(Some(Box::new(Error::new("amqp:not-allowed", ""))));
    for (at, outcome) in [
        (0, Some(&DeliveryState::Accepted)),
        (1, Some(&DeliveryState::Accepted)),
        (2, Some(&DeliveryState::Accepted)),
        (4, Some(&DeliveryState::Accepted)),
        (5, Some(&DeliveryState::Released)),
        (6, Some(&rejected)),
        (7, None),
        (3, None),
    ] {
        peer.server.settle_outgoing(ids[at], outcome);
    }
    assert_eq!(
        echoes(&mut peer),
        [
            (1, Some(3), Some(DeliveryState::Accepted)),
            (5, None, Some(DeliveryState::Accepted)),
            (6, None, Some(DeliveryState::Released)),
            (7, None, Some(rejected)),
            (8, None, None),
            (4, None, None),
        ]
    );
}

#[test]
fn a_rejection_without_an_error_has_none() {
    let (mut peer, ids) = with_messages(1);
    peer.server.settle_outgoing(ids[0], Some(&DeliveryState::Rejected(None)));
    assert!(peer.bytes().ends_with(b"\x00\x53\x25\xc0\x02\x01\x40\x42"));
}

#[test]
fn deliveries_are_gone_with_their_link() {
    let (mut peer, ids) = with_messages(2);
    let detach = frame::Detach { handle: 0, closed: true, error: None };
    peer.say(CHANNEL, Performative::Detach(detach));
    peer.events();
    peer.bytes();
    peer.dispose(0, Some(10), false, DeliveryState::Accepted);
    assert_eq!(peer.events(), []);
    assert!(!peer.server.settle_outgoing(ids[0], None));
    assert_eq!(peer.bytes(), []);
}
