use barid_amqp::frame::{Detach, Flow, Performative, Transfer};
use barid_amqp::{AttachAnswer, Delivery, DeliveryState, Error, Event, Failure, Limits, Role};

use crate::peer::{CHANNEL, Peer, sender, transfer};

fn delivery(peer: &mut Peer) -> Delivery {
    match peer.event() {
        Event::Delivery(delivery) => *delivery,
        other => panic!("{other:?}"),
    }
}

/// Takes the credit that the server has given since the last call, as (delivery count, credit).
fn credit(peer: &mut Peer) -> Vec<(u32, u32)> {
    let flows = peer.said().into_iter().filter_map(|said| match said {
        Performative::Flow(flow) => Some((flow.delivery_count.unwrap(), flow.link_credit.unwrap())),
        _ => None,
    });
    flows.collect()
}

#[test]
fn credit_is_given_at_once() {
    let mut peer = Peer::new();
    let link = peer.attach(sender(1)).link;
    peer.server.accept_attach(link, AttachAnswer { credit: 100, ..AttachAnswer::default() });
    let said = peer.said();
    let [Performative::Attach(attach), Performative::Flow(flow)] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((attach.role, attach.initial_delivery_count), (Role::Receiver, None));
    assert_eq!(attach.max_message_size, Some(262_144));
    assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(1), Some(0), Some(100)));
}

#[test]
fn a_message_comes_in_one_frame() {
    let mut peer = Peer::new();
    let link = peer.sender(1, 10);
    let said = Transfer { message_format: Some(0x8001_3700), ..transfer(1, 0) };
    peer.say_with(CHANNEL, Performative::Transfer(said), b"message");
    let got = delivery(&mut peer);
    assert_eq!((got.link, got.message_format, got.settled), (link, 0x8001_3700, false));
    assert_eq!((&*got.tag, &*got.message), (&[0; 4][..], &b"message"[..]));
    assert!(peer.server.settle_incoming(got.id, &DeliveryState::Accepted));
    assert!(!peer.server.settle_incoming(got.id, &DeliveryState::Accepted), "once");
    let said = peer.said();
    let [Performative::Disposition(said)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((said.role, said.first, said.last), (Role::Receiver, 0, None));
    assert_eq!((said.settled, &said.state), (true, &Some(DeliveryState::Accepted)));
}

#[test]
fn a_message_comes_in_many_frames_beside_another() {
    let mut peer = Peer::new();
    let (one, two) = (peer.sender(1, 10), peer.sender(2, 10));
    let first = |more| Transfer { more, ..transfer(1, 0) };
    // pyamqp repeats everything in the later frames; other clients leave it out.
    let short = |more| Transfer { handle: 1, more, ..Transfer::default() };
    peer.say_with(CHANNEL, Performative::Transfer(first(true)), b"one ");
    peer.say_with(CHANNEL, Performative::Transfer(short(true)), b"after ");
    assert_eq!(peer.events(), []);
    peer.send(2, 1, true, b"between");
    let between = delivery(&mut peer);
    assert_eq!((between.link, &*between.message), (two, &b"between"[..]));
    peer.say_with(CHANNEL, Performative::Transfer(first(true)), b"");
    peer.say_with(CHANNEL, Performative::Transfer(short(false)), b"another");
    let whole = delivery(&mut peer);
    assert_eq!((whole.link, &*whole.message), (one, &b"one after another"[..]));
    assert!(!whole.settled && between.settled);
    assert!(!peer.server.settle_incoming(between.id, &DeliveryState::Accepted));
    assert!(peer.server.settle_incoming(whole.id, &DeliveryState::Accepted));
}

#[test]
fn an_aborted_message_never_was() {
    let mut peer = Peer::new();
    peer.sender(1, 2);
    for id in 0..5 {
        let more = Transfer { more: true, ..transfer(1, id) };
        peer.say_with(CHANNEL, Performative::Transfer(more), b"half");
        let aborted = Transfer { aborted: true, ..transfer(1, id) };
        peer.say(CHANNEL, Performative::Transfer(aborted));
    }
    assert_eq!(peer.events(), []);
    peer.send(1, 5, false, b"whole");
    assert_eq!(&*delivery(&mut peer).message, b"whole");
}

#[test]
fn a_message_that_is_too_long_is_rejected() {
    let mut peer = Peer::new();
    let link = peer.attach(sender(1)).link;
    let answer = AttachAnswer { credit: 10, max_message_size: Some(10), ..AttachAnswer::default() };
    peer.server.accept_attach(link, answer);
    peer.bytes();
    peer.send(1, 0, false, &[0; 10]);
    assert_eq!(delivery(&mut peer).message.len(), 10);
    peer.send(1, 1, false, &[0; 11]);
    peer.say_with(CHANNEL, more(2), &[0; 6]);
    peer.say_with(CHANNEL, more(2), &[0; 6]);
    peer.say_with(CHANNEL, more(2), &[0; 6]);
    peer.send(1, 2, false, &[0; 1]);
    peer.send(1, 3, true, &[0; 11]);
    assert_eq!(peer.events(), []);
    let said = peer.said();
    assert_eq!(said.len(), 2, "{said:?}");
    for (id, said) in (1..).zip(said) {
        let Performative::Disposition(said) = said else { panic!("{said:?}") };
        assert_eq!((said.first, said.last, said.settled), (id, None, true));
        let Some(DeliveryState::Rejected(Some(error))) = said.state else { panic!("{said:?}") };
        assert_eq!(error.condition, "amqp:link:message-size-exceeded");
    }
    assert_eq!(peer.server.queued_bytes(), 0);
}

fn more(id: u32) -> Performative {
    Performative::Transfer(Transfer { more: true, ..transfer(1, id) })
}

#[test]
fn unfinished_messages_have_a_bound_together() {
    let limits = Limits { max_unfinished: 1_000, ..Limits::default() };
    let mut peer = Peer::with(limits, 65_536, 100);
    peer.sender(0, 10);
    peer.sender(1, 10);
    for handle in 0..2 {
        let begun = Transfer { more: true, ..transfer(handle, handle) };
        peer.say_with(CHANNEL, Performative::Transfer(begun), &[0; 500]);
    }
    let failure = peer.say_wrong_with(Transfer { handle: 1, more: true, ..Transfer::default() });
    assert_eq!(failure, Failure::TooMuchUnfinished);
    assert!(peer.server.is_closed());
}

impl Peer {
    fn say_wrong_with(&mut self, transfer: Transfer) -> Failure {
        let mut bytes = Vec::new();
        let transfer = Performative::Transfer(transfer);
        barid_amqp::frame::encode(&mut bytes, CHANNEL, &transfer, b"m");
        self.server.receive(&bytes).expect_err("it is too much")
    }
}

#[test]
fn credit_is_renewed_when_half_is_settled() {
    let mut peer = Peer::new();
    peer.sender(1, 4);
    let ids: Vec<_> = (0..4)
        .map(|id| {
            peer.send(1, id, false, b"m");
            delivery(&mut peer).id
        })
        .collect();
    assert_eq!(credit(&mut peer), [], "all wait to be settled");
    peer.server.settle_incoming(ids[2], &DeliveryState::Accepted);
    assert_eq!(credit(&mut peer), []);
    peer.server.settle_incoming(ids[0], &DeliveryState::Accepted);
    assert_eq!(credit(&mut peer), [(4, 2)]);

    for id in 4..6 {
        peer.send(1, id, true, b"m");
    }
    assert_eq!(credit(&mut peer), [(6, 2)], "settled ones count when they come");
}

#[test]
fn one_at_a_time_is_a_window_too() {
    let mut peer = Peer::new();
    peer.sender(1, 1);
    for id in 0..3 {
        peer.send(1, id, false, b"m");
        assert_eq!(credit(&mut peer), []);
        let delivery = delivery(&mut peer);
        peer.server.settle_incoming(delivery.id, &DeliveryState::Accepted);
        assert_eq!(credit(&mut peer), [(id + 1, 1)]);
    }
}

#[test]
fn a_window_can_change() {
    let mut peer = Peer::new();
    let link = peer.sender(1, 0);
    assert!(peer.server.grant(link, 3));
    assert_eq!(credit(&mut peer), [(0, 3)]);
    assert!(peer.server.grant(link, 9));
    assert_eq!(credit(&mut peer), [(0, 9)]);
    assert!(peer.server.grant(link, 1));
    peer.send(1, 0, true, b"m");
    assert_eq!(credit(&mut peer), [], "what was given stays");
}

#[test]
fn credit_that_the_peer_gives_up_is_given_again() {
    let mut peer = Peer::new();
    peer.sender(1, 10);
    let flow = Flow { handle: Some(1), delivery_count: Some(7), ..Flow::default() };
    peer.say(CHANNEL, Performative::Flow(flow));
    assert_eq!(credit(&mut peer), [(7, 10)]);
}

#[test]
fn messages_beyond_the_credit_cost_the_link() {
    let mut peer = Peer::new();
    let link = peer.sender(1, 1);
    peer.send(1, 0, false, b"m");
    let first = delivery(&mut peer);
    peer.send(1, 1, false, b"m");
    let Event::Detached { link: gone, closed: true, error: Some(error) } = peer.event() else {
        panic!("not detached")
    };
    assert_eq!((gone, &*error.condition), (link, "amqp:link:transfer-limit-exceeded"));
    assert!(matches!(&peer.said()[..], [Performative::Detach(Detach { error: Some(_), .. })]));
    assert!(!peer.server.settle_incoming(first.id, &DeliveryState::Accepted));
    peer.send(1, 2, false, b"m");
    assert_eq!((peer.events(), peer.said()), (vec![], vec![]), "it has not heard of it yet");

    let mut peer = Peer::new();
    let link = peer.attach(sender(1)).link;
    peer.send(1, 0, false, b"m");
    assert!(matches!(peer.event(), Event::Detached { link: gone, .. } if gone == link));
    assert!(matches!(peer.said()[..], [Performative::Attach(_), Performative::Detach(_)]));
}

#[test]
fn delivery_ids_need_not_ascend() {
    // When its threads race, pyamqp gives one id to several deliveries, and ids out of order.
    let mut peer = Peer::new();
    peer.sender(1, 10);
    let ids = [5, 5, 4, 6, 5];
    let deliveries: Vec<_> = ids
        .into_iter()
        .map(|id| {
            peer.send(1, id, false, &id.to_be_bytes());
            delivery(&mut peer)
        })
        .collect();
    for (id, delivery) in ids.into_iter().zip(deliveries.into_iter().rev()) {
        assert!(peer.server.settle_incoming(delivery.id, &DeliveryState::Released));
        assert!(!peer.server.settle_incoming(delivery.id, &DeliveryState::Released), "{id}");
    }
    let mut settled: Vec<_> = peer
        .said()
        .into_iter()
        .filter_map(|said| match said {
            Performative::Disposition(said) => Some(said.first..=said.last.unwrap_or(said.first)),
            _ => None,
        })
        .flatten()
        .collect();
    settled.sort_unstable();
    assert_eq!(settled, [4, 5, 5, 5, 6], "each is answered by its id");
}

#[test]
fn a_delivery_has_an_id() {
    let mut peer = Peer::new();
    peer.sender(1, 10);
    let transfer = Transfer { delivery_id: None, ..transfer(1, 0) };
    peer.say(CHANNEL, Performative::Transfer(transfer));
    assert!(matches!(peer.said()[..], [Performative::End(_)]));

    let mut peer = Peer::new();
    peer.sender(1, 10);
    peer.say_with(CHANNEL, more(0), b"m");
    peer.send(1, 1, false, b"m");
    assert!(matches!(peer.said()[..], [Performative::End(_)]), "one inside another");

    let mut peer = Peer::new();
    peer.sender(1, 10);
    peer.send(1, u32::MAX, false, b"m");
    peer.send(1, 0, false, b"m");
    let events = peer.events();
    let [Event::Delivery(last), Event::Delivery(first)] = &events[..] else { panic!("{events:?}") };
    assert_ne!(last.id, first.id);
    peer.server.settle_incoming(last.id, &DeliveryState::Accepted);
    peer.server.settle_incoming(first.id, &DeliveryState::Accepted);
    let said = peer.said();
    let [Performative::Disposition(range)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((range.first, range.last), (u32::MAX, Some(0)), "ids wrap");
}

#[test]
fn a_sender_may_settle_first() {
    let mut peer = Peer::new();
    peer.sender(1, 2);
    peer.send(1, 0, false, b"m");
    let first = delivery(&mut peer);
    let settled = barid_amqp::frame::Disposition {
        role: Role::Sender,
        first: 0,
        last: Some(u32::MAX / 4),
        settled: true,
        state: None,
    };
    peer.say(CHANNEL, Performative::Disposition(settled));
    assert!(!peer.server.settle_incoming(first.id, &DeliveryState::Accepted));
    assert_eq!(credit(&mut peer), [(1, 2)]);
}

#[test]
fn a_rejection_has_all_three_fields() {
    let mut peer = Peer::new();
    peer.sender(1, 2);
    peer.send(1, 0, false, b"m");
    let id = delivery(&mut peer).id;
    let error = Error::new("amqp:not-allowed", "no");
    peer.server.settle_incoming(id, &DeliveryState::Rejected(Some(Box::new(error))));
    let bytes = peer.bytes();
    let error = b"\x00\x53\x1d\xc0\x1a\x03\xa3\x10amqp:not-allowed\xa1\x02no\xc1\x01\x00";
    assert!(bytes.windows(error.len()).any(|window| window == error), "{bytes:02x?}");
}
