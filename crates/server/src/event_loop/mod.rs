//! An IO thread: waits for the kernel, its timers and its mailbox, and gives connections their turns.
//!
//! Connections are spread over the threads and stay where they are. See ADR 0001 for why these are
//! loops of our own and not tasks of a runtime.

mod mailbox;
mod timers;

pub use mailbox::{ConnectionId, Mailbox, Post};

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barid_core::time::Timestamp;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use mqtt_proto::ReasonCode;
use slab::Slab;
use tracing::warn;

use crate::connection::{Connection, Next, Readiness, Scratch, Turn};
use crate::lifecycle::Context;
use crate::transport::Accepted;
use timers::Timers;

/// Bytes read at a time. Larger brings nothing, smaller costs system calls (docs/performance.md).
const READ_BUFFER: usize = 64 * 1024;

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

const MAILBOX: Token = Token(usize::MAX);

/// How long clients have at the end to take their DISCONNECT and go.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// One IO thread, before it runs.
pub struct EventLoop {
    poll: Poll,
    mailbox: Mailbox,
    /// Connections of this thread, for whoever spreads new ones.
    load: Arc<AtomicUsize>,
}

impl EventLoop {
    /// Makes what the kernel has to make.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let mailbox = Mailbox::new(Waker::new(poll.registry(), MAILBOX)?);
        Ok(Self { poll, mailbox, load: Arc::default() })
    }

    /// Where to post for it.
    pub fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// How many connections it has.
    pub fn load(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.load)
    }

    /// Starts the thread.
    pub fn start(self, context: Context) -> JoinHandle<()> {
        let name = format!("barid-io-{}", context.worker.id);
        let running = Running {
            poll: self.poll,
            mailbox: self.mailbox,
            load: self.load,
            context,
            scratch: Scratch::default(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            slots: Slab::new(),
            timers: Timers::default(),
            again: Vec::new(),
            generation: 0,
            until: None,
        };
        thread::Builder::new()
            .name(name)
            .spawn(move || running.run())
            .expect("the operating system has room for a thread")
    }
}

struct Running {
    poll: Poll,
    mailbox: Mailbox,
    load: Arc<AtomicUsize>,
    context: Context,
    scratch: Scratch,
    buffer: Box<[u8]>,
    slots: Slab<Slot>,
    timers: Timers,
    /// Connections that have more to read.
    again: Vec<ConnectionId>,
    generation: u32,
    /// The thread is to end, at the latest then.
    until: Option<Timestamp>,
}

struct Slot {
    connection: Connection,
    /// The nearest time at which a timer will look at the connection.
    armed: Timestamp,
}

const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);

impl Running {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut posts = Vec::new();
        while !self.is_done() {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!(%error, "waiting for connections");
            }
            self.context.worker.now = self.context.worker.shared.clock.now();
            for event in &events {
                if event.token() == MAILBOX {
                    continue;
                }
                let readiness = Readiness {
                    readable: event.is_readable(),
                    writable: event.is_writable(),
                    closed: event.is_read_closed() || event.is_error(),
                };
                self.give_turn(event.token().0, |connection, turn, buffer| {
                    connection.on_event(turn, buffer, readiness)
                });
            }
            self.mailbox.collect(&mut posts);
            for post in posts.drain(..) {
                self.on_post(post);
            }
            for id in std::mem::take(&mut self.again) {
                self.give_turn_to(id, |connection, turn, buffer| {
                    let readiness = Readiness { readable: true, ..Readiness::default() };
                    connection.on_event(turn, buffer, readiness)
                });
            }
            while let Some(id) = self.timers.pop_due(self.context.worker.now) {
                if let Some(slot) = self.slots.get_mut(id.slot as usize)
                    && slot.connection.id() == id
                {
                    slot.armed = NEVER;
                    self.give_turn_to(id, |connection, turn, _| connection.on_timer(turn));
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.until.is_some_and(|until| self.slots.is_empty() || self.context.worker.now >= until)
    }

    fn patience(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.context.worker.shared.clock.now();
        let timers = self.timers.idle(now);
        match self.until {
            None => timers,
            Some(until) => Some(timers.map_or(until.since(now), |idle| idle.min(until.since(now)))),
        }
    }

    fn on_post(&mut self, post: Post) {
        match post {
            Post::Accept(accepted) => self.accept(*accepted),
            Post::Drain(id) => {
                self.give_turn_to(id, |connection, turn, buffer| connection.on_drain(turn, buffer));
            }
            Post::Close { connection, reason, tell } => {
                self.give_turn_to(connection, |connection, turn, _| {
                    connection.on_close(turn, reason, tell)
                });
            }
            Post::Authenticated(id, verdict) => {
                self.give_turn_to(id, |connection, turn, buffer| {
                    connection.on_verdict(turn, verdict, buffer)
                });
            }
            Post::Shutdown => {
                self.until = Some(self.context.worker.now.after(FAREWELL));
                let ids: Vec<_> = self.slots.iter().map(|(_, slot)| slot.connection.id()).collect();
                for id in ids {
                    self.give_turn_to(id, |connection, turn, _| {
                        connection.on_close(turn, ReasonCode::ServerShuttingDown, true)
                    });
                }
            }
        }
    }

    fn accept(&mut self, mut accepted: Accepted) {
        let entry = self.slots.vacant_entry();
        let slot = u32::try_from(entry.key()).expect("there are fewer sockets than that");
        self.generation = self.generation.wrapping_add(1);
        let id = ConnectionId { slot, generation: self.generation };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let connection = registry
            .register(&mut accepted.socket, Token(entry.key()), interest)
            .and_then(|()| Connection::new(accepted, id, &self.context));
        match connection {
            Ok(connection) => {
                let armed = connection.deadline().unwrap_or(NEVER);
                self.timers.set(armed, id);
                entry.insert(Slot { connection, armed });
            }
            Err(error) => {
                warn!(%error, "a connection cannot be served");
                self.load.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn give_turn_to(
        &mut self,
        id: ConnectionId,
        turn: impl FnOnce(&mut Connection, &mut Turn<'_>, &mut [u8]) -> Next,
    ) {
        let slot = self.slots.get(id.slot as usize);
        if slot.is_some_and(|slot| slot.connection.id() == id) {
            self.give_turn(id.slot as usize, turn);
        }
    }

    fn give_turn(
        &mut self,
        key: usize,
        act: impl FnOnce(&mut Connection, &mut Turn<'_>, &mut [u8]) -> Next,
    ) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let mut turn =
            Turn { context: &mut self.context, scratch: &mut self.scratch, mailbox: &self.mailbox };
        let next = act(&mut slot.connection, &mut turn, &mut self.buffer);
        if next == Next::Gone {
            let fd = slot.connection.socket().as_raw_fd();
            let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
            self.slots.remove(key);
            self.load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if next == Next::Again {
            self.again.push(slot.connection.id());
        }
        if let Some(deadline) = slot.connection.deadline()
            && deadline < slot.armed
        {
            slot.armed = deadline;
            self.timers.set(deadline, slot.connection.id());
        }
    }
}
