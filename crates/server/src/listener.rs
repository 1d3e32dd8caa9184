//! Accepting connections: one thread, all listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tracing::warn;

use crate::event_loop::{IoThreads, Post};
use crate::transport::{Accepted, ListenerContext, Protocol};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long nothing is accepted when the operating system has run out of something.
const PAUSE: Duration = Duration::from_millis(50);

const STOP: Token = Token(usize::MAX);

/// A socket that listens.
#[derive(Debug)]
pub struct Listening {
    socket: TcpListener,
    context: Arc<ListenerContext>,
}

impl Listening {
    /// Listens on an address.
    pub fn bind(address: SocketAddr, context: Arc<ListenerContext>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { socket: TcpListener::from_std(socket.into()), context })
    }

    /// The address, with the port that the operating system chose if it was asked to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What it is for.
    pub fn context(&self) -> &Arc<ListenerContext> {
        &self.context
    }
}

/// The thread that accepts.
#[derive(Debug)]
pub struct Acceptor {
    thread: JoinHandle<()>,
    stop: Waker,
}

impl Acceptor {
    /// Starts to accept, and hands each connection to an IO thread.
    pub fn start(mut listeners: Vec<Listening>, threads: IoThreads) -> io::Result<Self> {
        let mut poll = Poll::new()?;
        for (index, listening) in listeners.iter_mut().enumerate() {
            let token = Token(index);
            poll.registry().register(&mut listening.socket, token, Interest::READABLE)?;
        }
        let stop = Waker::new(poll.registry(), STOP)?;
        let thread = thread::Builder::new().name("barid-accept".into()).spawn(move || {
            let mut events = Events::with_capacity(16);
            loop {
                let mut timeout = None;
                for listening in &listeners {
                    if let Err(error) = accept_all(listening, &threads) {
                        warn!(listener = listening.context.name, %error, "accepting");
                        timeout = Some(PAUSE);
                    }
                }
                if let Err(error) = poll.poll(&mut events, timeout)
                    && error.kind() != io::ErrorKind::Interrupted
                {
                    warn!(%error, "waiting for clients");
                }
                if events.iter().any(|event| event.token() == STOP) {
                    return;
                }
            }
        })?;
        Ok(Self { thread, stop })
    }

    /// Stops listening.
    pub fn stop(self) {
        if self.stop.wake().is_ok() {
            let _ = self.thread.join();
        }
    }
}

fn accept_all(listening: &Listening, threads: &IoThreads) -> io::Result<()> {
    loop {
        let (socket, peer) = match listening.socket.accept() {
            Ok(accepted) => accepted,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(()),
                // The client has gone already.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                _ => return Err(error),
            },
        };
        // Packets are written whole, so there is nothing to wait for.
        let _ = socket.set_nodelay(true);
        if listening.context.protocol == Protocol::Amqp {
            watch(&socket);
        }
        let accepted = Accepted { socket, peer, listener: Arc::clone(&listening.context) };
        let thread = threads.for_new_connection();
        thread.connection_comes();
        thread.mailbox().post(Post::Accept(Box::new(accepted)));
    }
}

/// Has the kernel find out whether the client's machine is still there: AMQP need not say anything for hours.
fn watch(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    let socket = SockRef::from(socket);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(120)));
}
