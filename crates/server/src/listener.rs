//! Accepting of connections: one thread for all listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tracing::warn;

use crate::descriptors::Descriptors;
use crate::event_loop::{IoThreads, Post};
use crate::rate_limit::Seldom;
use crate::transport::{Accepted, ListenerContext, Protocol};

/// Maximum number of connections that wait to be accepted, for each listener.
const BACKLOG: i32 = 4096;

/// Pause in accepting when the operating system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections accepted from one listener before the others have their turn.
const ACCEPTED_TOGETHER: usize = 256;

const STOP: Token = Token(usize::MAX);

/// An address that is bound but not listening: no client can connect.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
    address: SocketAddr,
}

impl Bound {
    /// Binds an address.
    ///
    /// Two sockets can be bound to one address as long as neither listens. So a conflict with another broker
    /// that starts at the same time may not be noticed before [`Bound::listen`].
    pub fn to(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, address })
    }

    /// Returns the bound address. If port 0 was asked for, its port is the one that the operating system
    /// chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen, so that clients can connect.
    pub fn listen(self) -> io::Result<std::net::TcpListener> {
        self.socket.listen(BACKLOG)?;
        Ok(self.socket.into())
    }
}

/// A socket that listens, with the context of its listener.
#[derive(Debug)]
pub struct Listening {
    socket: TcpListener,
    context: Arc<ListenerContext>,
}

impl Listening {
    /// Combines a listening socket with the context of its listener.
    pub fn new(socket: std::net::TcpListener, context: Arc<ListenerContext>) -> Self {
        Self { socket: TcpListener::from_std(socket), context }
    }
}

/// The thread that accepts, before it runs.
#[derive(Debug)]
pub struct Acceptor {
    poll: Poll,
    stop: Waker,
}

/// The thread that accepts.
#[derive(Debug)]
pub struct Accepting {
    thread: JoinHandle<()>,
    stop: Waker,
}

impl Acceptor {
    /// Creates the kernel objects that the thread needs.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let stop = Waker::new(poll.registry(), STOP)?;
        Ok(Self { poll, stop })
    }

    /// Registers a listener with the kernel, before it is served.
    pub fn watch(&self, index: usize, listening: &mut Listening) -> io::Result<()> {
        self.poll.registry().register(&mut listening.socket, Token(index), Interest::READABLE)
    }

    /// Starts the thread, which accepts connections and hands each one to an IO thread. `refused` counts
    /// connections that were closed at once because too few file descriptors were left.
    pub fn start(
        self,
        listeners: Vec<Listening>,
        threads: IoThreads,
        descriptors: Descriptors,
        refused: Arc<AtomicU64>,
    ) -> Accepting {
        let serving = Serving {
            listeners,
            threads,
            descriptors,
            refused,
            too_few: Seldom::default(),
            failed: Seldom::default(),
        };
        let poll = self.poll;
        let thread = thread::Builder::new()
            .name("barid-accept".into())
            .spawn(move || serving.run(poll))
            .expect("the operating system has room for a thread");
        Accepting { thread, stop: self.stop }
    }
}

impl Accepting {
    /// Stops the thread, and with it the listening.
    pub fn stop(self) {
        if self.stop.wake().is_ok() {
            let _ = self.thread.join();
        }
    }
}

/// The state of the accepting thread.
struct Serving {
    listeners: Vec<Listening>,
    threads: IoThreads,
    descriptors: Descriptors,
    refused: Arc<AtomicU64>,
    /// Rate limit for the warning that connections were closed for lack of file descriptors.
    too_few: Seldom,
    /// Rate limit for the warning that the operating system refuses to accept.
    failed: Seldom,
}

impl Serving {
    fn run(mut self, mut poll: Poll) {
        let mut events = Events::with_capacity(16);
        loop {
            let mut timeout = None;
            for index in 0..self.listeners.len() {
                match self.accept_some(index) {
                    Ok(false) => {}
                    Ok(true) => timeout = timeout.or(Some(Duration::ZERO)),
                    Err(error) => {
                        timeout = Some(PAUSE);
                        if let Some(times) = self.failed.happened(Instant::now()) {
                            let listener = self.listeners[index].context.name;
                            warn!(listener, %error, times, "cannot accept connections");
                        }
                    }
                }
            }
            if let Err(error) = poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!(%error, "cannot poll for events");
            }
            if events.iter().any(|event| event.token() == STOP) {
                return;
            }
        }
    }

    /// Accepts connections from one listener. Returns true if there may be more.
    fn accept_some(&mut self, index: usize) -> io::Result<bool> {
        let Listening { socket: listener, context } = &self.listeners[index];
        for _ in 0..ACCEPTED_TOGETHER {
            let (socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    // The client has closed the connection already.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                },
            };
            if !self.descriptors.are_enough_for_client(&socket) {
                drop(socket);
                self.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(connections) = self.too_few.happened(Instant::now()) {
                    warn!(
                        connections,
                        limit = self.descriptors.limit(),
                        reserved = self.descriptors.reserve(),
                        "closed connections at once: only the file descriptors reserved for the broker are left; \
                         raise the limit (`ulimit -n`, systemd: LimitNOFILE)"
                    );
                }
                continue;
            }
            // Packets are written whole, so Nagle's algorithm would only delay them.
            let _ = socket.set_nodelay(true);
            if context.protocol == Protocol::Amqp {
                watch(&socket);
            }
            let listener = Arc::clone(context);
            let accepted = Accepted { socket, peer, listener, passed_on: None, tls: None };
            let thread = self.threads.for_new_connection();
            thread.connection_comes();
            thread.mailbox().post(Post::Accept(Box::new(accepted)));
        }
        Ok(true)
    }
}

/// Enables TCP keepalive, so that the kernel detects that the client's machine is gone: an AMQP client may be
/// silent for hours.
fn watch(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    let socket = SockRef::from(socket);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(120)));
}
