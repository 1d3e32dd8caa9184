use barid_amqp::frame::{End, Flow, Performative};
use barid_amqp::{Error, Event, Failure, Limits};

use crate::peer::{CHANNEL, Peer, begin, credit_for, receiver, transfer};

#[test]
fn many_sessions_live_on_one_connection() {
    let mut peer = Peer::new();
    let mut links = Vec::new();
    for channel in [0, 1, 200] {
        peer.say(channel, begin(10));
        peer.say(channel, Performative::Attach(Box::new(receiver(0))));
        let Event::Attach(request) = peer.event() else { panic!("no attach") };
        links.push((channel, request.link, request.session));
        peer.server.accept_attach(request.link, Default::default());
        peer.say(channel, Performative::Flow(credit_for(0, 0, 1)));
        peer.events();
        let said = peer.answers();
        assert!(said.iter().all(|(at, ..)| *at == channel), "{said:?}");
    }
    for (channel, link, _) in &links {
        peer.server.send(*link, b"t", true, 0, &[b"m"]).unwrap();
        assert_eq!(peer.answers()[0].0, *channel);
    }

    let (channel, link, _) = links[1];
    peer.say(channel, Performative::End(End::default()));
    assert_eq!(peer.event(), Event::Detached { link, closed: true, error: None });
    assert_eq!(peer.answers(), [(channel, Performative::End(End::default()), vec![])]);
    peer.say(channel, begin(10));
    peer.say(channel, Performative::Attach(Box::new(receiver(0))));
    let Event::Attach(request) = peer.event() else { panic!("no attach") };
    assert_ne!((request.link, request.session), (link, links[1].2));
}

#[test]
fn the_server_ends_a_session() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 10);
    let session = peer.attach(receiver(1)).session;
    let error = Some(Error::new("amqp:internal-error", "sorry"));
    assert!(peer.server.end_session(session, error.clone()));
    assert!(!peer.server.end_session(session, None));
    assert_eq!(peer.said(), [Performative::End(End { error })]);
    assert_eq!(peer.events().len(), 2);
    assert_eq!(peer.server.credit(link), 0);

    // Frames that the peer sends before it knows of the end.
    peer.say(CHANNEL, Performative::Attach(Box::new(receiver(2))));
    peer.say(CHANNEL, Performative::Transfer(transfer(9, 1)));
    peer.say(CHANNEL, Performative::Flow(Flow { echo: true, ..Flow::default() }));
    peer.say(CHANNEL, Performative::End(End::default()));
    assert_eq!((peer.events(), peer.said()), (vec![], vec![]));
    peer.say(CHANNEL, begin(10));
    assert!(matches!(peer.said()[..], [Performative::Begin(_)]));
}

#[test]
fn a_handle_without_a_link_ends_the_session() {
    let said: [Performative; 3] = [
        Performative::Transfer(transfer(9, 1)),
        Performative::Flow(credit_for(9, 0, 1)),
        Performative::Detach(barid_amqp::frame::Detach { handle: 9, closed: true, error: None }),
    ];
    for performative in said {
        let mut peer = Peer::new();
        let link = peer.receiver(0, 10);
        peer.say(CHANNEL, performative);
        ended(&mut peer, "amqp:session:unattached-handle");
        assert!(matches!(peer.event(), Event::Detached { link: gone, .. } if gone == link));
        assert!(!peer.server.is_closed());
    }
}

#[test]
fn a_handle_has_one_link() {
    let mut peer = Peer::new();
    peer.receiver(0, 10);
    peer.say(CHANNEL, Performative::Attach(Box::new(receiver(0))));
    ended(&mut peer, "amqp:session:handle-in-use");
}

fn ended(peer: &mut Peer, condition: &str) {
    let said = peer.said();
    let [Performative::End(End { error: Some(error) })] = &said[..] else { panic!("{said:?}") };
    assert_eq!(error.condition, condition);
}

#[test]
fn numbers_beyond_what_was_announced_close_the_connection() {
    let limits = Limits { handle_max: 3, channel_max: 5, ..Limits::default() };
    let mut peer = Peer::with(limits.clone(), 65_536, 100);
    peer.attach(receiver(3));
    let failure = peer.say_wrong(CHANNEL, Performative::Attach(Box::new(receiver(4))));
    assert_eq!(failure, Failure::OutOfBounds("the handle"));

    let mut peer = Peer::with(limits, 65_536, 100);
    peer.say(5, begin(1));
    assert_eq!(peer.say_wrong(6, begin(1)), Failure::OutOfBounds("the channel"));
}

#[test]
fn a_session_tells_how_it_stands() {
    let mut peer = Peer::new();
    peer.sender(0, 10);
    peer.send(0, 0, false, b"m");
    peer.send(0, 1, false, b"m");
    peer.say(CHANNEL, Performative::Flow(Flow { echo: true, ..Flow::default() }));
    let said = peer.said();
    let [Performative::Flow(flow)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((flow.next_incoming_id, flow.next_outgoing_id), (Some(2), 1));
    assert_eq!((flow.handle, flow.link_credit), (None, None));
}
