//! A connection with one session: opens both, and counts frames.

use anyhow::{Context as _, bail, ensure};
use barid_amqp::Error;
use barid_amqp::frame::{
    self, AMQP_HEADER, Begin, Body, Close, Flow, Open, Performative, SASL_HEADER, Sasl,
};

use super::super::stream::Stream;
use super::super::target::Target;

/// Number of transfer frames that the broker may send; the window is renewed with every flow.
const INCOMING_WINDOW: u32 = 1 << 20;

pub struct Connection {
    pub stream: Stream,
    opening: Opening,
    pub session: Session,
}

/// Next element that is expected from the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    SaslHeader,
    Sasl,
    AmqpHeader,
    Frames,
}

/// Something received from the broker.
pub enum Heard<'a> {
    /// The session has begun: links may be attached.
    Begun,
    /// A frame about a link, with its payload.
    Link(Performative, &'a [u8]),
}

/// Windows of the session.
pub struct Session {
    /// Maximum size of a frame that the broker takes.
    pub frame_max: usize,
    next_outgoing_id: u32,
    next_incoming_id: u32,
    /// Number of transfer frames that the broker takes now.
    may_send: u32,
}

impl Connection {
    /// Starts a connection with the SASL exchange.
    pub fn new(mut stream: Stream, target: &Target) -> Self {
        stream.output.extend_from_slice(&SASL_HEADER);
        let (user, password) = (target.user.as_deref(), target.password.as_deref());
        let response = format!("\0{}\0{}", user.unwrap_or_default(), password.unwrap_or_default());
        let init = Sasl::Init {
            mechanism: "PLAIN".into(),
            initial_response: Some(response.into()),
            hostname: Some(target.host().to_owned()),
        };
        frame::encode_sasl(&mut stream.output, &init);
        let session =
            Session { frame_max: 512, next_outgoing_id: 0, next_incoming_id: 0, may_send: 0 };
        Self { stream, opening: Opening::SaslHeader, session }
    }

    /// Reads all input, and passes it to `heard` together with the buffer for answers.
    ///
    /// # Errors
    /// The broker ends the connection, or sends something that cannot be decoded.
    pub fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        is_closing: bool,
        mut heard: impl FnMut(&mut Session, &mut Vec<u8>, Heard<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { stream, opening, session } = self;
        let is_open = stream.read(scratch, is_closing, |stream, input| {
            let mut taken = 0;
            while let Some((len, frame)) = next(*opening, &input[taken..])? {
                taken += len;
                let output = &mut stream.output;
                match frame {
                    None => *opening = opening.after_header(),
                    Some(Body::Sasl(Sasl::Outcome { code: 0 })) => {
                        *opening = Opening::AmqpHeader;
                        begin(output);
                    }
                    Some(Body::Sasl(Sasl::Outcome { .. })) => {
                        bail!("the broker refused the user name or the password; check -u and -P");
                    }
                    Some(Body::Empty | Body::Sasl(_)) => {}
                    Some(Body::Amqp(performative, payload)) => {
                        if let Some(what) = session.on(performative, payload)? {
                            heard(session, output, what)?;
                        }
                    }
                }
            }
            Ok(taken)
        })?;
        ensure!(is_open, "the broker closed a connection");
        Ok(())
    }

    /// Closes the connection; the broker takes back everything that the links hold.
    pub fn close(&mut self) {
        frame::encode(&mut self.stream.output, 0, &Performative::Close(Close::default()), &[]);
    }
}

impl Opening {
    fn after_header(self) -> Self {
        if self == Self::SaslHeader { Self::Sasl } else { Self::Frames }
    }
}

/// Returns the protocol header or the frame at the front, and its length; `None` if it is incomplete.
fn next(opening: Opening, input: &[u8]) -> anyhow::Result<Option<(usize, Option<Body<'_>>)>> {
    if matches!(opening, Opening::SaslHeader | Opening::AmqpHeader) {
        let Some(header) = input.first_chunk::<8>() else { return Ok(None) };
        let wanted = if opening == Opening::SaslHeader { SASL_HEADER } else { AMQP_HEADER };
        ensure!(*header == wanted, "the server does not speak AMQP 1.0 with SASL; check -h and -p");
        return Ok(Some((header.len(), None)));
    }
    let Some(bytes) = frame::length(input)?.and_then(|length| input.get(..length)) else {
        return Ok(None);
    };
    Ok(Some((bytes.len(), Some(frame::decode(bytes)?.body))))
}

fn begin(output: &mut Vec<u8>) {
    output.extend_from_slice(&AMQP_HEADER);
    let open = Open { max_frame_size: 65_536, channel_max: 0, ..Open::new("barid-bench") };
    frame::encode(output, 0, &Performative::Open(Box::new(open)), &[]);
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: INCOMING_WINDOW,
        outgoing_window: INCOMING_WINDOW,
        handle_max: u32::MAX,
        properties: Default::default(),
    };
    frame::encode(output, 0, &Performative::Begin(Box::new(begin)), &[]);
}

impl Session {
    fn on<'a>(
        &mut self,
        performative: Performative,
        payload: &'a [u8],
    ) -> anyhow::Result<Option<Heard<'a>>> {
        match &performative {
            Performative::Open(open) => {
                self.frame_max = open.max_frame_size.min(65_536) as usize;
                return Ok(None);
            }
            Performative::Begin(begin) => {
                self.may_send = begin.incoming_window;
                self.next_incoming_id = begin.next_outgoing_id;
                return Ok(Some(Heard::Begun));
            }
            Performative::End(end) => bail!(failed("a session", end.error.as_ref())),
            Performative::Close(close) => bail!(failed("a connection", close.error.as_ref())),
            Performative::Transfer(_) => {
                self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
            }
            Performative::Flow(flow) => {
                let on_the_way =
                    self.next_outgoing_id.wrapping_sub(flow.next_incoming_id.unwrap_or(0));
                self.may_send = flow.incoming_window.saturating_sub(on_the_way);
            }
            _ => {}
        }
        Ok(Some(Heard::Link(performative, payload)))
    }

    /// Whether a message of `frames` frames may be sent.
    pub fn has_room(&self, frames: u32) -> bool {
        self.may_send >= frames
    }

    /// Counts the frames of a message that was sent.
    pub fn sent(&mut self, frames: u32) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(frames);
        self.may_send -= frames;
    }

    /// Appends a flow that gives `credit` on a link, counted from `delivery_count`.
    pub fn give_credit(&self, handle: u32, delivery_count: u32, credit: u32, out: &mut Vec<u8>) {
        let flow = Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: INCOMING_WINDOW,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(credit),
            ..Flow::default()
        };
        frame::encode(out, 0, &Performative::Flow(flow), &[]);
    }
}

/// Builds the error for something that the broker has ended.
pub fn failed(what: &str, error: Option<&Error>) -> anyhow::Error {
    let Some(error) = error else {
        return anyhow::anyhow!("the broker ended {what}");
    };
    let description = error.description.as_deref().unwrap_or("no reason given");
    let hint = match error.condition.as_ref() {
        "amqp:not-found" => {
            "\n  hint: the queue of --queue must exist: `barid queue create bench --requires-session`"
        }
        _ => "",
    };
    anyhow::anyhow!("the broker ended {what}: {description} ({}){hint}", error.condition)
}

/// Returns the value, or an error if the broker left it out.
pub fn expected<T>(value: Option<T>) -> anyhow::Result<T> {
    value.context("the broker left out a mandatory field")
}
