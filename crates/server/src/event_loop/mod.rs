//! An IO thread: waits for the kernel, its timers and its mailbox, and gives connections their turns.
//!
//! ADR 0001 says why these loops are not tasks of an async runtime. `io_threads.rs` says how connections are
//! distributed.

mod checks;
mod io_threads;
mod mailbox;
mod peer;
mod timers;

pub use io_threads::{IoThread, IoThreads};
pub use mailbox::{Mailbox, Post};
pub use peer::Peer;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use barid_core::time::MonoTime;
use barid_engine::amqp::Keys;
use barid_engine::budget::Budget;
use barid_engine::clock::Clock;
use barid_engine::context::Context;
use barid_engine::durable::commit_by_rounds;
use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Farewell, Owner};
use barid_engine::turn::{Scratch, Turn};
use hashbrown::HashMap;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use mqtt_proto::ReasonCode;
use slab::Slab;
use tracing::{debug, warn};

use crate::cluster::{LinkStream, NoHome};
use crate::logins::LoginOwner;
use crate::shared::Shared;
use crate::transport::{Accepted, Protocol, Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};
use crate::watchdog::Watchdog;
use checks::Checks;
use io_threads::Balance;
use timers::{NEVER, Timers};

/// Size of the read buffer, in bytes. A larger one gains nothing, a smaller one costs system calls
/// (docs/performance.md).
const READ_BUFFER: usize = 64 * 1024;

/// Maximum number of events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// Time in a round for connections without a session and for new connections, while others wait. So a client
/// that connects over and over, or begins one TLS handshake after another, delays only other such
/// connections.
const STRANGERS: Duration = Duration::from_millis(5);

/// A client that a quota slows down has the turn of one of at least so many clients: 0.2 ms. What the quota
/// allows at a time may take longer, and is divided into several turns.
const TURNS_AT_LIMIT: usize = 50;

/// Maximum number of connections that a round looks at after changes of users and bans, and maximum number of those
/// among them that are disconnected, or whose users are looked up again: about a millisecond. With a hundred
/// thousand connections the last one has its turn after some fifty rounds.
const LOOKED_AT: usize = 2_048;
const CHECKED: usize = 256;

/// Interval at which stale routes are removed.
const SWEEP: Duration = Duration::from_secs(10);

const MAILBOX: Token = Token(usize::MAX);

/// Bit of the token of a link to another broker over which a client's bytes pass. The rest is the token of the client.
const LINK: usize = 1 << (usize::BITS - 2);

/// Time that clients have to read their DISCONNECT and to close, at the end of the broker.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// One IO thread, before it runs.
pub struct EventLoop {
    poll: Poll,
    mailbox: Mailbox,
}

impl EventLoop {
    /// Creates the kernel objects that the thread needs.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let mailbox = Mailbox::new(Waker::new(poll.registry(), MAILBOX)?);
        Ok(Self { poll, mailbox })
    }

    /// Returns the thread as the other threads see it.
    pub fn as_thread(&self, watchdog: &Arc<Watchdog>) -> IoThread {
        IoThread::new(self.mailbox.clone(), Arc::clone(watchdog))
    }

    /// Starts the thread, whose index in `threads` is `me`.
    pub fn start(
        self,
        context: Context,
        shared: Arc<Shared>,
        threads: IoThreads,
        me: usize,
    ) -> JoinHandle<()> {
        let clock = context.engine.clock;
        let running = Running {
            poll: self.poll,
            owner: self.mailbox.as_owner(),
            keys: shared.clone(),
            mailbox: self.mailbox,
            me,
            threads,
            clock,
            context,
            shared,
            scratch: Scratch::default(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            slots: Slab::new(),
            by_id: HashMap::default(),
            timers: Timers::default(),
            again: Vec::new(),
            later: VecDeque::new(),
            accepted: VecDeque::new(),
            checks: Checks::default(),
            strangers: Duration::ZERO,
            turns: 1,
            writers: 0,
            turn_start: clock.instant(),
            balance: Balance::new(),
            at_limit: Vec::new(),
            next_sweep: MonoTime::default(),
            until: None,
        };
        thread::Builder::new()
            .name(format!("barid-io-{me}"))
            .spawn(move || running.run())
            .expect("the operating system has room for a thread")
    }
}

struct Running {
    poll: Poll,
    mailbox: Mailbox,
    /// The mailbox in the form that sessions and the verifier use.
    owner: Arc<dyn LoginOwner>,
    keys: Arc<dyn Keys>,
    me: usize,
    threads: IoThreads,
    clock: Clock,
    context: Context,
    shared: Arc<Shared>,
    scratch: Scratch,
    buffer: Box<[u8]>,
    slots: Slab<Slot>,
    /// The slot of each connection, which is also its token with the kernel.
    by_id: HashMap<ConnectionId, u32, foldhash::fast::FixedState>,
    timers: Timers,
    /// Connections that have more to read.
    again: Vec<ConnectionId>,
    /// Connections without a session that the kernel has reported, and whose turn was put off.
    later: VecDeque<ConnectionId>,
    /// Accepted connections that have had no turn yet.
    accepted: VecDeque<Accepted>,
    /// Changes after which connections are still to be checked.
    checks: Checks,
    /// Time that connections without a session have used in the present round.
    strangers: Duration,
    /// Approximate number of turns in the present round.
    turns: usize,
    /// Approximate number of clients to which the present round writes output that their sockets had no room
    /// for.
    writers: usize,
    /// End of the last turn, or start of the round.
    turn_start: Instant,
    balance: Balance,
    /// Clients at their limit that had a turn in this round.
    at_limit: Vec<ConnectionId>,
    next_sweep: MonoTime,
    /// Time at which the thread ends at the latest; `None`: it is not to end.
    until: Option<MonoTime>,
}

struct Slot {
    connection: Peer,
    /// Time at which a timer fires for the connection.
    armed: MonoTime,
    /// Whether the kernel reports that there is something to read. It does not while a quota holds the
    /// connection back, so that what arrives meanwhile costs nothing.
    is_read: bool,
    /// The window of [`Balance`] in which the connection last had a turn.
    active: u32,
    /// Whether the connection is in `again`.
    again: bool,
    /// What the kernel has reported, if the connection is in `later`.
    later: Option<Readiness>,
}

impl Running {
    fn run(mut self) {
        commit_by_rounds();
        self.mailbox.belongs_here();
        let mut events = Events::with_capacity(EVENTS);
        let mut posts = Vec::new();
        let engine = Arc::clone(&self.context.engine);
        while !self.is_done() {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!(%error, "cannot poll for events");
            }
            let _round = engine.rounds.begin(self.me);
            let start = self.clock.instant();
            self.context.worker.now = self.context.engine.clock.at(start);
            self.threads.get(self.me).watchdog().round_begins(start);
            self.turn_start = start;
            self.turns = events.iter().count() + self.again.len() + self.context.departures.len();
            self.writers = events.iter().filter(|event| event.is_writable()).count();
            self.strangers = Duration::ZERO;
            for event in &events {
                if event.token() == MAILBOX {
                    continue;
                }
                let key = event.token().0 & !LINK;
                let is_link = event.token().0 != key;
                // A connection that has more to read has its turn after the others. That turn does not know of the link.
                let waits = !is_link && self.slots.get(key).is_some_and(|slot| slot.again);
                let readiness = Readiness {
                    readable: event.is_readable() && !waits,
                    writable: event.is_writable(),
                    closed: event.is_read_closed() || event.is_error(),
                    broken: event.is_write_closed() || event.is_error(),
                };
                if is_link {
                    self.give_turn(key, |connection, turn, buffer| {
                        connection.on_link_event(turn, buffer, readiness)
                    });
                } else if !self.put_off(key, readiness) {
                    self.give_turn(key, |connection, turn, buffer| {
                        connection.on_event(turn, buffer, readiness)
                    });
                }
            }
            self.mailbox.collect(&mut posts);
            self.turns += posts.len();
            self.writers = posts.iter().filter(|post| matches!(post, Post::Drain(_))).count();
            for post in posts.drain(..) {
                self.on_post(post);
            }
            self.go_on_with_checks();
            for id in std::mem::take(&mut self.again) {
                let Some(key) = self.by_id.get(&id).map(|key| *key as usize) else { continue };
                self.slots[key].again = false;
                let readiness = Readiness { readable: true, ..Readiness::default() };
                if !self.put_off(key, readiness) {
                    self.give_turn(key, |connection, turn, buffer| {
                        connection.on_event(turn, buffer, readiness)
                    });
                }
            }
            self.serve_strangers();
            while let Some(id) = self.timers.pop_due(self.context.worker.now) {
                if let Some(slot) = self.by_id.get(&id) {
                    self.slots[*slot as usize].armed = NEVER;
                    self.give_turn_to(id, |connection, turn, buffer| {
                        connection.on_timer(turn, buffer)
                    });
                }
            }
            self.go_on_with_departures();
            let mut budget = Budget::new(self.clock, self.turn_start, 1);
            self.context.router.flush(&self.context.worker, &mut budget);
            self.context.engine.shards.end_round();
            self.forget_stale_routes();
            let helper = self.balance.worked(start, self.clock.instant(), self.me, &self.threads);
            if let Some(helper) = helper {
                self.unless_checks_are_due(|this| this.give_away(helper));
            }
            self.set_apart();
            self.threads.get(self.me).watchdog().round_ends();
        }
    }

    /// Puts off the turn of a connection without a session, if such connections have used up their share of
    /// the round. Returns whether the turn was put off. The connection keeps its place among those that were
    /// put off before.
    fn put_off(&mut self, key: usize, readiness: Readiness) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        if !slot.connection.is_stranger() || (self.strangers < STRANGERS && self.later.is_empty()) {
            return false;
        }
        match &mut slot.later {
            Some(later) => *later = later.and(readiness),
            None => {
                slot.later = Some(readiness);
                self.later.push_back(slot.connection.id());
            }
        }
        true
    }

    /// Gives turns to connections without a session, then to new ones, until their share of the round is used
    /// up.
    fn serve_strangers(&mut self) {
        while self.strangers < STRANGERS
            && let Some(id) = self.later.pop_front()
        {
            let slot = self.by_id.get(&id).and_then(|slot| self.slots.get_mut(*slot as usize));
            if let Some(readiness) = slot.and_then(|slot| slot.later.take()) {
                self.give_turn_to(id, |connection, turn, buffer| {
                    connection.on_event(turn, buffer, readiness)
                });
            }
        }
        while self.strangers < STRANGERS
            && let Some(accepted) = self.accepted.pop_front()
        {
            self.accept(accepted);
            let now = self.clock.instant();
            self.strangers += now - std::mem::replace(&mut self.turn_start, now);
        }
    }

    /// Checks more connections after changes of users and bans.
    fn go_on_with_checks(&mut self) {
        let mut checked = 0;
        for _ in 0..LOOKED_AT {
            let Some((place, changes)) = self.checks.next(self.slots.capacity()) else { return };
            let Some(slot) = self.slots.get(place) else { continue };
            let Some(consequence) = slot.connection.consequence(&self.shared, &changes) else {
                continue;
            };
            self.give_turn(place, |connection, turn, _| connection.apply(turn, &consequence));
            checked += 1;
            if checked == CHECKED {
                return;
            }
        }
    }

    /// Removes more subscriptions of sessions that have ended. Each such session has one turn's share of the
    /// round. So a client that ends many sessions and begins new ones cannot begin them faster than they are
    /// removed.
    fn go_on_with_departures(&mut self) {
        let departures = &mut self.context.departures;
        if !departures.is_empty() {
            let mut budget =
                Budget::new(self.clock, self.clock.instant(), self.turns / departures.len());
            departures.go_on(&mut budget);
            self.turn_start = self.clock.instant();
        }
    }

    fn forget_stale_routes(&mut self) {
        let now = self.context.worker.now;
        if now >= self.next_sweep {
            self.next_sweep = now.after(SWEEP);
            self.context.router.forget_stale();
        }
    }

    /// Returns the time by which a connection that is accepted now must be open.
    fn opens_until(&self) -> MonoTime {
        let timeout = self.shared.settings().limits.connect_timeout;
        self.context.worker.now.after(Duration::from_secs(u64::from(timeout)))
    }

    fn is_done(&self) -> bool {
        self.until.is_some_and(|until| self.slots.is_empty() || self.context.worker.now >= until)
    }

    fn patience(&self) -> Option<Duration> {
        let is_behind =
            !self.later.is_empty() || !self.accepted.is_empty() || self.mailbox.has_posts();
        let has_more = self.context.router.has_unflushed() || !self.context.departures.is_empty();
        if is_behind || !self.again.is_empty() || has_more || self.checks.are_pending() {
            return Some(Duration::ZERO);
        }
        let now = self.context.worker.now;
        let timers = self.timers.idle(now);
        // Bounds the wait, because an idle thread must not keep routes to sessions that have ended.
        let most = self.balance.patience().unwrap_or(SWEEP);
        let timers = timers.map_or(most, |idle| idle.min(most));
        match self.until {
            None => Some(timers),
            Some(until) => Some(timers.min(until.since(now))),
        }
    }

    fn on_post(&mut self, post: Post) {
        match post {
            Post::Accept(accepted) => self.accepted.push_back(*accepted),
            Post::Adopt(connection) => self.adopt(connection),
            Post::Drain(id) => {
                self.give_turn_to(id, |connection, turn, buffer| connection.on_drain(turn, buffer));
            }
            Post::Close { connection, reason, farewell } => {
                self.give_turn_to(connection, |connection, turn, _| {
                    connection.on_close(turn, reason, farewell)
                });
            }
            Post::Authenticated(id, outcome) => {
                self.give_turn_to(id, |connection, turn, buffer| {
                    connection.on_outcome(turn, outcome, buffer)
                });
            }
            Post::Stepped(id, step) => {
                self.give_turn_to(id, |connection, turn, buffer| {
                    connection.on_step(turn, step, buffer)
                });
            }
            Post::Renewed(id, number, standing) => {
                self.give_turn_to(id, |connection, turn, buffer| {
                    connection.on_renewed(turn, number, standing, buffer)
                });
            }
            Post::Relayed(id, link) => self.begin_relaying(id, link),
            Post::Check(change) => self.checks.add(change),
            Post::Shutdown => {
                self.until = Some(self.context.worker.now.after(FAREWELL));
                let ids: Vec<_> = self.slots.iter().map(|(_, slot)| slot.connection.id()).collect();
                for id in ids {
                    self.say_farewell(id);
                }
            }
        }
    }

    fn accept(&mut self, accepted: Accepted) {
        // MQTT clients are told that they are banned, when they send CONNECT.
        if accepted.listener.protocol == Protocol::Amqp
            && self.shared.bans.is_address_banned(accepted.peer.ip())
        {
            self.threads.get(self.me).connection_leaves();
            return;
        }
        let id = self.shared.next_connection_id();
        match Peer::new(accepted, id, self.opens_until(), &self.keys, &self.owner) {
            Ok(connection) => {
                self.insert(connection);
                self.say_farewell(id);
            }
            Err(error) => {
                warn!(%error, "cannot set up a connection");
                self.threads.get(self.me).connection_leaves();
            }
        }
    }

    /// Forgets a connection that has ended, and whose slot is vacant. `armed`: the time for which its timer is set.
    fn forget(&mut self, id: ConnectionId, socket: &Tcp, armed: MonoTime) {
        let _ = self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()));
        self.timers.set(id, armed, NEVER);
        self.by_id.remove(&id);
        self.threads.get(self.me).connection_leaves();
    }

    /// Gives a client the link to the broker that has its session, or the reason for which there is none.
    fn begin_relaying(&mut self, id: ConnectionId, link: Result<LinkStream, NoHome>) {
        let Some(key) = self.by_id.get(&id).map(|key| *key as usize) else { return };
        let link = link.and_then(|link| self.watch_link(key, link));
        self.give_turn(key, |connection, turn, buffer| connection.on_link(turn, link, buffer));
    }

    /// Registers a link with the kernel.
    fn watch_link(&self, key: usize, link: LinkStream) -> Result<(Arc<Tcp>, Transport), NoHome> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = link.into_parts().and_then(|(socket, tls)| {
            let socket = Arc::new(Tcp(mio::net::TcpStream::from_std(socket)));
            let (fd, token) = (socket.as_raw_fd(), Token(key | LINK));
            self.poll.registry().register(&mut SourceFd(&fd), token, interest)?;
            let transport = Transport::of_link(Arc::clone(&socket), tls);
            Ok((socket, transport))
        });
        registered.map_err(|error| {
            warn!(%error, "cannot register a link with the kernel");
            NoHome::Busy
        })
    }

    /// Takes over a connection from another thread.
    fn adopt(&mut self, connection: Peer) {
        let id = connection.id();
        if let Peer::Member(connection) = &connection {
            let owner: Arc<dyn Owner> = self.owner.clone();
            connection.begin(&owner);
        }
        self.insert(connection);
        // The kernel may not report again what it has reported to the other thread.
        let readiness = Readiness { readable: true, writable: true, ..Readiness::default() };
        self.give_turn_to(id, |connection, turn, buffer| {
            connection.on_event(turn, buffer, readiness)
        });
        self.say_farewell(id);
    }

    /// Disconnects a client if the thread is to end.
    fn say_farewell(&mut self, id: ConnectionId) {
        if self.until.is_some() {
            self.give_turn_to(id, |connection, turn, _| {
                connection.on_close(turn, ReasonCode::ServerShuttingDown, Farewell::InTurn)
            });
        }
    }

    fn insert(&mut self, connection: Peer) {
        let id = connection.id();
        let fd = connection.socket().as_raw_fd();
        let armed = connection.deadline().unwrap_or(NEVER);
        let key = self.slots.insert(Slot {
            connection,
            armed,
            is_read: true,
            active: self.balance.window(),
            again: false,
            later: None,
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), Token(key), interest)
        {
            warn!(%error, "cannot register a connection with the kernel");
            let mut slot = self.slots.remove(key);
            let mut turn = IoTurn {
                turn: Turn {
                    context: &mut self.context,
                    scratch: &mut self.scratch,
                    budget: Budget::new(self.clock, self.turn_start, self.turns),
                    writers: self.writers,
                },
                shared: &self.shared,
                owner: &self.owner,
            };
            slot.connection.on_close(&mut turn, ReasonCode::ServerUnavailable, Farewell::InTurn);
            self.threads.get(self.me).connection_leaves();
            return;
        }
        self.by_id.insert(id, u32::try_from(key).expect("there are fewer sockets than that"));
        self.timers.set(id, NEVER, armed);
    }

    /// Gives half of the active connections to a thread that is less busy. A publisher takes its only
    /// subscriber along, so that their messages need not cross threads.
    fn give_away(&mut self, helper: usize) {
        let last = self.balance.window().wrapping_sub(1);
        let owner: Arc<dyn Owner> = self.owner.clone();
        let active: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.active >= last && slot.connection.can_move())
            .map(|(_, slot)| (slot.connection.id(), slot.connection.partner(&owner)))
            .collect();
        let active_count = active.len();
        let (publishers, others): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|(_, partner)| partner.is_some());
        let mut moved = 0;
        for (index, (id, partner)) in publishers.into_iter().chain(others).enumerate() {
            if moved * 2 >= active_count {
                return;
            }
            if index % 2 == 1 {
                moved += usize::from(self.hand_over(id, helper));
                moved += partner.map_or(0, |id| usize::from(self.hand_over(id, helper)));
            }
        }
    }

    /// Gives clients at their limit to a thread of their own, so that the others do not share one with them.
    fn set_apart(&mut self) {
        if self.at_limit.is_empty() {
            return;
        }
        let at_limit = std::mem::take(&mut self.at_limit);
        let Some(apart) = self.threads.for_clients_at_limit(self.me) else { return };
        self.unless_checks_are_due(|this| {
            for id in at_limit {
                this.hand_over(id, apart);
            }
        });
    }

    /// Hands connections over with `act`, unless they must be checked after a change: then the other thread would not
    /// check them.
    fn unless_checks_are_due(&mut self, act: impl FnOnce(&mut Self)) {
        let threads = self.threads.clone();
        let _without_changes = threads.without_changes();
        if !self.checks.are_pending() && !self.mailbox.has_checks() {
            act(self);
        }
    }

    fn hand_over(&mut self, id: ConnectionId, helper: usize) -> bool {
        let Some(slot) = self.by_id.get(&id).copied() else { return false };
        if !self.slots[slot as usize].connection.can_move() {
            return false;
        }
        self.by_id.remove(&id);
        let Slot { connection, armed, .. } = self.slots.remove(slot as usize);
        self.timers.set(id, armed, NEVER);
        let fd = connection.socket().as_raw_fd();
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        let helper = self.threads.get(helper);
        match connection.move_to(helper.mailbox()) {
            Ok(()) => {
                helper.connection_comes();
                self.threads.get(self.me).connection_leaves();
                true
            }
            Err(connection) => {
                self.insert(connection);
                false
            }
        }
    }

    fn give_turn_to(
        &mut self,
        id: ConnectionId,
        turn: impl FnOnce(&mut Peer, &mut IoTurn<'_>, &mut [u8]) -> Next,
    ) {
        if let Some(slot) = self.by_id.get(&id) {
            self.give_turn(*slot as usize, turn);
        }
    }

    fn give_turn(
        &mut self,
        key: usize,
        act: impl FnOnce(&mut Peer, &mut IoTurn<'_>, &mut [u8]) -> Next,
    ) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.active = self.balance.window();
        let start = self.turn_start;
        let is_stranger = slot.connection.is_stranger();
        // Clients at their limit have short turns, so that their neighbours do not wait for them.
        let is_at_limit = slot.connection.is_at_limit(self.context.worker.now);
        let turns = if is_at_limit { self.turns.max(TURNS_AT_LIMIT) } else { self.turns };
        if is_at_limit && self.threads.for_clients_at_limit(self.me).is_some() {
            self.at_limit.push(slot.connection.id());
        }
        let mut turn = IoTurn {
            turn: Turn {
                context: &mut self.context,
                scratch: &mut self.scratch,
                budget: Budget::new(self.clock, start, turns),
                writers: self.writers,
            },
            shared: &self.shared,
            owner: &self.owner,
        };
        let next = act(&mut slot.connection, &mut turn, &mut self.buffer);
        let id = slot.connection.id();
        self.turn_start = self.clock.instant();
        if is_stranger {
            self.strangers += self.turn_start - start;
        }
        if self.threads.get(self.me).watchdog().turn(start, self.turn_start) {
            let took = self.turn_start - start;
            debug!(connection = id.0, millis = took.as_millis() as u64, "slow turn");
        }
        if next == Next::Gone {
            let Slot { connection, armed, .. } = self.slots.remove(key);
            return self.forget(id, connection.socket(), armed);
        }
        if next == Next::SpeaksAmqp {
            let Slot { connection, armed, is_read, active, again, later } = self.slots.remove(key);
            let connection = connection.speaking_amqp(self.opens_until(), &self.keys, &self.owner);
            let slot = Slot { connection, armed, is_read, active, again: true, later };
            assert_eq!(
                self.slots.insert(slot),
                key,
                "the kernel knows it by the place that was vacated last"
            );
            if !again {
                self.again.push(id);
            }
            return;
        }
        if next == Next::Relays {
            let Slot { connection, armed, is_read, active, again, later } = self.slots.remove(key);
            let (until, mailbox) = (self.opens_until(), self.mailbox.clone());
            let reply = Box::new(move |link| mailbox.post(Post::Relayed(id, link)));
            let socket = Arc::clone(connection.socket());
            let Some(connection) = connection.relayed(until, &self.shared, reply) else {
                return self.forget(id, &socket, armed);
            };
            let slot = Slot { connection, armed, is_read, active, again, later };
            assert_eq!(
                self.slots.insert(slot),
                key,
                "the kernel knows it by the place that was vacated last"
            );
            return;
        }
        if next == Next::Again && !slot.again {
            slot.again = true;
            self.again.push(id);
        }
        // A connection that is due again at once has its turn after the others.
        let soonest = self.context.worker.now.after(Duration::from_millis(1));
        if let Some(deadline) = slot.connection.deadline().map(|at| at.max(soonest))
            && deadline < slot.armed
        {
            let before = std::mem::replace(&mut slot.armed, deadline);
            self.timers.set(id, before, deadline);
        }
        let is_read = !slot.connection.is_unread();
        if is_read != slot.is_read {
            slot.is_read = is_read;
            let (fd, token) = (slot.connection.socket().as_raw_fd(), Token(key));
            let interest =
                if is_read { Interest::READABLE | Interest::WRITABLE } else { Interest::WRITABLE };
            if let Err(error) = self.poll.registry().reregister(&mut SourceFd(&fd), token, interest)
            {
                warn!(%error, "cannot register a connection with the kernel again");
            }
        }
    }
}
