use std::time::Duration;

use barid_amqp::frame::{self, AMQP_HEADER, Body, Close, Open, Performative, SASL_HEADER, Sasl};
use barid_amqp::{Error, Event, Failure, Limits, SaslOutcome};

use crate::peer::{CHANNEL, Peer, begin, receiver};

fn sasl(sasl: &Sasl) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_sasl(&mut bytes, sasl);
    bytes
}

fn init(mechanism: &str, response: Option<&[u8]>) -> Vec<u8> {
    sasl(&Sasl::Init {
        mechanism: mechanism.into(),
        initial_response: response.map(Into::into),
        hostname: Some("localhost".into()),
    })
}

fn encoded(frames: &[(u16, Performative)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (channel, performative) in frames {
        frame::encode(&mut bytes, *channel, performative, &[]);
    }
    bytes
}

fn open() -> Performative {
    Performative::Open(Box::new(Open { idle_time_out: Some(60_000), ..Open::new("client") }))
}

#[test]
fn a_client_may_say_all_at_once() {
    let mut bytes = AMQP_HEADER.to_vec();
    bytes.extend(encoded(&[
        (0, open()),
        (CHANNEL, begin(100)),
        (CHANNEL, Performative::Attach(Box::new(receiver(7)))),
    ]));
    let mut peer = Peer::silent(Limits::default());
    peer.write(&bytes).unwrap();

    let events = peer.events();
    assert!(matches!(&events[0], Event::Opened(open) if open.container_id == "client"));
    assert!(matches!(&events[1], Event::Attach(request) if request.attach.handle == 7));
    assert_eq!(events.len(), 2);
    assert_eq!(peer.server.peer_idle_time_out(), Some(Duration::from_secs(60)));

    let answers = peer.answers();
    let Performative::Open(open) = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!((open.max_frame_size, open.channel_max), (65_536, 255));
    assert_eq!(open.idle_time_out, None);
    let (channel, Performative::Begin(begin), _) = &answers[1] else { panic!("{answers:?}") };
    assert_eq!((*channel, begin.remote_channel, begin.handle_max), (CHANNEL, Some(CHANNEL), 255));
    assert_eq!(answers.len(), 2, "the attach waits for its answer");
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut bytes = SASL_HEADER.to_vec();
    bytes.extend(init("ANONYMOUS", None));
    bytes.extend(AMQP_HEADER);
    bytes.extend(encoded(&[(0, open()), (CHANNEL, begin(100))]));

    let mut peer = Peer::silent(Limits::default());
    let (mut input, mut opened) = (Vec::new(), false);
    for (at, byte) in bytes.iter().enumerate() {
        input.push(*byte);
        let missing = peer.server.missing(&input);
        assert!(missing >= 1 && at + missing <= bytes.len() + 8);
        loop {
            let consumed = peer.server.receive(&input).unwrap();
            input.drain(..consumed);
            for event in peer.events() {
                match event {
                    Event::SaslInit { .. } => peer.server.sasl_outcome(SaslOutcome::Ok),
                    Event::Opened(_) => opened = true,
                    other => panic!("{other:?}"),
                }
            }
            if consumed == 0 {
                break;
            }
        }
    }
    assert!(opened && input.is_empty());
}

#[test]
fn what_is_missing_is_known() {
    let mut peer = Peer::silent(Limits::default());
    assert_eq!(peer.server.missing(&[]), 8);
    assert_eq!(peer.server.missing(b"AMQP\x00"), 3);
    peer.write(&AMQP_HEADER).unwrap();
    let frame = encoded(&[(0, open())]);
    assert_eq!(peer.server.missing(&frame[..2]), 6);
    assert_eq!(peer.server.missing(&frame[..10]), frame.len() - 10);
}

#[test]
fn mechanisms_are_offered_as_an_array() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    let bytes = peer.bytes();
    assert_eq!(bytes[..8], SASL_HEADER);
    let offered = ["MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL"].map(String::from).to_vec();
    let frame = frame::decode(&bytes[8..]).unwrap();
    assert_eq!(frame.body, Body::Sasl(Sasl::Mechanisms(offered)));
    assert_eq!(bytes[8 + 8..][..5], [0x00, 0x53, 0x40, 0xC0, bytes[20]]);
    assert_eq!(bytes[8 + 8 + 6], 0xE0, "not a single symbol");
}

#[test]
fn nothing_is_received_before_the_client_is_known() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    let mut bytes = init("PLAIN", Some(b"\0user\0key"));
    let init_length = bytes.len();
    bytes.extend(AMQP_HEADER);
    assert_eq!(peer.server.receive(&bytes), Ok(init_length));
    let mechanism = "PLAIN".into();
    let response = Some(b"\0user\0key".to_vec());
    assert_eq!(peer.event(), Event::SaslInit { mechanism, response });
    assert_eq!(peer.server.receive(&bytes[init_length..]), Ok(0));
    peer.bytes();

    peer.server.sasl_outcome(SaslOutcome::Ok);
    assert_eq!(peer.bytes(), sasl(&Sasl::Outcome { code: 0 }));
    assert_eq!(peer.server.receive(&bytes[init_length..]), Ok(8));
    assert_eq!(peer.bytes(), AMQP_HEADER);
    peer.server.sasl_outcome(SaslOutcome::Auth);
    assert!(!peer.server.is_closed(), "the question was answered");
}

#[test]
fn a_client_that_is_refused_is_told_so() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    peer.write(&init("PLAIN", None)).unwrap();
    peer.events();
    peer.bytes();
    peer.server.sasl_outcome(SaslOutcome::Auth);
    assert_eq!(peer.bytes(), sasl(&Sasl::Outcome { code: 1 }));
    assert_eq!(peer.event(), Event::Closed { error: None });
    assert!(peer.server.is_closed());
    peer.write(b"anything").unwrap();
    assert_eq!(peer.bytes(), []);
}

#[test]
fn a_client_that_cannot_be_judged_now_may_try_again() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    let mut bytes = init("PLAIN", Some(b"\0user\0password"));
    bytes.extend(AMQP_HEADER);
    assert_eq!(peer.server.receive(&bytes), Ok(bytes.len() - AMQP_HEADER.len()));
    peer.events();
    peer.bytes();
    // The outcome may take its time: nothing happens meanwhile, whatever the client says.
    peer.server.heartbeat();
    assert_eq!(peer.server.receive(&AMQP_HEADER), Ok(0));
    assert_eq!((peer.bytes(), peer.events()), (vec![], vec![]));
    peer.server.sasl_outcome(SaslOutcome::SysTemp);
    assert_eq!(peer.bytes(), sasl(&Sasl::Outcome { code: 4 }));
    assert_eq!(peer.event(), Event::Closed { error: None });
    peer.server.sasl_outcome(SaslOutcome::Ok);
    assert_eq!(peer.bytes(), [], "the question was answered");
}

#[test]
fn a_connection_may_be_closed_while_the_client_is_judged() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    peer.write(&init("PLAIN", Some(b"\0user\0password"))).unwrap();
    peer.events();
    peer.bytes();
    peer.server.close(Some(Error::new("amqp:connection:forced", "shutting down")));
    assert!(peer.server.is_closed());
    peer.server.sasl_outcome(SaslOutcome::Ok);
    assert_eq!(peer.bytes(), []);
}

#[test]
fn other_protocols_hear_which_one_is_spoken() {
    for header in [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / HT"] {
        let mut peer = Peer::silent(Limits::default());
        assert_eq!(peer.server.receive(header), Err(Failure::Header));
        assert_eq!(peer.bytes(), SASL_HEADER);
        assert!(peer.server.is_closed());
    }
    let mut peer = Peer::silent(Limits::default());
    peer.write(&SASL_HEADER).unwrap();
    peer.write(&init("ANONYMOUS", None)).unwrap();
    peer.server.sasl_outcome(SaslOutcome::Ok);
    peer.bytes();
    assert_eq!(peer.server.receive(&SASL_HEADER), Err(Failure::Header), "once is enough");
    assert_eq!(peer.bytes(), AMQP_HEADER);
}

#[test]
fn either_side_may_close() {
    let mut peer = Peer::new();
    let error = Some(Error::new("amqp:connection:forced", "enough"));
    peer.say(0, Performative::Close(Close { error: error.clone() }));
    assert_eq!(peer.said(), [Performative::Close(Close::default())]);
    assert_eq!(peer.event(), Event::Closed { error });
    assert!(peer.server.is_closed());

    let mut peer = Peer::new();
    let link = peer.receiver(0, 0);
    let error = Some(Error::new("amqp:connection:forced", "shutting down"));
    peer.server.close(error.clone());
    peer.server.close(None);
    assert_eq!(peer.said(), [Performative::Close(Close { error: error.clone() })]);
    assert_eq!(peer.event(), Event::Detached { link, closed: true, error });
    peer.say(CHANNEL, Performative::Attach(Box::new(receiver(1))));
    assert_eq!(peer.events(), [], "nothing else counts");
    assert!(!peer.server.is_closed());
    peer.say(0, Performative::Close(Close::default()));
    assert_eq!(peer.event(), Event::Closed { error: None });
    assert!(peer.server.is_closed());
    assert_eq!(peer.said(), []);
}

#[test]
fn a_close_before_the_peer_has_opened_opens_first() {
    let mut peer = Peer::silent(Limits::default());
    peer.write(&AMQP_HEADER).unwrap();
    peer.server.close(None);
    let said = peer.said();
    assert!(matches!(said[..], [Performative::Open(_), Performative::Close(_)]), "{said:?}");

    let mut peer = Peer::silent(Limits::default());
    peer.server.close(None);
    assert!(peer.server.is_closed());
    assert_eq!(peer.bytes(), []);
}

#[test]
fn a_peer_need_not_be_waited_for() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 0);
    let error = Error::new("amqp:connection:forced", "banned");
    peer.server.close_at_once(error.clone());
    assert!(peer.server.is_closed());
    assert_eq!(peer.said(), [Performative::Close(Close { error: Some(error.clone()) })]);
    let detached = Event::Detached { link, closed: true, error: Some(error.clone()) };
    assert_eq!(peer.events(), [detached, Event::Closed { error: Some(error) }]);
    peer.say(CHANNEL, Performative::Attach(Box::new(receiver(1))));
    assert_eq!((peer.events(), peer.said()), (vec![], vec![]));
}

#[test]
fn when_the_socket_is_gone_all_links_are() {
    let mut peer = Peer::new();
    let attached = peer.receiver(0, 10);
    let waiting = peer.attach(receiver(1)).link;
    let refused = peer.attach(receiver(2)).link;
    peer.server.refuse_attach(refused, Error::new("amqp:not-found", ""));
    peer.server.abort();
    assert_eq!(
        peer.events(),
        [
            Event::Detached { link: attached, closed: true, error: None },
            Event::Detached { link: waiting, closed: true, error: None },
            Event::Closed { error: None },
        ]
    );
    assert!(peer.server.is_closed());
    peer.server.abort();
    assert_eq!(peer.events(), []);
    assert_eq!(peer.bytes(), []);
}

#[test]
fn a_sign_of_life_is_an_empty_frame() {
    let mut peer = Peer::silent(Limits::default());
    peer.server.heartbeat();
    assert_eq!(peer.bytes(), [], "not before the connection is open");
    let mut peer = Peer::new();
    peer.server.heartbeat();
    let bytes = peer.bytes();
    assert_eq!(bytes, [0, 0, 0, 8, 2, 0, 0, 0]);
    peer.write(&bytes).unwrap();
    assert_eq!(peer.events(), []);
}
