use barid_amqp::frame::{
    self, AMQP_HEADER, Close, Detach, Flow, Open, Performative, SASL_HEADER, Transfer,
};
use barid_amqp::{
    AttachAnswer, Connection, DeliveryState, Error, Event, Failure, Limits, LinkId, Role,
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
    for _ in 0..10 {
        assert_eq!(peer.server.receive(&bytes), Ok(length));
        assert_eq!(peer.server.receive(&bytes[length..]), Ok(0));
        assert_eq!(peer.events().len(), 5_000);
        bytes.drain(..length);
    }
}

/// A conversation that reaches everything.
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

/// Answers whatever comes.
struct Server {
    connection: Connection,
    /// Those that were asked for and are not yet reported as gone.
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
            Event::SaslInit { .. } => connection.sasl_outcome(true),
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

/// The frames of the server are frames.
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
            // The length stays, or all would end there.
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
