use barid_amqp::frame::{Attach, Close, Detach, End, Flow, Performative};
use barid_amqp::message::{ValueRef, Writer};
use barid_amqp::{
    AttachAnswer, Error, Event, Fields, ReceiverSettles, Role, SenderSettles, Terminus,
};

use crate::peer::{CHANNEL, Peer, credit_for, receiver, sender};

const SESSION: &str = "com.microsoft:session-filter";

fn not_found() -> Error {
    Error::new("amqp:not-found", "The messaging entity 'sq' could not be found.")
}

fn detach(handle: u32, error: Option<Error>) -> Performative {
    Performative::Detach(Detach { handle, closed: true, error })
}

#[test]
fn an_answer_repeats_what_was_asked() {
    let mut peer = Peer::new();
    let filter = Fields::new().with(SESSION, "x");
    let asked = Terminus::source("amqps://localhost:5673/SQ/").with_filter(&filter);
    let request = peer.attach(Attach { source: Some(asked.clone()), ..receiver(4) });
    assert_eq!(request.address(), Some("amqps://localhost:5673/SQ/"));
    assert_eq!(request.filter(), Some(filter));
    assert!(!request.is_dynamic() && !request.is_to_coordinator());

    let properties = Fields::new().with("com.microsoft:locked-until-utc", 7i64);
    let answer = AttachAnswer { properties: properties.clone(), ..AttachAnswer::default() };
    assert!(peer.server.accept_attach(request.link, answer.clone()));
    assert!(!peer.server.accept_attach(request.link, answer), "once");
    assert!(!peer.server.refuse_attach(request.link, not_found()));
    let expected = Attach {
        name: "receiver-4".into(),
        handle: 4,
        role: Role::Sender,
        sender_settles: SenderSettles::Unsettled,
        receiver_settles: ReceiverSettles::Second,
        source: Some(asked),
        target: Some(Terminus::target("client")),
        initial_delivery_count: Some(0),
        max_message_size: Some(262_144),
        properties,
    };
    assert_eq!(peer.said(), [Performative::Attach(Box::new(expected))]);
    assert_eq!(peer.events(), []);
}

#[test]
fn a_filter_and_an_address_can_be_replaced() {
    let mut peer = Peer::new();
    let wanted = Terminus::source("").with_filter(&Fields::new().with(SESSION, ValueRef::Null));
    let request = peer.attach(Attach { source: Some(wanted.dynamic()), ..receiver(0) });
    assert!(request.is_dynamic());
    assert_eq!(request.filter().unwrap().get(SESSION), Some(ValueRef::Null));
    let granted = Fields::new().with(SESSION, "granted");
    let answer = AttachAnswer {
        address: Some("made".into()),
        filter: Some(granted.clone()),
        ..AttachAnswer::default()
    };
    peer.server.accept_attach(request.link, answer);
    let said = peer.said();
    let [Performative::Attach(attach)] = &said[..] else { panic!("{said:?}") };
    let source = attach.source.as_ref().unwrap();
    assert_eq!((source.address(), source.filter()), (Some("made"), Some(granted)));
    assert_eq!(attach.target.as_ref().unwrap().address(), Some("client"));
}

#[test]
fn an_attach_of_python_is_understood() {
    // The attach that pyamqp of azure-servicebus 7.15 writes for a session receiver.
    let bytes =
        hex("000000de02000003005312c0d10ea1026c315201560150005001005328c0510ba114616d7170733a\
         2f2f6c6f63616c686f73742f737143a30b73657373696f6e2d656e644356004040c12202a31c636f\
         6d2e6d6963726f736f66743a73657373696f6e2d66696c746572a10178404040005329c01c07a106\
         636c69656e7443a30b73657373696f6e2d656e6443560040404040408000000000001000004040c1\
         3d04a31b636f6d2e6d6963726f736f66743a72656365697665722d6e616d65a10172a315636f6d2e\
         6d6963726f736f66743a74696d656f7574700000ea60");
    let mut peer = Peer::new();
    peer.write(&bytes).unwrap();
    let Event::Attach(request) = peer.event() else { panic!("no attach") };
    assert_eq!(request.address(), Some("amqps://localhost/sq"));
    assert_eq!(request.filter(), Some(Fields::new().with(SESSION, "x")));
    assert_eq!(
        request.attach.properties.get("com.microsoft:timeout"),
        Some(ValueRef::Uint(60_000))
    );
    assert_eq!(request.attach.max_message_size, Some(1 << 20));
    assert_eq!(request.attach.role, Role::Receiver);
}

fn hex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

#[test]
fn described_filters_are_told_from_bare_ones() {
    let mut described = Vec::new();
    Writer::new(&mut described).described(0x0137_0000_000C, |value| value.value("x"));
    let described = ValueRef::parse(&described).unwrap();
    let filter = Fields::new().with("first", 1i32).with(SESSION, described).with("last", true);
    let source = Terminus::source("sq").with_filter(&filter);
    let request = Peer::new().attach(Attach { source: Some(source), ..receiver(0) });
    assert_eq!(request.filter(), Some(filter.clone()));
    let mut granted = filter;
    assert_eq!(granted.get(SESSION), Some(described));
    assert_eq!(described.undescribed(), ValueRef::String("x"));

    granted.insert(SESSION, "another");
    let entries: Vec<_> = granted.iter().map(|(key, value)| (key, value.undescribed())).collect();
    let another = ValueRef::String("another");
    let expected =
        [("first", ValueRef::Int(1)), (SESSION, another), ("last", ValueRef::Bool(true))];
    assert_eq!(entries, expected);
    assert_ne!(granted.get(SESSION), Some(another), "the descriptor stays");

    let source = Terminus::source("sq").with_filter(&Fields::new());
    let request = Peer::new().attach(Attach { source: Some(source), ..receiver(0) });
    assert_eq!(request.filter(), Some(Fields::new()), "an empty one is one");
    assert_eq!(Peer::new().attach(receiver(0)).filter(), None);
}

#[test]
fn a_coordinator_is_recognized() {
    let mut peer = Peer::new();
    let attach = Attach { target: Some(Terminus::coordinator()), ..sender(0) };
    let request = peer.attach(attach);
    assert!(request.is_to_coordinator());
    assert_eq!(request.address(), None);
}

#[test]
fn a_refusal_has_two_frames() {
    let mut peer = Peer::new();
    for (attach, count) in [(receiver(1), Some(0)), (sender(2), None)] {
        let (handle, role) = (attach.handle, attach.role);
        let link = peer.attach(attach).link;
        assert!(peer.server.refuse_attach(link, not_found()));
        assert!(!peer.server.refuse_attach(link, not_found()));
        assert!(!peer.server.accept_attach(link, AttachAnswer::default()));
        let said = peer.said();
        let [Performative::Attach(answer), second] = &said[..] else { panic!("{said:?}") };
        assert_eq!((answer.handle, answer.role), (handle, role.opposite()));
        assert_eq!((&answer.source, &answer.target), (&None, &None));
        assert_eq!(answer.initial_delivery_count, count);
        assert_eq!(*second, detach(handle, Some(not_found())));

        peer.say(CHANNEL, detach(handle, None));
        assert_eq!(peer.said(), [], "the peer's detach was an answer");
        assert_eq!(peer.events(), []);
        peer.attach(receiver(handle)); // the handle is free again
    }
}

#[test]
fn an_answer_may_come_late_while_others_go_on() {
    let mut peer = Peer::new();
    let waiting = peer.attach(receiver(0)).link;
    peer.say(CHANNEL, Performative::Flow(Flow { delivery_count: None, ..credit_for(0, 0, 5) }));
    assert_eq!(peer.events(), []);
    assert_eq!(peer.server.credit(waiting), 0);
    assert!(peer.server.send(waiting, b"t", true, 0, &[]).is_err());
    let other = peer.receiver(1, 3);
    assert_eq!(peer.server.credit(other), 3);

    assert!(peer.server.accept_attach(waiting, AttachAnswer::default()));
    assert_eq!(peer.event(), Event::Credit { link: waiting }, "what came before counts");
    assert_eq!(peer.server.credit(waiting), 5);
}

#[test]
fn a_drain_that_waits_for_the_answer_is_told() {
    let mut peer = Peer::new();
    let link = peer.attach(receiver(0)).link;
    peer.say(CHANNEL, Performative::Flow(Flow { drain: true, ..credit_for(0, 0, 5) }));
    peer.server.accept_attach(link, AttachAnswer::default());
    assert_eq!(peer.event(), Event::Drain { link });
}

#[test]
fn a_peer_that_no_longer_waits_gets_no_answer() {
    let ends: [(Performative, u16); 3] = [
        (detach(0, None), CHANNEL),
        (Performative::End(End::default()), CHANNEL),
        (Performative::Close(Close::default()), 0),
    ];
    for (end, channel) in ends {
        let mut peer = Peer::new();
        let link = peer.attach(receiver(0)).link;
        peer.say(channel, end.clone());
        let detached = Event::Detached { link, closed: true, error: None };
        assert_eq!(peer.events()[0], detached, "{end:?}");
        let said = peer.said();
        match &said[..] {
            // Some clients do not know a link before its attach.
            [Performative::Attach(attach), Performative::Detach(_)] => {
                assert!(attach.source.is_none() && attach.target.is_none());
            }
            [Performative::End(_) | Performative::Close(_)] => {}
            other => panic!("{other:?}"),
        }
        assert!(!peer.server.accept_attach(link, AttachAnswer::default()));
        assert!(!peer.server.refuse_attach(link, not_found()));
        assert!(!peer.server.detach(link, None));
        assert!(!peer.server.grant(link, 1));
        assert!(!peer.server.drained(link));
        assert_eq!(peer.said(), []);
        assert_eq!(peer.events(), []);
    }
}

#[test]
fn a_peer_detaches() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 10);
    let error = Some(Error {
        info: Fields::new().with("k", "v"),
        ..Error::new("com.example:tired", "I am")
    });
    let say = Detach { handle: 0, closed: false, error: error.clone() };
    peer.say(CHANNEL, Performative::Detach(say));
    assert_eq!(peer.event(), Event::Detached { link, closed: false, error });
    let answer = Detach { handle: 0, closed: false, error: None };
    assert_eq!(peer.said(), [Performative::Detach(answer)]);
    assert_eq!(peer.server.credit(link), 0);
}

#[test]
fn the_server_detaches() {
    let mut peer = Peer::new();
    let link = peer.receiver(0, 10);
    let other = peer.receiver(1, 10);
    let lost = Error::new("com.microsoft:session-lock-lost", "expired");
    peer.server.send(link, b"1", false, 0, &[b"m"]).unwrap();
    peer.bytes();
    assert!(peer.server.detach(link, Some(lost.clone())));
    assert!(!peer.server.detach(link, None));
    assert_eq!(peer.said(), [detach(0, Some(lost))]);
    assert!(peer.server.send(link, b"2", false, 0, &[b"m"]).is_err());

    // Frames that the peer sends before it knows of the detach.
    peer.say(CHANNEL, Performative::Flow(credit_for(0, 1, 10)));
    peer.dispose(1, None, false, barid_amqp::DeliveryState::Accepted);
    assert_eq!(peer.events(), [], "the caller ended the link itself");
    assert_eq!(peer.server.credit(other), 10);
    peer.say(CHANNEL, detach(0, None));
    assert_eq!((peer.events(), peer.said()), (vec![], vec![]));
    let again = peer.attach(receiver(0)).link;
    assert_ne!(again, link);
}

#[test]
fn there_are_not_too_many_links() {
    let limits = barid_amqp::Limits { max_links: 2, ..barid_amqp::Limits::default() };
    let mut peer = Peer::with(limits, 65_536, 100);
    peer.receiver(0, 0);
    peer.receiver(1, 0);
    peer.say(CHANNEL, Performative::Attach(Box::new(receiver(2))));
    assert_eq!(peer.events(), []);
    let said = peer.said();
    let [Performative::Attach(_), Performative::Detach(Detach { error: Some(error), .. })] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(error.condition, "amqp:resource-limit-exceeded");
    peer.say(CHANNEL, detach(2, None));
    peer.say(CHANNEL, detach(0, None));
    peer.events();
    peer.attach(receiver(2));
}
