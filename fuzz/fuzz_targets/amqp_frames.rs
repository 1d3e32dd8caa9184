//! Any input of an AMQP peer: the server does not panic, it writes only frames, and every requested link ends
//! exactly once. A decoded frame can be encoded, and decodes again to the same frame.

#![no_main]

use std::collections::BTreeSet;

use barid_amqp::frame::{self, Body};
use barid_amqp::{
    AttachAnswer, Connection, DeliveryState, Error, Event, Limits, LinkId, SaslOutcome,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(frame) = frame::decode(input)
        && let Body::Amqp(performative, payload) = frame.body
    {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, frame.channel, &performative, payload);
        let again = frame::decode(&bytes).expect("what is written is a frame");
        assert_eq!(again.body, Body::Amqp(performative, payload));
    }
    let mut server = Server::new();
    // The input follows the header, `open` and `begin`, so that inputs can be short.
    for bytes in [&frame::AMQP_HEADER[..], &OPEN, &BEGIN] {
        server.take(bytes);
    }
    server.take(input);
    server.connection.abort();
    server.take(&[]);
    assert!(server.links.is_empty(), "every link ends");
    assert_eq!(server.connection.queued_bytes(), 0);

    let mut server = Server::new();
    let mut taken = Vec::new();
    for piece in input.chunks(7) {
        taken.extend_from_slice(piece);
        let consumed = server.take(&taken);
        taken.drain(..consumed);
        assert!(server.connection.missing(&taken) > 0);
    }
});

/// `open` of the container `c`.
const OPEN: [u8; 17] = [0, 0, 0, 17, 2, 0, 0, 0, 0, 0x53, 0x10, 0xC0, 4, 1, 0xA1, 1, b'c'];
/// `begin` on channel 0 with narrow windows.
const BEGIN: [u8; 20] =
    [0, 0, 0, 20, 2, 0, 0, 0, 0, 0x53, 0x11, 0xC0, 7, 4, 0x40, 0x43, 0x52, 2, 0x52, 2];

/// A server that answers all events.
struct Server {
    connection: Connection,
    /// Links that were requested and are not reported as ended yet.
    links: BTreeSet<LinkId>,
}

impl Server {
    fn new() -> Self {
        let limits = Limits {
            handle_max: 7,
            channel_max: 3,
            max_links: 9,
            max_message_size: 100,
            max_unfinished: 150,
            max_unsettled: 5,
            ..Limits::default()
        };
        Self { connection: Connection::new("broker", limits), links: BTreeSet::new() }
    }

    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            let consumed = self.connection.receive(rest).unwrap_or(rest.len());
            taken += consumed;
            while let Some(event) = self.connection.next_event() {
                self.on_event(event);
            }
            self.check_output();
            if consumed == 0 {
                return taken;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let connection = &mut self.connection;
        match event {
            Event::SaslInit { mechanism, .. } => {
                connection.sasl_outcome(match mechanism.len() % 4 {
                    0 => SaslOutcome::Auth,
                    1 => SaslOutcome::SysTemp,
                    _ => SaslOutcome::Ok,
                })
            }
            Event::Attach(request) => {
                assert!(self.links.insert(request.link));
                match request.attach.handle % 4 {
                    0 => {
                        let refusal = Error::new("amqp:not-found", "");
                        if connection.refuse_attach(request.link, refusal) {
                            self.links.remove(&request.link);
                        }
                    }
                    1 => {} // it waits
                    _ => {
                        let filter = request.filter();
                        let answer = AttachAnswer { filter, credit: 5, ..AttachAnswer::default() };
                        connection.accept_attach(request.link, answer);
                    }
                }
            }
            Event::Delivery(delivery) => {
                assert!(delivery.message.len() <= 100);
                connection.settle_incoming(delivery.id, &DeliveryState::Accepted);
            }
            Event::Credit { link } | Event::Drain { link } => {
                for _ in 0..connection.credit(link) {
                    connection.send(link, b"tag", false, 0, &[&[0; 600]]).expect("credit");
                }
                connection.drained(link);
            }
            Event::Disposition(said) => {
                connection.settle_outgoing(said.delivery, said.state.as_deref());
            }
            Event::Detached { link, .. } => assert!(self.links.remove(&link)),
            Event::Opened(_) | Event::Closed { .. } => {}
        }
    }

    fn check_output(&mut self) {
        let bytes = std::mem::take(self.connection.output());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if rest.starts_with(b"AMQP") {
                rest = &rest[8..];
                continue;
            }
            let length = frame::length(rest).expect("a frame").expect("a whole frame");
            frame::decode(&rest[..length]).expect("what is written is a frame");
            rest = &rest[length..];
        }
    }
}
