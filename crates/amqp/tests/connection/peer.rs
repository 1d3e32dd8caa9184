use barid_amqp::frame::{
    self, AMQP_HEADER, Attach, Begin, Body, Flow, Open, Performative, SASL_HEADER, Transfer,
};
use barid_amqp::{
    AttachAnswer, AttachRequest, Connection, DeliveryState, Event, Failure, Fields, Limits, LinkId,
    ReceiverSettles, Role, SenderSettles, Tag, Terminus,
};

/// Channel of the session in most tests; not 0, so that nothing works by accident.
pub const CHANNEL: u16 = 3;

/// A client that can write any bytes, and the server side that receives them.
pub struct Peer {
    pub server: Connection,
}

/// A frame of the server: its channel, its performative, and its payload.
pub type Answer = (u16, Performative, Vec<u8>);

impl Peer {
    /// Creates a connection on which nothing has been sent.
    pub fn silent(limits: Limits) -> Self {
        Self { server: Connection::new("broker", limits) }
    }

    /// Creates an open connection with a session.
    pub fn new() -> Self {
        Self::with(Limits::default(), 65_536, 1_000)
    }

    /// Creates an open connection with a session, for a client with these bounds.
    pub fn with(limits: Limits, max_frame_size: u32, window: u32) -> Self {
        let mut peer = Self::silent(limits);
        peer.write(&AMQP_HEADER).expect("the header");
        peer.say(0, Performative::Open(Box::new(Open { max_frame_size, ..Open::new("client") })));
        peer.say(CHANNEL, begin(window));
        peer.events();
        assert_eq!(peer.bytes()[..8], AMQP_HEADER);
        peer
    }

    /// Gives bytes to the server, which must consume all of them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let consumed = self.server.receive(bytes)?;
        assert_eq!(consumed, bytes.len());
        Ok(())
    }

    pub fn say(&mut self, channel: u16, performative: Performative) {
        self.say_with(channel, performative, &[]);
    }

    pub fn say_with(&mut self, channel: u16, performative: Performative, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, channel, &performative, payload);
        self.write(&bytes).expect("a good frame");
    }

    /// Sends a frame that the server must not accept, and returns the failure.
    pub fn say_wrong(&mut self, channel: u16, performative: Performative) -> Failure {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, channel, &performative, &[]);
        self.server.receive(&bytes).expect_err("a frame that must not come")
    }

    /// Takes all events since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.next_event()).collect()
    }

    /// Takes the only event since the last call.
    pub fn event(&mut self) -> Event {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Takes the bytes that the server has written since the last call.
    pub fn bytes(&mut self) -> Vec<u8> {
        std::mem::take(self.server.output())
    }

    /// Takes the frames that the server has written since the last call, without protocol headers.
    pub fn answers(&mut self) -> Vec<Answer> {
        let bytes = self.bytes();
        let mut rest = &bytes[..];
        let mut answers = Vec::new();
        while !rest.is_empty() {
            if rest.starts_with(&AMQP_HEADER) || rest.starts_with(&SASL_HEADER) {
                rest = &rest[8..];
                continue;
            }
            let length = frame::length(rest).unwrap().expect("a frame");
            let frame = frame::decode(&rest[..length]).expect("the server writes AMQP");
            match frame.body {
                Body::Amqp(performative, payload) => {
                    answers.push((frame.channel, performative, payload.to_vec()));
                }
                other => panic!("{other:?}"),
            }
            rest = &rest[length..];
        }
        answers
    }

    /// Takes the performatives of the server's frames since the last call.
    pub fn said(&mut self) -> Vec<Performative> {
        let answers = self.answers();
        answers.into_iter().map(|(_, performative, _)| performative).collect()
    }

    /// Asks for a link.
    pub fn attach(&mut self, attach: Attach) -> Box<AttachRequest> {
        self.say(CHANNEL, Performative::Attach(Box::new(attach)));
        match self.event() {
            Event::Attach(request) => request,
            other => panic!("{other:?}"),
        }
    }

    /// Attaches a link on which the peer receives, with this credit.
    pub fn receiver(&mut self, handle: u32, credit: u32) -> LinkId {
        let link = self.attach(receiver(handle)).link;
        assert!(self.server.accept_attach(link, AttachAnswer::default()));
        if credit > 0 {
            self.say(CHANNEL, Performative::Flow(credit_for(handle, 0, credit)));
        }
        self.events();
        self.bytes();
        link
    }

    /// Attaches a link on which the peer sends, with this window.
    pub fn sender(&mut self, handle: u32, credit: u32) -> LinkId {
        let link = self.attach(sender(handle)).link;
        let answer = AttachAnswer { credit, ..AttachAnswer::default() };
        assert!(self.server.accept_attach(link, answer));
        self.events();
        self.bytes();
        link
    }

    /// Sends a message in one frame.
    pub fn send(&mut self, handle: u32, id: u32, settled: bool, message: &[u8]) {
        let transfer = Transfer { settled: Some(settled), ..transfer(handle, id) };
        self.say_with(CHANNEL, Performative::Transfer(transfer), message);
    }

    /// Reports the state of deliveries.
    pub fn dispose(&mut self, first: u32, last: Option<u32>, settled: bool, state: DeliveryState) {
        let (role, state) = (Role::Receiver, Some(state));
        let disposition = frame::Disposition { role, first, last, settled, state };
        self.say(CHANNEL, Performative::Disposition(disposition));
    }
}

pub fn begin(incoming_window: u32) -> Performative {
    Performative::Begin(Box::new(Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window,
        outgoing_window: 1_000,
        handle_max: u32::MAX,
        properties: Fields::new(),
    }))
}

/// Builds the attach of a client that wants messages in peek-lock mode.
pub fn receiver(handle: u32) -> Attach {
    Attach {
        name: format!("receiver-{handle}"),
        handle,
        role: Role::Receiver,
        sender_settles: SenderSettles::Unsettled,
        receiver_settles: ReceiverSettles::Second,
        source: Some(Terminus::source("amqps://localhost/sq")),
        target: Some(Terminus::target("client")),
        initial_delivery_count: None,
        max_message_size: Some(1 << 20),
        properties: Fields::new(),
    }
}

pub fn sender(handle: u32) -> Attach {
    Attach {
        name: format!("sender-{handle}"),
        role: Role::Sender,
        source: Some(Terminus::source("client")),
        target: Some(Terminus::target("sq")),
        receiver_settles: ReceiverSettles::First,
        initial_delivery_count: Some(0),
        ..receiver(handle)
    }
}

pub fn credit_for(handle: u32, delivery_count: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(1),
        incoming_window: 1_000,
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

pub fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        tag: Some(Tag::try_from(&id.to_be_bytes()[..]).unwrap()),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}
