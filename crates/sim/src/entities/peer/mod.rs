//! A client's end of an AMQP connection: encodes the client's packets as frames, and decodes the broker's
//! frames to packets.
//!
//! Its state changes when a packet arrives at the broker or leaves it, not when the client sends or receives
//! the packet.

mod requests;

use std::collections::{BTreeMap, BTreeSet};

use barid_amqp::frame::{
    self, AMQP_HEADER, Attach, Begin, Body, DeliveryState, Detach, Disposition, Flow, Modified,
    Open, Performative, ReceiverSettles, Role, SASL_HEADER, Sasl, SenderSettles, Terminus,
    Transfer as TransferFrame,
};
use barid_amqp::message::{Builder, Field, Sections, ValueRef};
use barid_amqp::{Error, Fields};
use barid_core::entity::Refusal;

use self::requests::Requests;
use crate::packets::entities::{
    ENTITIES, EntityId, Handle, How, MessageNumber, PLAIN, Packet, SESSIONS, SessionId, Source,
    Token, Transfer,
};
use crate::process::KEY;

/// Window of the AMQP session, in frames, and credit of the links for responses: more than a history needs.
const PLENTY: u32 = 1 << 20;

const SESSION_FILTER: &str = "com.microsoft:session-filter";
const TIMEOUT: &str = "com.microsoft:timeout";
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// The client's end of a connection.
#[derive(Default)]
pub struct Peer {
    next: Next,
    /// Number of transfer frames that have arrived.
    received: u32,
    /// Number of transfer frames sent. It is also the next delivery-id, because each delivery has one frame.
    sent: u32,
    /// Messages that were sent and not answered yet, by delivery-id.
    unanswered: BTreeMap<u32, MessageNumber>,
    requests: Requests,
    /// Links by the client's handle.
    links: BTreeMap<u32, Link>,
    /// Unsettled deliveries, by delivery-id.
    unsettled: BTreeMap<u32, (Handle, Token)>,
    /// Bytes to send before anything else.
    due: Vec<u8>,
}

/// The next input from the broker.
#[derive(Clone, Copy, Default, PartialEq)]
enum Next {
    #[default]
    SaslHeader,
    Sasl,
    AmqpHeader,
    Frames,
}

/// A link.
struct Link {
    /// The broker's handle; `None` until the broker attaches.
    output: Option<u32>,
    is_closing: bool,
    what: What,
}

enum What {
    Sender,
    Requests,
    Responses,
    Receiver(Receiver),
}

struct Receiver {
    handle: Handle,
    entity: EntityId,
    deletes: bool,
    session: Option<SessionId>,
    delivery_count: u32,
    credit: u32,
    /// Lock tokens of messages that were received by a request, and are settled by one.
    requested: BTreeSet<Token>,
}

impl Peer {
    /// Appends the bytes of a client's packet to `out`.
    pub fn encode(&mut self, packet: Packet, out: &mut Vec<u8>) {
        out.append(&mut self.due);
        match packet {
            Packet::Open => self.open(out),
            Packet::Send(entity, session, message, None) => {
                let bytes = encode_message(entity, session, message, None);
                self.unanswered.insert(self.sent, message);
                self.transfer(sender(entity), false, &bytes, out);
            }
            Packet::Send(entity, session, message, Some(at)) => {
                let bytes = encode_message(entity, session, message, Some(at));
                self.schedule(entity, message, &bytes, out);
            }
            Packet::Cancel(entity, message, number) => self.cancel(entity, message, number, out),
            Packet::Attach(handle, entity, source, deletes) => {
                self.attach(handle, entity, source, deletes, out);
            }
            Packet::Detach(handle) => {
                let Some((input, link)) = self.link_of(handle) else { return };
                link.is_closing = true;
                detach(input, out);
            }
            Packet::Flow(handle, credit) => self.flow(handle, credit, out),
            Packet::Settle(handle, token, how) => self.settle(handle, token, how, out),
            Packet::ReceiveDeferred(handle, number) => self.receive_deferred(handle, number, out),
            Packet::Renew(handle) => self.renew(handle, out),
            Packet::SetState(handle, note) => self.set_state(handle, note, out),
            Packet::GetState(handle) => self.get_state(handle, out),
            _ => unreachable!("a client sends no such packet"),
        }
    }

    /// Decodes the first frame, or protocol header, in `bytes`. Returns its packets and its length, or `None`
    /// if it is incomplete.
    pub fn decode(&mut self, bytes: &[u8]) -> Option<(Vec<Packet>, usize)> {
        if matches!(self.next, Next::SaslHeader | Next::AmqpHeader) {
            let header = bytes.first_chunk()?;
            let is_sasl = self.next == Next::SaslHeader;
            assert_eq!(*header, if is_sasl { SASL_HEADER } else { AMQP_HEADER });
            self.next = if is_sasl { Next::Sasl } else { Next::Frames };
            return Some((Vec::new(), header.len()));
        }
        let len = frame::length(bytes).expect("the broker sends frames")?;
        let frame = frame::decode(bytes.get(..len)?).expect("the broker sends frames");
        let mut packets = Vec::new();
        match frame.body {
            Body::Empty | Body::Sasl(Sasl::Mechanisms(_)) => {}
            Body::Sasl(outcome) => {
                assert_eq!(outcome, Sasl::Outcome { code: 0 });
                self.next = Next::AmqpHeader;
            }
            Body::Amqp(performative, payload) => self.hear(performative, payload, &mut packets),
        }
        Some((packets, len))
    }

    fn hear(&mut self, performative: Performative, payload: &[u8], packets: &mut Vec<Packet>) {
        match performative {
            Performative::Open(_) | Performative::Begin(_) | Performative::Flow(_) => {}
            Performative::Attach(attach) => packets.extend(self.attached(&attach)),
            Performative::Transfer(transfer) => self.transferred(&transfer, payload, packets),
            Performative::Disposition(disposition) => self.disposed(&disposition, packets),
            Performative::Detach(detach) => packets.extend(self.detached(&detach)),
            Performative::End(_) | Performative::Close(_) => packets.push(Packet::Closed),
        }
    }

    /// Appends everything that precedes the links of receivers: SASL, `open`, `begin`, and three links for each
    /// entity.
    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SASL_HEADER);
        let response = format!("\0{KEY}\0{KEY}");
        let init = Sasl::Init {
            mechanism: "PLAIN".into(),
            initial_response: Some(response.into()),
            hostname: None,
        };
        frame::encode_sasl(out, &init);
        out.extend_from_slice(&AMQP_HEADER);
        frame::encode(out, 0, &Performative::Open(Box::new(Open::new("simulated"))), &[]);
        let begin = Begin {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: PLENTY,
            outgoing_window: PLENTY,
            handle_max: u32::MAX,
            properties: Fields::default(),
        };
        frame::encode(out, 0, &Performative::Begin(Box::new(begin)), &[]);
        for (entity, path) in ENTITIES.iter().enumerate() {
            let management = format!("{path}/$management");
            let here = reply_to(entity);
            let all = [
                (sender(entity), What::Sender, Role::Sender, (&here[..], *path)),
                (requests(entity), What::Requests, Role::Sender, (&here, &management)),
                (responses(entity), What::Responses, Role::Receiver, (&management, &here)),
            ];
            for (input, what, role, (from, to)) in all {
                let (source, target) = (Terminus::source(from), Terminus::target(to));
                let modes = (SenderSettles::Mixed, ReceiverSettles::First);
                attach(input, role, source, target, modes, Fields::new(), out);
                self.links.insert(input, Link { output: None, is_closing: false, what });
            }
            self.give_credit(responses(entity), (0, PLENTY), out);
        }
    }

    fn attach(
        &mut self,
        handle: Handle,
        entity: EntityId,
        source: Source,
        deletes: bool,
        out: &mut Vec<u8>,
    ) {
        let free = (3 * entities()..).find(|input| !self.links.contains_key(input));
        let input = free.expect("not all are taken");
        let path = ENTITIES[entity];
        let filtered = |value: ValueRef<'_>| {
            Terminus::source(path).with_filter(&Fields::new().with(SESSION_FILTER, value))
        };
        let mut properties = Fields::new();
        let source = match source {
            Source::Session(session) => filtered(ValueRef::String(SESSIONS[session])),
            Source::Next(wait) => {
                let wait = u32::try_from(wait).expect("nobody waits for long");
                properties = properties.with(TIMEOUT, wait);
                filtered(ValueRef::Null)
            }
            Source::Messages => Terminus::source(path),
            Source::DeadLetters => Terminus::source(&format!("{path}/$deadletterqueue")),
        };
        let modes = match deletes {
            true => (SenderSettles::Settled, ReceiverSettles::First),
            false => (SenderSettles::Unsettled, ReceiverSettles::Second),
        };
        let target = Terminus::target(&name(handle));
        attach_as(&name(handle), input, Role::Receiver, source, target, modes, properties, out);
        let receiver = Receiver {
            handle,
            entity,
            deletes,
            session: None,
            delivery_count: 0,
            credit: 0,
            requested: BTreeSet::new(),
        };
        let what = What::Receiver(receiver);
        self.links.insert(input, Link { output: None, is_closing: false, what });
    }

    fn flow(&mut self, handle: Handle, credit: usize, out: &mut Vec<u8>) {
        let Some((input, Link { what: What::Receiver(receiver), .. })) = self.link_of(handle)
        else {
            return;
        };
        receiver.credit += u32::try_from(credit).expect("it is little");
        let flow = (receiver.delivery_count, receiver.credit);
        self.give_credit(input, flow, out);
    }

    fn give_credit(&self, handle: u32, (delivery_count, credit): (u32, u32), out: &mut Vec<u8>) {
        let flow = Flow {
            next_incoming_id: Some(self.received),
            incoming_window: PLENTY,
            next_outgoing_id: self.sent,
            outgoing_window: PLENTY,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(credit),
            ..Flow::default()
        };
        frame::encode(out, 0, &Performative::Flow(flow), &[]);
    }

    /// Sends a message on a link.
    fn transfer(&mut self, input: u32, settled: bool, message: &[u8], out: &mut Vec<u8>) {
        let tag = self.sent.to_be_bytes();
        let transfer = TransferFrame {
            handle: input,
            delivery_id: Some(self.sent),
            tag: Some(tag[..].try_into().expect("it is short")),
            message_format: Some(0),
            settled: Some(settled),
            ..TransferFrame::default()
        };
        self.sent += 1;
        frame::encode(out, 0, &Performative::Transfer(transfer), message);
    }

    fn settle(&mut self, handle: Handle, token: Token, how: How, out: &mut Vec<u8>) {
        if self.link_of(handle).is_none() {
            return;
        }
        let of = |(_, unsettled): &(&u32, &(Handle, Token))| **unsettled == (handle, token);
        let Some(delivery) = self.unsettled.iter().find(of).map(|(delivery, _)| *delivery) else {
            self.settle_by_request(handle, token, how, out);
            return;
        };
        let state = match how {
            How::Complete => DeliveryState::Accepted,
            How::Release => DeliveryState::Released,
            How::DeadLetter => DeliveryState::Rejected(None),
            How::Abandon | How::Defer => DeliveryState::Modified(Modified {
                undeliverable_here: how == How::Defer,
                ..Modified::default()
            }),
        };
        let settled = how == How::Release;
        if settled {
            self.unsettled.remove(&delivery);
        }
        let disposition = Disposition {
            role: Role::Receiver,
            first: delivery,
            last: None,
            settled,
            state: Some(state),
        };
        frame::encode(out, 0, &Performative::Disposition(disposition), &[]);
    }

    fn attached(&mut self, attach: &Attach) -> Option<Packet> {
        let handle = attach.name.strip_prefix('r').and_then(|handle| handle.parse().ok());
        let Some(handle) = handle else {
            let input = attach.name.parse().expect("links have the names of their handles");
            self.links.get_mut(&input)?.output = Some(attach.handle);
            return None;
        };
        let (_, link) = self.link_of(handle)?;
        link.output = Some(attach.handle);
        let What::Receiver(receiver) = &mut link.what else { return None };
        // Without a source the link is refused, and a detach follows.
        let source = attach.source.as_ref()?;
        receiver.delivery_count = attach.initial_delivery_count.expect("the broker says it");
        let filter = source.filter();
        let session = filter.as_ref().and_then(|filter| filter.get(SESSION_FILTER)?.text());
        let held = session.map(|session| {
            let session = SESSIONS.iter().position(|known| *known == session);
            let until = attach.properties.get(LOCKED_UNTIL).and_then(|ticks| ticks.integer());
            (session.expect("one of ours"), millis(until.expect("a session is locked")))
        });
        receiver.session = held.map(|(session, _)| session);
        Some(Packet::Attached(handle, held))
    }

    fn detached(&mut self, frame: &Detach) -> Option<Packet> {
        let mut links = self.links.iter();
        let (input, _) = links.find(|(_, link)| link.output == Some(frame.handle))?;
        let input = *input;
        let link = self.links.remove(&input).expect("it was just found");
        let What::Receiver(receiver) = link.what else { return Some(Packet::Closed) };
        self.unsettled.retain(|_, (handle, _)| *handle != receiver.handle);
        if link.is_closing {
            return None;
        }
        detach(input, &mut self.due);
        Some(Packet::Detached(receiver.handle))
    }

    fn transferred(&mut self, frame: &TransferFrame, payload: &[u8], packets: &mut Vec<Packet>) {
        assert!(!frame.more, "messages are short");
        self.received += 1;
        let mut links = self.links.values_mut();
        let link = links.find(|link| link.output == Some(frame.handle));
        match &mut link.expect("a link has been attached").what {
            What::Receiver(receiver) => {
                receiver.credit -= 1;
                receiver.delivery_count += 1;
                let transfer = match receiver.deletes {
                    true => decode_message(payload, 0),
                    false => decode_message(payload, token_of(frame.tag.as_ref())),
                };
                if !receiver.deletes {
                    let delivery = frame.delivery_id.expect("it is the first frame");
                    self.unsettled.insert(delivery, (receiver.handle, transfer.token));
                }
                packets.push(Packet::Transfer(receiver.handle, transfer));
            }
            _ => self.respond(payload, packets),
        }
    }

    fn disposed(&mut self, disposition: &Disposition, packets: &mut Vec<Packet>) {
        for delivery in disposition.first..=disposition.last.unwrap_or(disposition.first) {
            if disposition.role == Role::Receiver {
                let message = self.unanswered.remove(&delivery);
                packets.extend(message.map(|message| match &disposition.state {
                    Some(DeliveryState::Accepted) => Packet::Accepted(message, None),
                    Some(DeliveryState::Rejected(_)) => Packet::Refused(message),
                    other => panic!("m{message} is answered by {other:?}"),
                }));
            } else if let Some((handle, token)) = self.unsettled.remove(&delivery) {
                let result = match &disposition.state {
                    Some(DeliveryState::Rejected(Some(error))) => Err(refusal(error)),
                    _ => Ok(()),
                };
                packets.push(Packet::Settled(handle, token, result));
            }
        }
    }

    /// Returns the link of a receiver with the client's handle, unless the link has ended or is closing.
    fn link_of(&mut self, handle: Handle) -> Option<(u32, &mut Link)> {
        let of = |link: &Link| match &link.what {
            What::Receiver(receiver) => receiver.handle == handle && !link.is_closing,
            _ => false,
        };
        self.links.iter_mut().find(|(_, link)| of(link)).map(|(input, link)| (*input, link))
    }
}

fn entities() -> u32 {
    u32::try_from(ENTITIES.len()).expect("there are few")
}

/// The client's handles of the three links for each entity: `sender`, `requests` and `responses`.
fn sender(entity: EntityId) -> u32 {
    u32::try_from(entity).expect("there are few")
}

fn requests(entity: EntityId) -> u32 {
    entities() + sender(entity)
}

fn responses(entity: EntityId) -> u32 {
    2 * entities() + sender(entity)
}

/// Returns the address for the responses of an entity.
fn reply_to(entity: EntityId) -> String {
    format!("replies of {}", ENTITIES[entity])
}

/// Returns the name of a receiver's link.
fn name(handle: Handle) -> String {
    format!("r{handle}")
}

fn attach(
    input: u32,
    role: Role,
    source: Terminus,
    target: Terminus,
    modes: (SenderSettles, ReceiverSettles),
    properties: Fields,
    out: &mut Vec<u8>,
) {
    attach_as(&input.to_string(), input, role, source, target, modes, properties, out);
}

#[expect(clippy::too_many_arguments, reason = "they are the fields of the frame")]
fn attach_as(
    name: &str,
    handle: u32,
    role: Role,
    source: Terminus,
    target: Terminus,
    (sender_settles, receiver_settles): (SenderSettles, ReceiverSettles),
    properties: Fields,
    out: &mut Vec<u8>,
) {
    let attach = Attach {
        name: name.into(),
        handle,
        role,
        sender_settles,
        receiver_settles,
        source: Some(source),
        target: Some(target),
        initial_delivery_count: (role == Role::Sender).then_some(0),
        max_message_size: None,
        properties,
    };
    frame::encode(out, 0, &Performative::Attach(Box::new(attach)), &[]);
}

fn detach(handle: u32, out: &mut Vec<u8>) {
    let detach = Detach { handle, closed: true, error: None };
    frame::encode(out, 0, &Performative::Detach(detach), &[]);
}

fn encode_message(
    entity: EntityId,
    session: SessionId,
    message: MessageNumber,
    at: Option<u64>,
) -> Vec<u8> {
    let id = message.to_string();
    let mut builder = Builder::new();
    builder.property(Field::MessageId, ValueRef::String(&id));
    if entity < PLAIN {
        builder.property(Field::GroupId, ValueRef::String(SESSIONS[session]));
    }
    if let Some(at) = at {
        let at = i64::try_from(at).expect("it is not far away");
        builder.annotation("x-opt-scheduled-enqueue-time", ValueRef::Timestamp(at));
    }
    let mut bytes = Vec::new();
    builder.data(id.as_bytes(), &mut bytes);
    bytes
}

fn decode_message(bytes: &[u8], token: Token) -> Transfer {
    let sections = Sections::split(bytes).expect("a message comes as it was sent");
    let payload = sections.payload().expect("a message has a body");
    let message = std::str::from_utf8(&payload).expect("bodies are numbers");
    let annotation = |name| sections.annotations().get(name);
    let number = annotation("x-opt-sequence-number").and_then(|number| number.integer());
    let until = annotation("x-opt-locked-until").and_then(|until| until.timestamp());
    let state = annotation("x-opt-message-state").and_then(|state| state.integer());
    let whole = |number: i64| u64::try_from(number).expect("it is positive");
    Transfer {
        message: message.parse().expect("bodies are numbers"),
        number: number.map(whole).expect("a message has a number"),
        token,
        count: sections.header().delivery_count,
        until: until.map(whole).unwrap_or_default(),
        deferred: state == Some(1),
    }
}

/// Returns the lock token that a delivery tag holds: a GUID in the byte order of .NET.
fn token_of(tag: Option<&frame::Tag>) -> Token {
    let tag = tag.expect("a delivery has a tag");
    let mut guid: [u8; 16] = tag[..].try_into().expect("tags are lock tokens");
    guid[..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    Token::from_be_bytes(guid)
}

/// Converts .NET ticks (units of 100 ns since the year 1) to milliseconds since 1970.
fn millis(ticks: i64) -> u64 {
    const EPOCH: i64 = 621_355_968_000_000_000;
    u64::try_from((ticks - EPOCH) / 10_000).expect("it is later")
}

fn refusal(error: &Error) -> Refusal {
    refusal_of(&error.condition)
}

fn refusal_of(condition: &str) -> Refusal {
    match condition {
        "com.microsoft:message-lock-lost" => Refusal::MessageLockLost,
        "com.microsoft:session-lock-lost" => Refusal::SessionLockLost,
        other => panic!("nobody is refused for {other}"),
    }
}
