use barid_amqp::frame::{
    self, AMQP_HEADER, Close, Detach, Flow, Open, Performative, SASL_HEADER, Transfer,
};
use barid_amqp::{
    AttachAnswer, Connection, DeliveryState, Error, Event, Failure, Limits, LinkId, Role,
    SaslOutcome,
};
use proptest::prelude::*;

use crate::peer::{CHANNEL, Peer, begin, credit_for, receiver, sender, transfer};

#[test]
fn frames_have_a_length() {
    let too_long = Failure::FrameTooLong { length: 65_537 };
    for (frame, failure) in [
        (&[0, 1, 0, 1][..], Some(too_long)),
        (&[0, 0, 0, 7, 2, 0, 0, 0], None),
        (&[0, 0, 0, 0], None),
        (&[0, 0, 0, 8, 1, 0, 0, 0], None),
        (&[0, 0, 0, 8, 3, 0, 0, 0], None),
        (&[0, 0, 0, 8, 2, 7, 0, 0], None),
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x40], None),
    ] {
        let mut peer = Peer::new();
        let link = peer.receiver(0, 10);
        let failed = peer.server.receive(frame).expect_err("it is no frame");
        assert!(failure.is_none_or(|failure| failure == failed), "{failed}");
        let said = peer.said();
        let [Performative::Close(Close { error: Some(error) })] = &said[..] else {
            panic!("{said:?}")
        };
        let condition =
            if failure.is_some() { "amqp:connection:framing-error" } else { "amqp:decode-error" };
        assert_eq!(error.condition, condition);
        let error = Some(error.clone());
        let detached = Event::Detached { link, closed: true, error: error.clone() };
        assert_eq!(peer.events(), [detached, Event::Closed { error }]);
        assert!(peer.server.is_closed());
        assert_eq!(peer.server.receive(frame), Ok(frame.len()), "nothing counts any more");
        assert_eq!(peer.bytes(), []);
    }
}

#[test]
fn frames_have_a_place() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&AMQP_HEADER).unwrap();
    assert!(matches!(peer.say_wrong(0, begin(1)), Failure::NotAllowed(_)));
    let said = peer.said();
    assert!(matches!(said[..], [Performative::Open(_), Performative::Close(_)]), "{said:?}");

    let again = Performative::Open(Box::new(Open::new("again")));
    assert!(matches!(Peer::new().say_wrong(0, again), Failure::NotAllowed(_)));
    assert!(matches!(Peer::new().say_wrong(CHANNEL, begin(1)), Failure::NotAllowed(_)));
    let elsewhere = Performative::Attach(Box::new(receiver(0)));
    assert!(matches!(Peer::new().say_wrong(CHANNEL + 1, elsewhere), Failure::NotAllowed(_)));
    let mut sasl = Vec::new();
    frame::encode_sasl(&mut sasl, &frame::Sasl::Response(vec![]));
    assert!(matches!(Peer::new().server.receive(&sasl), Err(Failure::NotAllowed(_))));
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    assert!(matches!(peer.server.receive(&sasl), Err(Failure::NotAllowed(_))));
}

#[test]
fn a_transfer_to_a_receiver_ends_the_session() {
    let mut peer = Peer::new();
    peer.receiver(0, 10);
    peer.send(0, 0, false, b"m");
    assert!(matches!(peer.said()[..], [Performative::End(_)]));
}

#[test]
fn few_bytes_are_not_many_events_at_once() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 5_000);
    for _ in 0..5_000 {
        peer.server.send(link, b"t", false, 0, &[]).unwrap();
    }
    peer.bytes();
    let mut bytes = Vec::new();
    for _ in 0..10 {
        let state = Some(DeliveryState::Accepted);
        let (role, first, last) = (Role::Receiver, 0, Some(10_000));
        let said = frame::Disposition { role, first, last, settled: false, state };
        frame::encode(&mut bytes, CHANNEL, &Performative::Disposition(said), &[]);
    }
    let length = bytes.len() / 10;
    for events in [5_000, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
        assert_eq!(peer.server.receive(&bytes), Ok(length));
        if events > 0 {
            assert_eq!(peer.server.receive(&bytes[length..]), Ok(0), "the events come first");
        }
        assert_eq!(peer.events().len(), events, "what was said is not told again");
        bytes.drain(..length);
    }
}

#[test]
fn short_frames_are_received_some_at_a_time() {
    let mut peer = Peer::new();
    let mut bytes = Vec::new();
    (0..1_000).for_each(|_| frame::encode_empty(&mut bytes));
    for consumed in [256, 256, 256, 232, 0] {
        assert_eq!(peer.server.receive(&bytes), Ok(consumed * frame::HEADER_SIZE));
        bytes.drain(..consumed * frame::HEADER_SIZE);
    }
}

fn refused(peer: &mut Peer) -> Error {
    let said = peer.said();
    let [Performative::Attach(_), Performative::Detach(Detach { error: Some(error), .. })] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    error.clone()
}

#[test]
fn refused_links_that_are_not_detached_close_the_connection() {
    let limits = Limits { max_links: 2, ..Limits::default() };
    let mut peer = Peer::with(limits, 65_536, 100);
    peer.attach(receiver(0));
    peer.attach(receiver(1));
    let attach = |handle| Performative::Attach(Box::new(receiver(handle)));
    for handle in [2, 3] {
        peer.say(CHANNEL, attach(handle));
        assert_eq!(refused(&mut peer).condition, "amqp:resource-limit-exceeded");
    }
    // A detached link makes room for another.
    peer.say(CHANNEL, Performative::Detach(Detach { handle: 2, closed: true, error: None }));
    peer.say(CHANNEL, attach(2));
    refused(&mut peer);
    assert_eq!(peer.say_wrong(CHANNEL, attach(4)), Failure::TooManyLinks);
    let said = peer.said();
    let [Performative::Close(Close { error: Some(error) })] = &said[..] else { panic!("{said:?}") };
    assert_eq!(error.condition, "amqp:resource-limit-exceeded");
}

#[test]
fn sessions_have_a_number() {
    let mut peer = Peer::with(Limits { max_sessions: 2, ..Limits::default() }, 65_536, 100);
    peer.say(CHANNEL + 1, begin(1));
    peer.say(CHANNEL + 1, Performative::End(frame::End::default()));
    peer.say(CHANNEL + 2, begin(1));
    assert_eq!(peer.say_wrong(CHANNEL + 1, begin(1)), Failure::TooManySessions);

    let mut peer = Peer::with(Limits { max_sessions: 1, ..Limits::default() }, 65_536, 100);
    peer.server.set_max_links(2, 1);
    peer.say(CHANNEL + 1, begin(1));
}

#[test]
fn names_and_addresses_of_links_have_a_length() {
    let long = "x".repeat(5_000);
    let attaches = [
        barid_amqp::frame::Attach { name: long.clone(), ..receiver(0) },
        barid_amqp::frame::Attach {
            source: Some(barid_amqp::Terminus::source(&long)),
            ..receiver(0)
        },
        barid_amqp::frame::Attach {
            target: Some(barid_amqp::Terminus::target(&long)),
            ..receiver(0)
        },
    ];
    for attach in attaches {
        let mut peer = Peer::new();
        peer.say(CHANNEL, Performative::Attach(Box::new(attach)));
        assert_eq!(refused(&mut peer).condition, "amqp:invalid-field");
        assert_eq!(peer.events(), []);
    }
}

#[test]
fn a_drain_waits_for_the_window_once() {
    let mut peer = Peer::with(Limits::default(), 65_536, 0);
    let link = peer.attach(receiver(0)).link;
    peer.server.accept_attach(link, AttachAnswer::default());
    let flow =
        |credit, window| Flow { drain: true, incoming_window: window, ..credit_for(0, 1, credit) };
    peer.say(CHANNEL, Performative::Flow(Flow { delivery_count: Some(0), ..flow(1, 0) }));
    peer.events();
    peer.server.send(link, b"t", true, 0, &[b"m"]).unwrap();
    for _ in 0..1_000 {
        peer.say(CHANNEL, Performative::Flow(flow(0, 0)));
        peer.events();
        peer.server.drained(link);
    }
    peer.bytes();
    peer.say(CHANNEL, Performative::Flow(Flow { handle: None, ..flow(0, 10) }));
    let said = peer.said();
    assert!(
        matches!(&said[..], [Performative::Transfer(_), Performative::Flow(_)]),
        "{} frames",
        said.len()
    );
}

#[test]
fn unsettled_deliveries_of_all_sessions_have_a_number() {
    let limits = Limits { max_unsettled_total: 4, ..Limits::default() };
    let mut peer = Peer::with(limits, 65_536, 100);
    let one = peer.receiver(0, 10);
    peer.say(9, begin(100));
    peer.say(9, Performative::Attach(Box::new(receiver(0))));
    let Event::Attach(request) = peer.event() else { panic!("no attach") };
    let other = request.link;
    peer.server.accept_attach(other, AttachAnswer::default());
    peer.say(9, Performative::Flow(credit_for(0, 0, 10)));
    peer.events();
    let sent: Vec<_> =
        (0..4).map(|_| peer.server.send(one, b"t", false, 0, &[]).unwrap()).collect();
    assert_eq!((peer.server.credit(one), peer.server.credit(other)), (0, 0));
    peer.server.settle_outgoing(sent[0], None);
    let events = peer.events();
    assert_eq!(events, [Event::Credit { link: one }, Event::Credit { link: other }]);
    assert_eq!(peer.server.credit(other), 1);
}

/// Returns frames that together reach every part of the server.
fn conversation() -> Vec<Vec<u8>> {
    let frame = |channel, performative, payload: &[u8]| {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, channel, &performative, payload);
        bytes
    };
    let disposition = |role, first, last, settled, state| {
        Performative::Disposition(frame::Disposition { role, first, last, settled, state })
    };
    let more = Transfer { more: true, ..transfer(2, 1) };
    let rejected = Error {
        info: barid_amqp::Fields::new().with("DeadLetterReason", "r"),
        ..Error::new("com.microsoft:dead-letter", "d")
    };
    vec![
        AMQP_HEADER.to_vec(),
        frame(0, Performative::Open(Box::new(Open::new("client"))), &[]),
        frame(1, begin(3), &[]),
        frame(1, Performative::Attach(Box::new(receiver(1))), &[]),
        frame(1, Performative::Attach(Box::new(sender(2))), &[]),
        frame(1, Performative::Flow(credit_for(1, 0, 10)), &[]),
        frame(1, Performative::Transfer(transfer(2, 0)), b"message"),
        frame(1, Performative::Transfer(more), b"mess"),
        frame(1, Performative::Transfer(transfer(2, 1)), b"age"),
        frame(
            1,
            disposition(Role::Receiver, 1, Some(2), false, Some(DeliveryState::Accepted)),
            &[],
        ),
        frame(
            1,
            disposition(
                Role::Receiver,
                3,
                None,
                false,
                Some(DeliveryState::Rejected(Some(Box::new(rejected)))),
            ),
            &[],
        ),
        frame(1, disposition(Role::Sender, 0, Some(9), true, None), &[]),
        frame(1, Performative::Flow(Flow { drain: true, ..credit_for(1, 3, 10) }), &[]),
        frame(1, Performative::Detach(Detach { handle: 1, closed: true, error: None }), &[]),
        frame(1, Performative::End(frame::End::default()), &[]),
        frame(0, Performative::Close(Close::default()), &[]),
    ]
}

/// A server that answers every event.
struct Server {
    connection: Connection,
    /// Links that were requested and have not been reported as gone.
    links: Vec<LinkId>,
}

impl Server {
    fn new() -> Self {
        Self { connection: Connection::new("broker", Limits::default()), links: Vec::new() }
    }

    fn take(&mut self, mut input: &[u8]) {
        loop {
            let consumed = self.connection.receive(input).unwrap_or(input.len());
            input = &input[consumed..];
            while let Some(event) = self.connection.next_event() {
                self.on_event(event);
            }
            if consumed == 0 {
                break;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let connection = &mut self.connection;
        match event {
            Event::SaslInit { .. } => connection.sasl_outcome(SaslOutcome::Ok),
            Event::Attach(request) => {
                self.links.push(request.link);
                let answer = AttachAnswer { credit: 5, ..AttachAnswer::default() };
                connection.accept_attach(request.link, answer);
            }
            Event::Delivery(delivery) => {
                connection.settle_incoming(delivery.id, &DeliveryState::Accepted);
            }
            Event::Credit { link } | Event::Drain { link } => {
                for _ in 0..connection.credit(link).min(3) {
                    connection.send(link, b"tag", false, 0, &[&[0; 600]]).expect("there is credit");
                }
                connection.drained(link);
            }
            Event::Disposition(said) => {
                connection.settle_outgoing(said.delivery, said.state.as_deref());
            }
            Event::Detached { link, .. } => {
                let place = self.links.iter().position(|known| *known == link);
                self.links.swap_remove(place.expect("it was asked for, and not gone"));
            }
            Event::Opened(_) | Event::Closed { .. } => {}
        }
    }
}

/// Checks that the output consists of well-formed frames.
fn check_output(connection: &mut Connection) {
    let bytes = std::mem::take(connection.output());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        if rest.starts_with(b"AMQP") {
            rest = &rest[8..];
            continue;
        }
        let length = frame::length(rest).expect("a frame").expect("a whole one");
        frame::decode(&rest[..length]).expect("the server writes AMQP");
        rest = &rest[length..];
    }
}

#[test]
fn the_conversation_is_one() {
    let mut server = Server::new();
    for frame in conversation() {
        server.take(&frame);
    }
    assert_eq!(server.links, []);
    assert!(server.connection.is_closed());
    assert!(server.connection.output().len() > 1_800, "three messages went out");
    check_output(&mut server.connection);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0..16usize,
    ) {
        let mut server = Server::new();
        server.take(&conversation()[..at].concat());
        let length = bytes.len() as u32 + 8;
        server.take(&[&length.to_be_bytes()[..], &[2, 0, 0, 1], &bytes].concat());
        check_output(&mut server.connection);
    }

    #[test]
    fn changed_frames_do_no_harm(
        changes in prop::collection::vec(
            (2..16usize, any::<prop::sample::Index>(), any::<u8>()),
            1..5,
        ),
        order in prop::collection::vec(3..16usize, 0..20),
        at_once in any::<bool>(),
    ) {
        let mut frames = conversation();
        for (frame, at, byte) in changes {
            // The length of a frame stays, otherwise the connection would end there.
            let frame = &mut frames[frame];
            let at = 4 + at.index(frame.len() - 4);
            frame[at] = byte;
        }
        let input: Vec<_> = (0..3).chain(order).map(|at| frames[at].clone()).collect();
        let mut server = Server::new();
        if at_once {
            server.take(&input.concat());
        } else {
            input.iter().for_each(|frame| server.take(frame));
        }
        check_output(&mut server.connection);
        server.connection.abort();
        server.take(&[]);
        prop_assert_eq!(server.links, [], "every link ends");
        prop_assert!(server.connection.is_closed());
        prop_assert_eq!(server.connection.queued_bytes(), 0);
    }
}
