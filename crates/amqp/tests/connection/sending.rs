use barid_amqp::frame::{Detach, Flow, Performative, Transfer};
use barid_amqp::{Event, Limits, SendError};

use crate::peer::{CHANNEL, Peer, credit_for, receiver};

/// Takes the transfers since the last call, with their payloads.
fn transfers(peer: &mut Peer) -> Vec<(Transfer, Vec<u8>)> {
    let transfers = peer.answers().into_iter().map(|(channel, said, payload)| match said {
        Performative::Transfer(transfer) if channel == CHANNEL => (transfer, payload),
        other => panic!("{other:?}"),
    });
    transfers.collect()
}

#[test]
fn a_message_goes_out() {
    let mut peer = Peer::new();
    let link = peer.receiver(2, 2);
    peer.server.send(link, &[7; 16], false, 0, &[b"he", b"", b"llo"]).unwrap();
    peer.server.send(link, b"x", true, 9, &[]).unwrap();
    let out = transfers(&mut peer);
    let (first, payload) = &out[0];
    assert_eq!((first.handle, first.delivery_id, first.more), (2, Some(1), false));
    assert_eq!((first.tag.as_deref(), first.settled), (Some(&[7; 16][..]), Some(false)));
    assert_eq!((first.message_format, &payload[..]), (Some(0), &b"hello"[..]));
    let (second, payload) = &out[1];
    assert_eq!((second.delivery_id, second.settled), (Some(2), Some(true)));
    assert_eq!((second.message_format, &payload[..]), (Some(9), &b""[..]));
}

#[test]
fn nothing_goes_out_without_credit() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 1);
    assert_eq!(peer.server.send(link, &[0; 33], true, 0, &[]), Err(SendError::TagTooLong));
    assert!(peer.server.send(link, b"1", true, 0, &[]).is_ok());
    assert_eq!(peer.server.send(link, b"2", true, 0, &[]), Err(SendError::NoCredit));
    // The peer counts credit from the delivery count that it has seen: first 0, then 1.
    peer.say(CHANNEL, Performative::Flow(credit_for(0, 0, 1)));
    assert_eq!(peer.server.credit(link), 0);
    peer.say(CHANNEL, Performative::Flow(credit_for(0, 1, 5)));
    assert_eq!(peer.server.credit(link), 5);
    peer.say(CHANNEL, Performative::Flow(credit_for(0, 1, 2)));
    assert_eq!(peer.server.credit(link), 2, "it is absolute");
    assert_eq!(peer.events(), vec![Event::Credit { link }; 3]);

    let sender = peer.sender(1, 10);
    assert_eq!(peer.server.credit(sender), 0);
    assert_eq!(peer.server.send(sender, b"1", true, 0, &[]), Err(SendError::NoLink));
}

#[test]
fn counts_wrap() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 0);
    peer.say(CHANNEL, Performative::Flow(credit_for(0, u32::MAX, 5)));
    assert_eq!(peer.server.credit(link), 4);
    peer.say(CHANNEL, Performative::Flow(credit_for(0, 0, u32::MAX)));
    assert_eq!(peer.server.credit(link), 0, "less than nothing is nothing");
}

#[test]
fn a_long_message_is_cut_to_the_frames_of_the_peer() {
    let message: Vec<u8> = (0..3_000u32).map(|at| at as u8).collect();
    for max_frame_size in [0, 512, 700, 1_024] {
        let mut peer = Peer::with(Limits::default(), max_frame_size, 1_000);
        let link = peer.receiver(0, 2);
        let parts = [&message[..1], &message[1..600], &message[600..], &[]];
        peer.server.send(link, &[1; 32], false, 0, &parts).unwrap();
        let bytes = peer.server.output().clone();
        let mut at = 0;
        while at < bytes.len() {
            let length = barid_amqp::frame::length(&bytes[at..]).unwrap().unwrap();
            assert!(length <= max_frame_size.max(512) as usize);
            at += length;
        }
        let frames = transfers(&mut peer);
        let last = frames.len() - 1;
        for (at, (transfer, _)) in frames.iter().enumerate() {
            assert_eq!((transfer.more, transfer.delivery_id), (at < last, Some(1)));
        }
        let joined: Vec<u8> = frames.into_iter().flat_map(|(_, payload)| payload).collect();
        assert_eq!(joined, message);
        assert_eq!(peer.server.credit(link), 1, "it was one delivery");
    }
}

#[test]
fn frames_wait_for_the_window_of_the_peer() {
    let mut peer = Peer::with(Limits::default(), 512, 3);
    let link = peer.receiver(0, 0);
    let window = |next_incoming_id, incoming_window| {
        Performative::Flow(Flow {
            next_incoming_id: Some(next_incoming_id),
            incoming_window,
            ..Flow::default()
        })
    };
    let credit = Flow { incoming_window: 3, ..credit_for(0, 0, 10) };
    peer.say(CHANNEL, Performative::Flow(credit));
    peer.events();
    for tag in [b"1", b"2", b"3"] {
        peer.server.send(link, tag, false, 0, &[&[tag[0]; 700]]).unwrap();
    }
    assert_eq!(peer.server.credit(link), 7);
    let sent = transfers(&mut peer);
    assert_eq!(sent.len(), 3);
    let waiting = 3 * 700 - sent.iter().map(|(_, payload)| payload.len()).sum::<usize>();
    assert_eq!(peer.server.queued_bytes(), waiting);

    // The peer repeats its window, as if it had not seen all transfers: nothing is free.
    peer.say(CHANNEL, window(1, 3));
    assert_eq!(transfers(&mut peer), []);
    peer.say(CHANNEL, window(3, 2));
    let more = transfers(&mut peer);
    assert_eq!(more.len(), 1);
    peer.say(CHANNEL, window(5, 100));
    let rest = transfers(&mut peer);
    assert_eq!(peer.server.queued_bytes(), 0);

    let all: Vec<_> = sent.into_iter().chain(more).chain(rest).collect();
    for (id, tag) in (1..).zip([b"1", b"2", b"3"]) {
        let of_one = all.iter().filter(|(transfer, _)| transfer.delivery_id == Some(id));
        let joined: Vec<u8> = of_one.flat_map(|(_, payload)| payload.clone()).collect();
        assert_eq!(joined, [tag[0]; 700]);
    }
    assert!(all.is_sorted_by_key(|(transfer, _)| transfer.delivery_id));
    assert_eq!(peer.events(), []);
}

#[test]
fn what_waits_for_the_window_goes_with_its_link() {
    let mut peer = Peer::with(Limits::default(), 512, 0);
    let (one, two) = (peer.receiver(0, 0), peer.receiver(1, 0));
    for handle in 0..2 {
        let credit = Flow { incoming_window: 0, ..credit_for(handle, 0, 10) };
        peer.say(CHANNEL, Performative::Flow(credit));
    }
    peer.server.send(one, b"1", false, 0, &[&[0; 100]]).unwrap();
    peer.server.send(two, b"2", false, 0, &[&[0; 10]]).unwrap();
    assert_eq!(peer.server.queued_bytes(), 110);
    peer.say(CHANNEL, Performative::Detach(Detach { handle: 0, closed: true, error: None }));
    peer.bytes();
    assert_eq!(peer.server.queued_bytes(), 10);
    let open = Flow { next_incoming_id: Some(1), incoming_window: 9, ..Flow::default() };
    peer.say(CHANNEL, Performative::Flow(open));
    let sent = transfers(&mut peer);
    assert_eq!((sent.len(), sent[0].0.handle), (1, 1));

    peer.say(CHANNEL, Performative::End(barid_amqp::frame::End::default()));
    peer.bytes();
    assert_eq!(peer.server.queued_bytes(), 0);
}

#[test]
fn a_drain_takes_the_credit_that_is_left() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 0);
    assert!(!peer.server.drained(link), "nobody has asked");
    let drain = Flow { drain: true, ..credit_for(0, 0, 10) };
    peer.say(CHANNEL, Performative::Flow(drain));
    assert_eq!(peer.event(), Event::Drain { link });
    for _ in 0..3 {
        peer.server.send(link, b"t", false, 0, &[b"m"]).unwrap();
    }
    peer.bytes();
    assert!(peer.server.drained(link));
    assert!(!peer.server.drained(link));
    let said = peer.said();
    let [Performative::Flow(flow)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((flow.handle, flow.drain), (Some(0), true));
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(10), Some(0)));
    assert_eq!(peer.server.credit(link), 0);

    // A drain without credit needs an answer, too.
    let drain = Flow { drain: true, ..credit_for(0, 10, 0) };
    peer.say(CHANNEL, Performative::Flow(drain));
    assert_eq!(peer.event(), Event::Drain { link });
    assert!(peer.server.drained(link));
    assert_eq!(peer.said().len(), 1);

    peer.say(CHANNEL, Performative::Flow(credit_for(0, 10, 4)));
    assert_eq!(peer.server.credit(link), 4);
}

#[test]
fn a_drain_does_not_overtake_messages() {
    let mut peer = Peer::with(Limits::default(), 512, 0);
    let link = peer.receiver(0, 0);
    let drain = Flow { drain: true, incoming_window: 0, ..credit_for(0, 0, 3) };
    peer.say(CHANNEL, Performative::Flow(drain));
    peer.server.send(link, b"1", true, 0, &[b"m"]).unwrap();
    assert!(peer.server.drained(link));
    assert_eq!(peer.said(), []);
    let open = Flow { next_incoming_id: Some(1), incoming_window: 9, ..Flow::default() };
    peer.say(CHANNEL, Performative::Flow(open));
    let said = peer.said();
    assert!(matches!(said[..], [Performative::Transfer(_), Performative::Flow(_)]), "{said:?}");
}

#[test]
fn a_link_tells_how_it_stands() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 5);
    peer.server.send(link, b"t", true, 0, &[]).unwrap();
    peer.bytes();
    let echo = Flow { echo: true, ..credit_for(0, 1, 5) };
    peer.say(CHANNEL, Performative::Flow(echo));
    let said = peer.said();
    let [Performative::Flow(flow)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(1), Some(5), false));
    assert_eq!(flow.next_outgoing_id, 2);
}

#[test]
fn unsettled_deliveries_have_a_bound() {
    let limits = Limits { max_unsettled: 2, ..Limits::default() };
    let mut peer = Peer::with(limits, 65_536, 100);
    let link = peer.receiver(0, 10);
    let other = peer.receiver(1, 1);
    let first = peer.server.send(link, b"1", false, 0, &[]).unwrap();
    peer.server.send(link, b"2", false, 0, &[]).unwrap();
    assert_eq!((peer.server.credit(link), peer.server.credit(other)), (0, 0));
    assert_eq!(peer.server.send(link, b"3", false, 0, &[]), Err(SendError::NoCredit));

    peer.server.settle_outgoing(first, None);
    assert_eq!(peer.events(), [Event::Credit { link }, Event::Credit { link: other }]);
    assert_eq!(peer.server.credit(link), 1);
    peer.server.send(link, b"3", false, 0, &[]).unwrap();
    peer.dispose(2, None, true, barid_amqp::DeliveryState::Released);
    let events = peer.events();
    assert!(matches!(events[0], Event::Disposition(_)));
    assert_eq!(events[1..], [Event::Credit { link }, Event::Credit { link: other }]);

    peer.server.send(link, b"4", false, 0, &[]).unwrap();
    peer.say(CHANNEL, Performative::Detach(Detach { handle: 0, closed: true, error: None }));
    let events = peer.events();
    assert!(events.contains(&Event::Credit { link: other }), "{events:?}");
    peer.attach(receiver(0));
}
