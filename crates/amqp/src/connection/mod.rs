//! State machines of connections, sessions and links.

mod attach;
mod event;
mod failure;
mod flow;
mod handshake;
mod incoming;
mod ledger;
mod limits;
mod link;
mod outgoing;
mod output;
mod parts;
mod session;

use std::collections::VecDeque;
use std::time::Duration;

pub use event::{
    AttachAnswer, AttachRequest, Delivery, Disposition, Event, IncomingId, LinkId, OutgoingId,
    SaslOutcome, SessionId,
};
pub use failure::Failure;
pub use limits::Limits;
pub use outgoing::SendError;

use crate::Error;
use crate::frame::{self, Begin, Body, Close, End, HEADER_SIZE, Performative};
use handshake::Phase;
use link::Links;
use output::Output;
use session::Session;

/// Maximum number of waiting events; with this many, no further frame is received. A frame of a few bytes
/// can cause many events.
const MAX_EVENTS: usize = 1_024;

/// Maximum number of frames that one call receives. The shortest frame has eight bytes, so a read of 64 KiB
/// can hold 8,192 frames; the bound lets the caller serve other connections in between.
const FRAMES_AT_ONCE: usize = 256;

/// Number of ledger entries visited after which one call receives no further frame: a frame of a few bytes
/// can name all deliveries of a ledger.
const LOOKED_AT_ONCE: usize = 4_096;

/// Server side of one connection: see the [crate] for how it is used.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    container_id: String,
    phase: Phase,
    peer: Peer,
    /// Sessions by channel, which is the same in both directions. Boxed, because the first session of a peer
    /// may use the highest channel.
    sessions: Vec<Option<Box<Session>>>,
    /// Number of sessions in `sessions`.
    session_count: usize,
    /// Number of sessions begun so far.
    serial: u32,
    links: Links,
    /// Bytes held of unfinished messages from the peer.
    unfinished: usize,
    /// Number of unsettled deliveries to the peer.
    unsettled: usize,
    /// `unsettled` has reached its limit; see [`Session::was_full`].
    was_full: bool,
    /// Bytes of messages that wait for the peer's session windows.
    held: usize,
    /// Number of ledger entries visited since [`receive`](Self::receive) was called.
    looked_at: usize,
    events: VecDeque<Event>,
    out: Output,
}

/// Bounds that the peer announced.
#[derive(Debug)]
struct Peer {
    max_frame_size: usize,
    idle_time_out: Option<Duration>,
}

impl Connection {
    /// Creates the state of a new connection. `container_id` is the name of the server.
    pub fn new(container_id: &str, limits: Limits) -> Self {
        Self {
            limits,
            container_id: container_id.into(),
            phase: Phase::Header,
            peer: Peer { max_frame_size: frame::MIN_MAX_FRAME_SIZE as usize, idle_time_out: None },
            sessions: Vec::new(),
            session_count: 0,
            serial: 0,
            links: Links::default(),
            unfinished: 0,
            unsettled: 0,
            was_full: false,
            held: 0,
            looked_at: 0,
            events: VecDeque::new(),
            out: Output::default(),
        }
    }

    /// Consumes whole frames at the front of `bytes` and returns the number of bytes consumed. Give the rest
    /// again, together with the bytes behind it, after all events have been taken. Besides at the end of the
    /// whole frames, the call stops behind an [`Event::SaslInit`], when many events wait, and when it has
    /// done much work: the cost of one call is bounded, whatever the frames are. So call it until it
    /// consumes nothing.
    ///
    /// A failure is returned once. After it the connection is closed: all further input is discarded, and
    /// the output holds what the peer is told.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let mut consumed = 0;
        let mut frames = 0;
        self.looked_at = 0;
        while self.events.len() < MAX_EVENTS
            && frames < FRAMES_AT_ONCE
            && self.looked_at < LOOKED_AT_ONCE
        {
            match self.receive_one(&bytes[consumed..]) {
                Ok(0) => break,
                Ok(length) => {
                    consumed += length;
                    frames += 1;
                }
                Err(failure) => {
                    self.fail(failure);
                    return Err(failure);
                }
            }
        }
        Ok(consumed)
    }

    /// Returns the number of bytes missing until something more can be received, after
    /// [`receive`](Self::receive) left `rest`: never 0.
    pub fn missing(&self, rest: &[u8]) -> usize {
        let next = match frame::length(rest) {
            Ok(Some(length)) if !self.phase.expects_header() => length,
            _ => HEADER_SIZE,
        };
        next.saturating_sub(rest.len()).max(1)
    }

    /// Takes the oldest waiting event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the bytes for the peer. The caller removes from the front those that were sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.out.bytes()
    }

    /// Returns the number of bytes that wait here: in the output, and behind it for the peer's session
    /// windows.
    pub fn queued_bytes(&self) -> usize {
        self.out.len() + self.held
    }

    /// Returns the number of bytes that leave before the next message sent on `link`: those in the output,
    /// and behind it those that wait for the window of the link's session.
    pub fn queued_before(&self, link: LinkId) -> usize {
        let session = self.links.get(link).and_then(|link| self.session(link.session));
        self.out.len() + session.map_or(0, |session| session.held_bytes)
    }

    /// Whether nothing more will be received or sent: the caller closes the socket once the output is
    /// written.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Returns the silence after which the peer gives up; `None` if it announced none, or has not opened
    /// yet.
    pub fn peer_idle_time_out(&self) -> Option<Duration> {
        self.peer.idle_time_out
    }

    /// Appends an empty frame, which shows that this side is alive. The caller sends one when it has sent
    /// nothing for half of [`peer_idle_time_out`](Self::peer_idle_time_out).
    pub fn heartbeat(&mut self) {
        if self.phase == Phase::Open {
            frame::encode_empty(self.out.bytes());
        }
    }

    /// Closes the connection; every link gets an [`Event::Detached`]. The peer's answer arrives as
    /// [`Event::Closed`]; a caller that does not wait for it calls [`abort`](Self::abort).
    pub fn close(&mut self, error: Option<Error>) {
        match self.phase {
            Phase::AwaitOpen => self.write_open(),
            Phase::Open => {}
            Phase::Closing => return,
            _ => return self.finish(error),
        }
        self.end_links(error.as_ref());
        self.out.frame(0, &Performative::Close(Close { error }));
        self.phase = Phase::Closing;
    }

    /// Closes the connection without waiting for the peer's answer: nothing more is received. What the peer is told
    /// is in the output.
    pub fn close_at_once(&mut self, error: Error) {
        self.close(Some(error.clone()));
        self.finish(Some(error));
    }

    /// Ends all links and sends nothing more, because the socket is gone or is to be dropped.
    pub fn abort(&mut self) {
        self.finish(None);
        self.out.bytes().clear();
    }

    /// Returns the limit for the bytes of unfinished messages of all links together.
    pub fn max_unfinished(&self) -> usize {
        self.limits.max_unfinished
    }

    /// Returns the bytes held: of messages whose last transfer has not arrived, and of the output.
    pub fn held(&self) -> usize {
        self.unfinished + self.out.len()
    }

    /// Sets the limit for the bytes of unfinished messages from now on; see [`Limits::max_unfinished`].
    pub fn set_max_unfinished(&mut self, bytes: usize) {
        self.limits.max_unfinished = bytes;
    }

    /// Sets the limits for sessions and links from now on; see [`Limits`]. Existing ones stay.
    pub fn set_max_links(&mut self, sessions: usize, links: usize) {
        self.limits.max_sessions = sessions;
        self.limits.max_links = links;
    }

    /// Ends a session with all of its links. Returns `false` if the session is gone.
    pub fn end_session(&mut self, session: SessionId, error: Option<Error>) -> bool {
        let found = self.session(session).is_some();
        if found {
            self.end_ours(session.channel, error);
        }
        found
    }

    fn receive_one(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        match self.phase {
            Phase::Closed => return Ok(bytes.len()),
            Phase::SaslOutcome => return Ok(0),
            phase if phase.expects_header() => {
                let Some(header) = bytes.first_chunk() else { return Ok(0) };
                self.on_header(header)?;
                return Ok(header.len());
            }
            _ => {}
        }
        let Some(length) = frame::length(bytes)? else { return Ok(0) };
        if length > self.limits.max_frame_size as usize {
            return Err(Failure::FrameTooLong { length });
        }
        let Some(bytes) = bytes.get(..length) else { return Ok(0) };
        let frame = frame::decode(bytes)?;
        match (self.phase, frame.body) {
            (Phase::SaslInit, Body::Sasl(sasl)) => self.on_sasl(sasl)?,
            (Phase::SaslInit, _) => return Err(Failure::NotAllowed("a frame before SASL is done")),
            (_, Body::Sasl(_)) => return Err(Failure::NotAllowed("SASL behind its end")),
            (_, Body::Empty) => {}
            (_, Body::Amqp(performative, payload)) => {
                self.on_performative(frame.channel, performative, payload)?;
            }
        }
        Ok(length)
    }

    fn on_performative(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: &[u8],
    ) -> Result<(), Failure> {
        match (self.phase, performative) {
            (Phase::AwaitOpen, Performative::Open(open)) => {
                self.on_open(open);
                return Ok(());
            }
            (Phase::AwaitOpen, _) => return Err(Failure::NotAllowed("a frame before open")),
            (_, Performative::Open(_)) => return Err(Failure::NotAllowed("a second open")),
            (_, Performative::Close(close)) => self.on_close(close),
            (Phase::Closing, _) => {}
            (_, Performative::Begin(begin)) => self.on_begin(channel, &begin)?,
            (_, performative) => {
                let Some(Some(session)) = self.sessions.get(usize::from(channel)) else {
                    return Err(Failure::NotAllowed("a frame on a channel without a session"));
                };
                match performative {
                    Performative::End(end) => self.on_end(channel, &end),
                    _ if session.is_ending => {}
                    Performative::Attach(attach) => self.on_attach(channel, attach)?,
                    Performative::Detach(detach) => self.on_detach(channel, detach),
                    Performative::Flow(flow) => self.on_flow(channel, &flow),
                    Performative::Transfer(transfer) => {
                        self.on_transfer(channel, transfer, payload)?;
                    }
                    Performative::Disposition(disposition) => {
                        self.on_disposition(channel, &disposition);
                    }
                    Performative::Open(_) | Performative::Begin(_) | Performative::Close(_) => {
                        unreachable!("they were handled before")
                    }
                }
            }
        }
        Ok(())
    }

    fn on_close(&mut self, close: Close) {
        if self.phase == Phase::Open {
            self.end_links(close.error.as_ref());
            self.out.frame(0, &Performative::Close(Close::default()));
        }
        self.finish(close.error);
    }

    fn on_begin(&mut self, channel: u16, begin: &Begin) -> Result<(), Failure> {
        if channel > self.limits.channel_max {
            return Err(Failure::OutOfBounds("the channel"));
        }
        let place = usize::from(channel);
        if self.sessions.len() <= place {
            self.sessions.resize_with(place + 1, || None);
        }
        if self.sessions[place].is_some() {
            return Err(Failure::NotAllowed("a begin on a channel with a session"));
        }
        if self.session_count >= self.limits.max_sessions {
            return Err(Failure::TooManySessions);
        }
        self.serial = self.serial.wrapping_add(1);
        let session = Session::new(SessionId { channel, serial: self.serial }, begin);
        self.out.begin(channel, session.begin(self.limits.handle_max));
        self.sessions[place] = Some(Box::new(session));
        self.session_count += 1;
        Ok(())
    }

    fn on_end(&mut self, channel: u16, end: &End) {
        let Some(session) = self.sessions[usize::from(channel)].take() else { return };
        self.session_count -= 1;
        self.drop_links(&session, end.error.as_ref());
        if !session.is_ending {
            self.out.frame(channel, &Performative::End(End::default()));
        }
    }

    /// Ends a session because of an error of the peer, or at the caller's command.
    fn end_ours(&mut self, channel: u16, error: Option<Error>) {
        let place = &mut self.sessions[usize::from(channel)];
        let Some(id) = place.as_ref().map(|session| session.id) else { return };
        let session = place.replace(Box::new(Session::ending(id))).expect("there was one");
        self.drop_links(&session, error.as_ref());
        self.out.frame(channel, &Performative::End(End { error }));
    }

    /// Ends all links of all sessions, without telling the peer of each.
    fn end_links(&mut self, error: Option<&Error>) {
        self.session_count = 0;
        for session in std::mem::take(&mut self.sessions).into_iter().flatten() {
            self.drop_links(&session, error);
        }
    }

    /// Forgets the links of a session that has ended.
    fn drop_links(&mut self, session: &Session, error: Option<&Error>) {
        self.held -= session.held_bytes;
        self.unsettled -= session.outgoing.len();
        for link in session.links() {
            let Some(link) = self.links.remove(link) else { continue };
            self.unfinished -= link.unfinished();
            if !link.is_gone() {
                let error = error.cloned();
                self.events.push_back(Event::Detached { link: link.id, closed: true, error });
            }
        }
    }

    /// Closes the connection because the peer has broken the protocol.
    fn fail(&mut self, failure: Failure) {
        let error = failure.to_error();
        match self.phase {
            // Answer an unknown header with one that would have been understood.
            Phase::Header => self.out.bytes().extend_from_slice(&frame::SASL_HEADER),
            Phase::HeaderAfterSasl => self.out.bytes().extend_from_slice(&frame::AMQP_HEADER),
            Phase::SaslInit | Phase::SaslOutcome | Phase::Closing | Phase::Closed => {}
            Phase::AwaitOpen | Phase::Open => {
                if self.phase == Phase::AwaitOpen {
                    self.write_open();
                }
                self.end_links(Some(&error));
                let close = Close { error: Some(error.clone()) };
                self.out.frame(0, &Performative::Close(close));
            }
        }
        self.finish(Some(error));
    }

    fn finish(&mut self, error: Option<Error>) {
        if self.phase != Phase::Closed {
            self.end_links(error.as_ref());
            self.phase = Phase::Closed;
            self.events.push_back(Event::Closed { error });
        }
    }

    fn session(&self, id: SessionId) -> Option<&Session> {
        let session = self.sessions.get(usize::from(id.channel))?.as_deref()?;
        (session.id == id && !session.is_ending).then_some(session)
    }

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(usize::from(id.channel))?.as_deref_mut()?;
        (session.id == id && !session.is_ending).then_some(session)
    }
}
