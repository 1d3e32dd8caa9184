//! The broker's end of an AMQP connection: passes what the client sends to entities, and passes messages and
//! answers of entities to the client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barid_amqp::{Connection, Delivery, Disposition, Error, Event, Limits, LinkId};
use barid_core::entity::ReceiverId;
use barid_core::time::MonoTime;
use hashbrown::{HashMap, HashSet};
use tracing::debug;

use super::access::{Access, Applicant, Denied};
use super::held::{Answer, Held};
use super::inbox::Inbox;
use super::keys::Keys;
use super::link::Link;
use super::loading::Loading;
use super::login::Login;
use super::passing::{Passing, frame_len};
use super::refusals::condition;
use super::sas::Token;
use super::tapped::ContainerTap;
use crate::amqp_clients::Listed;
use crate::budget::Budget;
use crate::durable::Commits;
use crate::entities::Told;
use crate::faults;
use crate::turn::Turn;
use crate::worker::Worker;

/// Maximum size of a received frame, in bytes. Larger messages arrive in several frames.
const FRAME_MAX: u32 = 64 * 1024;

/// Maximum size of a message of any entity, in bytes.
const MESSAGE_MAX: u64 = 100 * 1024 * 1024;

/// Highest handle: one less than the maximum number of links in a session.
const HANDLE_MAX: u32 = 4_095;

/// Highest channel number: one less than the maximum number of sessions. Some clients have a session for each
/// receiver, all on one connection.
const CHANNEL_MAX: u16 = 4_999;

/// Maximum number of links of a client in all its sessions. A client has a few for each entity that it uses.
const LINKS_MAX: usize = 4_096;

/// Maximum number of sessions, and of links, of a client that has not yet proved possession of a key. It needs two
/// links for its tokens. If a client begins with more links at once, they are refused one by one.
const STRANGER_MAX: usize = 64;

/// Maximum size of all unfinished messages of a client together, in bytes. Raised when the client attaches to an
/// entity with longer messages.
const UNFINISHED_MAX: usize = 16 * 1024 * 1024;

/// Bytes of output that a client may leave unread before no more of its input is handled.
const OUTPUT_MAX: usize = 512 * 1024;

/// Minimum time between two heartbeats, however short the idle time-out of the client is.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Steps of the [`Budget`] that each call of [`Connection::receive`] costs, beside its events.
const FRAMES_STEPS: usize = 16;

/// Bytes of responses that may wait, on all links together, before no more requests are handled.
pub(super) const RESPONDING_MAX: usize = 8 * 1024 * 1024;

/// The broker's end of one AMQP connection.
#[derive(Debug)]
pub struct Container {
    pub(super) engine: Connection,
    /// The address of the listener.
    pub(super) listener: SocketAddr,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The inbox in which other threads leave news for the connection.
    inbox: Arc<Inbox>,
    /// The keys that clients can prove to possess.
    pub(super) keys: Arc<dyn Keys>,
    pub(super) access: Access,
    /// The login of a user that the caller has not taken yet.
    pub(super) login: Option<Login>,
    /// The container id of the client for the log, perhaps cut off; empty before the client has opened the
    /// connection.
    pub(super) container_id: Box<str>,
    /// The container id of the client for rules and bans; see [`Self::client_id`].
    pub(super) client_id: Box<str>,
    /// The entry in the list of the tenant's connections.
    pub(super) listed: Option<Listed>,
    pub(super) links: HashMap<LinkId, Link>,
    pub(super) receivers: HashMap<ReceiverId, LinkId>,
    pub(super) held: Held,
    /// Number of responses sent so far.
    pub(super) responses: u64,
    /// Bytes of responses that have not been sent: they wait for the disk, for messages to be read, or for credit.
    pub(super) responding: usize,
    pub(super) loading: Loading,
    /// Memory in which a message is encoded; kept for the next one.
    pub(super) scratch: Vec<u8>,
    /// Links that may have something to send, in the order of their turns.
    pub(super) busy: Vec<LinkId>,
    /// The links in `busy`, for lookup.
    pub(super) is_busy: HashSet<LinkId>,
    /// Time at which tokens of links may have expired.
    expiry: Option<MonoTime>,
    /// Time of the next heartbeat; `None` if the client has not asked for any.
    heartbeat: Option<MonoTime>,
    opened: bool,
    /// Why events may be unhandled; `None`: all are handled.
    stopped: Option<Stopped>,
    /// What is left of the present turn.
    pub(super) budget: Budget,
    /// The thread of the present turn, and its time.
    pub(super) worker: Worker,
    /// A message that a quota holds back. It is handled before all other events.
    held_back: Option<Box<Delivery>>,
    pub(super) tapped: ContainerTap,
    /// The bytes of a client that may have to be passed on to another broker.
    pub(super) passing: Option<Box<Passing>>,
    /// The client is to be passed on to the broker with this name. Nothing more is received from it or sent to it.
    pub(super) leaves: Option<Box<str>>,
}

/// Reason for which received events are not all handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// Too many bytes wait for the client, which has to take them first.
    Full,
    /// The turn is over: other connections have theirs first.
    Spent,
    /// A quota of the tenant or of the user holds the next message back.
    HeldBack,
}

impl Container {
    /// Creates the state of a new connection.
    pub fn new(
        listener: SocketAddr,
        peer: SocketAddr,
        keys: Arc<dyn Keys>,
        inbox: Arc<Inbox>,
    ) -> Self {
        let limits = Limits {
            max_frame_size: FRAME_MAX,
            max_message_size: MESSAGE_MAX,
            max_unfinished: UNFINISHED_MAX,
            handle_max: HANDLE_MAX,
            channel_max: CHANNEL_MAX,
            max_sessions: STRANGER_MAX,
            max_links: STRANGER_MAX,
            ..Limits::default()
        };
        Self {
            engine: Connection::new("barid", limits),
            listener,
            peer,
            inbox,
            keys,
            access: Access::default(),
            login: None,
            container_id: Box::default(),
            client_id: Box::default(),
            listed: None,
            links: HashMap::new(),
            receivers: HashMap::new(),
            held: Held::default(),
            responses: 0,
            responding: 0,
            loading: Loading::default(),
            scratch: Vec::new(),
            busy: Vec::new(),
            is_busy: HashSet::new(),
            expiry: None,
            heartbeat: None,
            opened: false,
            stopped: None,
            budget: Budget::unbounded(),
            worker: Worker { id: 0, now: MonoTime::default() },
            held_back: None,
            tapped: ContainerTap::default(),
            passing: None,
            leaves: None,
        }
    }

    /// Bytes of output that may wait for the client before no more of its input is handled.
    fn output_max(&self) -> usize {
        if self.is_open() { OUTPUT_MAX } else { OUTPUT_MAX / 8 }
    }

    /// Begins a turn of the connection.
    pub fn begin_turn(&mut self, turn: &Turn<'_>) {
        self.budget = turn.budget.clone();
        self.worker = turn.context.worker;
        if let Some(admitted) = self.access.admitted_mut() {
            admitted.check_quotas(&turn.context.worker);
        }
        self.check_trace();
    }

    /// Bytes held for the client: of unfinished messages, and of output that it has not read.
    pub fn collected(&self) -> usize {
        self.engine.held() + self.passing.as_ref().map_or(0, |passing| passing.received())
    }

    /// Whether the turn is over. There may be more to do then.
    pub fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// Handles the news in the inbox, sends answers that have become durable, and handles events.
    pub fn attend(&mut self, turn: &mut Turn<'_>) {
        for (receiver, told) in self.inbox.take() {
            if let Told::Bodies(bodies) = told {
                self.on_bodies(turn, bodies);
                continue;
            }
            if let Some(link) = self.receivers.get(&receiver).copied() {
                self.on_told(turn, link, told);
            }
        }
        self.answer_durable(turn);
        self.handle_events(turn);
    }

    /// Handles the whole frames at the front of `bytes`, and returns the number of bytes handled. Frames are left
    /// over if so much waits for the client that it has to take that first, or if the turn is over.
    pub fn receive(&mut self, turn: &mut Turn<'_>, bytes: &[u8]) -> usize {
        let mut handled = 0;
        while self.handle_events(turn) {
            self.budget.spend(FRAMES_STEPS);
            self.check_trace();
            let rest = &bytes[handled..];
            // The answers to the frames of a stranger must not depend on how many of them arrive together: another broker
            // may get them once more.
            let together = match self.access.tenant() {
                Some(_) => rest.len(),
                None => frame_len(rest).unwrap_or(rest.len()),
            };
            match self.engine.receive(&rest[..together]) {
                Ok(0) => break,
                Ok(n) => {
                    self.tap_received(&rest[..n]);
                    if let Some(passing) = &mut self.passing {
                        passing.note_received(&rest[..n]);
                    }
                    handled += n;
                }
                Err(failure) => {
                    debug!(peer = %self.peer, tenant = self.tenant_name(), "{failure}");
                    handled = bytes.len();
                }
            }
        }
        self.has_received(bytes.len());
        handled
    }

    /// Handles events. Returns false if there may be more of them, because too much waits for the client, the
    /// turn is over, or a quota holds the client back.
    pub(super) fn handle_events(&mut self, turn: &mut Turn<'_>) -> bool {
        let all = self.handle_events_granted(turn);
        self.rest();
        all
    }

    fn handle_events_granted(&mut self, turn: &mut Turn<'_>) -> bool {
        loop {
            let is_full = self.engine.output().len() > self.output_max()
                || self.responding > RESPONDING_MAX && !self.waits_for_window();
            if self.leaves() {
                return false;
            }
            self.stopped = if is_full {
                Some(Stopped::Full)
            } else if self.budget.is_spent() {
                Some(Stopped::Spent)
            } else {
                None
            };
            if self.stopped.is_some() {
                return false;
            }
            let held_back = self.held_back.take().map(Event::Delivery);
            let Some(event) = held_back.or_else(|| self.engine.next_event()) else { return true };
            match event {
                Event::Delivery(delivery) if !self.may_handle(&delivery) => {
                    self.held_back = Some(delivery);
                    self.stopped = Some(Stopped::HeldBack);
                    return false;
                }
                event => self.on_event(turn, event),
            }
        }
    }

    fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) {
        self.budget.spend(1);
        match event {
            Event::SaslInit { mechanism, response, .. } => {
                if let Some(outcome) = self.authenticate(turn, &mechanism, response.as_deref()) {
                    self.engine.sasl_outcome(outcome);
                }
            }
            Event::Opened(open) => {
                self.opened = true;
                self.name(&open.container_id);
                self.identify(turn, &open.container_id);
                self.beat(turn.context.worker.now);
            }
            Event::Attach(request) => self.attach(turn, &request),
            Event::Delivery(delivery) => self.on_delivery(turn, &delivery),
            Event::Disposition(disposition) => self.on_disposition(turn, &disposition),
            Event::Credit { link } => self.on_credit(link, false),
            Event::Drain { link } => self.on_credit(link, true),
            Event::Detached { link, .. } => self.forget(turn, link),
            Event::Closed { error } => {
                let error = error.map_or_else(String::new, |error| format!(": {error:?}"));
                debug!(peer = %self.peer, tenant = self.tenant_name(), "AMQP connection closed{error}");
            }
        }
    }

    /// Raises the limits for a client that has proved who it is: from now on its tenant is accountable for what it
    /// does.
    pub(super) fn welcome(&mut self) {
        self.passing = None;
        self.engine.set_max_links(usize::from(CHANNEL_MAX) + 1, LINKS_MAX);
    }

    /// Checks a token, and adds the rights that it gives.
    pub(super) fn put_token(&mut self, turn: &Turn<'_>, token: &str) -> Result<(), Denied> {
        let applicant = Applicant::new(
            turn.context,
            (&*self.keys, self.listener),
            (self.peer.ip(), &self.client_id),
        );
        let put = self.access.put_token(applicant, token, turn.context.wall());
        match &put {
            Ok(()) => self.welcome(),
            Err(Denied::Elsewhere(home)) => self.leaves = Some(home.clone()),
            Err(denied) => {
                let key = Token::parse(token).map(|token| token.key_name).ok();
                self.deny_login(turn, key.as_deref(), None, &denied.to_string());
            }
        }
        put
    }

    fn on_delivery(&mut self, turn: &mut Turn<'_>, delivery: &Delivery) {
        match self.links.get(&delivery.link) {
            Some(Link::Requests(_)) => self.on_request(turn, delivery),
            Some(Link::Sender(_)) => self.on_message(turn, delivery),
            // `Connection` reports no deliveries on links of the other direction.
            _ => {}
        }
    }

    fn on_disposition(&mut self, turn: &mut Turn<'_>, disposition: &Disposition) {
        if let Some(Link::Receiver(_)) = self.links.get(&disposition.link) {
            self.settle(turn, disposition);
        }
    }

    /// Answers the client when `commits` are durable.
    pub(super) fn answer(&mut self, turn: &Turn<'_>, commits: Commits, answer: Answer) {
        if let Answer::Response(_, message) = &answer {
            self.responding += message.len();
        }
        faults::interleave();
        let sources = turn.context.engine.shards.sources();
        match self.held.push(commits, answer, sources) {
            Some(answer) => self.answer_now(answer),
            None => {
                self.tap_waits();
                self.answer_durable(turn);
            }
        }
    }

    /// Sends the held answers whose commits are durable.
    fn answer_durable(&mut self, turn: &Turn<'_>) {
        let sources = turn.context.engine.shards.sources();
        while let Some(answer) = self.held.pop(sources, &self.inbox) {
            self.answer_now(answer);
        }
    }

    fn answer_now(&mut self, answer: Answer) {
        match answer {
            Answer::Incoming(delivery, state) => {
                self.engine.settle_incoming(delivery, &state);
            }
            Answer::Outgoing(delivery, state) => {
                self.engine.settle_outgoing(delivery, Some(&state));
            }
            Answer::Response(link, message) => self.respond(link, message),
            Answer::Nothing => {}
            Answer::Deliveries(link, count) => self.release(link, count),
            Answer::Numbers(link) => self.on_numbers(link),
        }
    }

    /// The inbox in which other threads leave news for the connection.
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Adds a link to those that may have something to send.
    pub(super) fn note_busy(&mut self, link: LinkId) {
        if self.is_busy.insert(link) {
            self.busy.push(link);
        }
    }

    /// Notes that the right to a link ends at `until`.
    pub(super) fn note_expiry(&mut self, until: MonoTime) {
        self.expiry = Some(self.expiry.map_or(until, |expiry| expiry.min(until)));
    }

    /// Sends a heartbeat, ends links whose tokens have expired, and ends waits for quotas, if it is time.
    pub fn on_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.context.worker.now;
        self.end_waits(now);
        if self.heartbeat.is_some_and(|at| at <= now) {
            self.engine.heartbeat();
            self.beat(now);
        }
        if self.expiry.is_some_and(|at| at <= now) {
            self.expiry = None;
            self.detach_expired(turn);
        }
    }

    fn beat(&mut self, now: MonoTime) {
        let timeout = self.engine.peer_idle_time_out();
        self.heartbeat = timeout.map(|timeout| now.after((timeout / 2).max(HEARTBEAT_MIN)));
    }

    /// Time at which [`Self::on_time`] must be called at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        [self.heartbeat, self.expiry, self.waits_until()].into_iter().flatten().min()
    }

    /// Ends the links whose tokens have expired, and notes when the next one expires.
    fn detach_expired(&mut self, turn: &mut Turn<'_>) {
        let now = turn.context.worker.now;
        let mut expired = Vec::new();
        let mut until = None;
        for (link, what) in &self.links {
            if let Link::Requests(_) | Link::Responses(_) = what {
                // Each request is checked.
                continue;
            }
            let Some((rights, path, _)) = what.needs() else { continue };
            match self.access.allows_any(rights, path, now) {
                None => expired.push(*link),
                Some(next) => until = Some(until.map_or(next, |until: MonoTime| until.min(next))),
            }
        }
        self.expiry = until;
        for link in expired {
            self.end_denied(turn, link, "the token has expired", "The token has expired.");
        }
    }

    /// Ends a link that the client has no right to any more. `reason` is for the log, `told` for the client.
    pub(super) fn end_denied(
        &mut self,
        turn: &mut Turn<'_>,
        link: LinkId,
        reason: &str,
        told: &'static str,
    ) {
        let needs = self.links.get(&link).and_then(Link::needs);
        if let Some((_, path, action)) = needs {
            self.deny(turn, action, path, reason);
        }
        self.end(turn, link, Error::new(condition::UNAUTHORIZED, told));
    }

    /// Ends a link, or refuses it if its attach has not been answered.
    pub(super) fn end(&mut self, turn: &mut Turn<'_>, link: LinkId, error: Error) {
        self.engine.detach(link, Some(error));
        self.forget(turn, link);
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&mut self, turn: &mut Turn<'_>, link: LinkId) {
        match self.links.remove(&link) {
            Some(Link::Receiver(receiver)) => {
                self.receivers.remove(&receiver.id);
                self.close_receiver(turn, &receiver);
            }
            Some(Link::Responses(responses)) => self.responding -= responses.bytes,
            _ => {}
        }
    }

    /// Closes the connection, and tells the client the reason.
    pub fn close(&mut self, turn: &mut Turn<'_>, reason: &str) {
        self.close_with(turn, Error::new("amqp:connection:forced", reason.to_owned()));
    }

    /// Closes the connection of a client that must log in again, and tells it the reason.
    pub fn close_unauthorized(&mut self, turn: &mut Turn<'_>, reason: &str) {
        self.close_with(turn, Error::new(condition::UNAUTHORIZED, reason.to_owned()));
    }

    fn close_with(&mut self, turn: &mut Turn<'_>, error: Error) {
        self.engine.close(Some(error));
        self.forget_all(turn);
    }

    /// Ends all links without telling the client: the socket is gone, or about to be.
    pub fn abort(&mut self, turn: &mut Turn<'_>) {
        self.engine.abort();
        self.forget_all(turn);
        self.tap_end();
        self.tell_end(turn);
    }

    pub(super) fn forget_all(&mut self, turn: &mut Turn<'_>) {
        self.held_back = None;
        while self.engine.next_event().is_some() {}
        let mut links: Vec<_> = self.links.keys().copied().collect();
        // Sorted, so that the effects do not depend on the order of the hash table.
        links.sort_unstable();
        links.into_iter().for_each(|link| self.forget(turn, link));
    }

    /// Whether the client has opened the connection and proved who it is.
    pub fn is_open(&self) -> bool {
        self.opened && self.access.tenant().is_some()
    }

    /// The name of the client's tenant, if it has one.
    pub fn tenant_name(&self) -> Option<&str> {
        self.access.tenant().map(|tenant| &*tenant.name)
    }

    /// Whether nothing more is to be received or sent.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// The bytes that are to be written to the client. The caller says how many it [has written](Self::has_written).
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.engine.output()
    }

    /// Whether there may be unhandled events.
    pub fn has_events(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether all bytes that wait for the client wait for one of its session windows. The client must then be
    /// read from, because it has to open that window.
    fn waits_for_window(&mut self) -> bool {
        self.engine.output().is_empty() && self.engine.queued_bytes() > 0
    }

    /// Whether so much waits for the client, or for the disk, that the client must not be read from.
    pub fn is_full(&mut self, turn: &Turn<'_>) -> bool {
        self.stopped == Some(Stopped::Full)
            || self.engine.output().len() > self.output_max()
            || self.held.is_congested(&turn.context.engine.shards)
    }
}
