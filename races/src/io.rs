//! An IO thread: the thread that owns connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use barid_engine::budget::Budget;
use barid_engine::context::Context;
use barid_engine::ids::ConnectionId;
use barid_engine::mqtt::{Arrival, Client, End, admit, refuse};
use barid_engine::owner::{Farewell, Owner};
use barid_engine::turn::{Scratch, Turn};
use barid_engine::wire::Wire;
use mqtt_proto::{Connect, FixedHeader, MAX_PACKET_LEN, ReasonCode};
use shuttle::sync::{Condvar, Mutex};

use crate::wire::{Out, TestWire};

/// The mailbox of an IO thread.
#[derive(Debug, Default)]
pub struct IoThread {
    posts: Mutex<VecDeque<Post>>,
    posted: Condvar,
}

/// An event for an IO thread.
#[derive(Debug)]
pub enum Post {
    /// Bytes have arrived from a client.
    Bytes(ConnectionId, Vec<u8>, Arc<TestWire>),
    /// The client has made room for more bytes.
    Room(ConnectionId),
    /// The connection to the client is lost.
    Lost(ConnectionId),
    /// The connection is to move to another thread.
    Move(ConnectionId, Arc<IoThread>),
    /// This thread owns the connection from now on.
    Adopt(ConnectionId, Box<Connection>),
    Drain(ConnectionId),
    Close(ConnectionId, ReasonCode, Farewell),
    Stop,
}

/// A connection. It has a client after CONNECT was admitted.
#[derive(Debug)]
pub struct Connection {
    client: Option<Client>,
    wire: Arc<TestWire>,
    unread: Vec<u8>,
}

impl IoThread {
    /// Adds an event to the mailbox.
    pub fn post(&self, post: Post) {
        self.posts.lock().unwrap().push_back(post);
        self.posted.notify_one();
    }

    /// Ends the thread after it has handled all earlier events.
    pub fn stop(&self) {
        self.post(Post::Stop);
    }

    fn next(&self) -> Post {
        let mut posts = self.posts.lock().unwrap();
        loop {
            if let Some(post) = posts.pop_front() {
                return post;
            }
            posts = self.posted.wait(posts).unwrap();
        }
    }

    /// Handles events until [`Post::Stop`].
    pub fn run(self: Arc<Self>, mut context: Context) {
        let mut connections = BTreeMap::new();
        // The threads to which connections have moved. Events of the network are forwarded there.
        let mut moved: BTreeMap<ConnectionId, Arc<IoThread>> = BTreeMap::new();
        let mut scratch = Scratch::default();
        let engine = Arc::clone(&context.engine);
        loop {
            let post = self.next();
            if let Post::Bytes(id, ..) | Post::Room(id) | Post::Lost(id) | Post::Move(id, _) = &post
                && let Some(to) = moved.get(id)
            {
                to.post(post);
                continue;
            }
            let _round = engine.rounds.begin(context.worker.id);
            let mut turn = Turn {
                context: &mut context,
                scratch: &mut scratch,
                budget: Budget::unbounded(),
                writers: 2,
            };
            match post {
                Post::Bytes(id, bytes, wire) => {
                    let new = || Connection { client: None, wire, unread: Vec::new() };
                    connections.entry(id).or_insert_with(new).unread.extend_from_slice(&bytes);
                    self.handle(&mut turn, &mut connections, id);
                }
                Post::Room(id) => self.drain(&mut turn, &mut connections, id, true),
                Post::Drain(id) => self.drain(&mut turn, &mut connections, id, false),
                Post::Lost(id) => {
                    end(&mut turn, &mut connections, id, &End::Lost(ErrorKind::UnexpectedEof));
                }
                Post::Close(id, reason, farewell) => {
                    end(&mut turn, &mut connections, id, &End::Closed { reason, farewell });
                }
                Post::Move(id, to) => {
                    if give(&mut connections, id, &to) {
                        moved.insert(id, to);
                    }
                }
                Post::Adopt(id, connection) => {
                    moved.remove(&id);
                    connections.insert(id, *connection);
                    self.drain(&mut turn, &mut connections, id, true);
                    self.handle(&mut turn, &mut connections, id);
                }
                Post::Stop => return,
            }
            let Context { worker, router, departures, .. } = &mut context;
            router.flush(worker, &mut Budget::unbounded());
            departures.go_on(&mut Budget::unbounded());
        }
    }

    fn handle(
        self: &Arc<Self>,
        turn: &mut Turn<'_>,
        connections: &mut BTreeMap<ConnectionId, Connection>,
        id: ConnectionId,
    ) {
        let Some(Connection { client, wire, unread }) = connections.get_mut(&id) else { return };
        let mut out = Out(Arc::clone(wire));
        let mut result = Ok(());
        if client.is_none() {
            result = self.arrive(turn, &mut out, id, unread).map(|arrived| *client = Some(arrived));
        }
        if let (Ok(()), Some(client)) = (&result, &mut *client) {
            let mut bytes = std::mem::take(unread);
            let handled = client.handle(turn, &mut out, &mut bytes);
            result = handled.map(|handled| *unread = bytes.split_off(handled));
        }
        if let Err(why) = result {
            end(turn, connections, id, &why);
        }
    }

    fn drain(
        self: &Arc<Self>,
        turn: &mut Turn<'_>,
        connections: &mut BTreeMap<ConnectionId, Connection>,
        id: ConnectionId,
        writable: bool,
    ) {
        let Some(Connection { client: Some(client), wire, .. }) = connections.get_mut(&id) else {
            return;
        };
        client.drain(turn, &mut Out(Arc::clone(wire)), writable);
        if client.resume_reading() {
            self.handle(turn, connections, id);
        }
    }

    /// Handles the first packet, which arrives as a whole.
    fn arrive(
        self: &Arc<Self>,
        turn: &mut Turn<'_>,
        out: &mut Out,
        id: ConnectionId,
        unread: &mut Vec<u8>,
    ) -> Result<Client, End> {
        let header = FixedHeader::read(unread, MAX_PACKET_LEN)?.expect("it comes as a whole");
        let rest = unread.split_off(header.packet_len());
        let packet = std::mem::replace(unread, rest);
        let body = &packet[header.header_len..];
        let connect = Connect::decode(header, body)?;
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let arrival = Arrival {
            id,
            peer,
            listener: "explored",
            owner: Arc::clone(self) as _,
            wire: Some(Arc::clone(&out.0) as Arc<dyn Wire>),
            user: None,
            enhanced: None,
            permissions: None,
            assigned: None,
        };
        admit(turn, out, arrival, &connect, body.len())
            .map_err(|refusal| refuse(turn.context, out, peer, &connect, &refusal, |_| false))
    }
}

/// Gives a connection to another thread. Returns false if the connection does not exist or is about to be
/// closed here.
fn give(
    connections: &mut BTreeMap<ConnectionId, Connection>,
    id: ConnectionId,
    to: &Arc<IoThread>,
) -> bool {
    let Some(connection) = connections.remove(&id) else { return false };
    let client = connection.client.as_ref().expect("it has been admitted");
    let (session, epoch) = client.attachment();
    let mut kept = Some(Box::new(connection));
    session.change_owner(epoch, Arc::clone(to) as _, || {
        to.post(Post::Adopt(id, kept.take().expect("it is given once")));
    });
    match kept {
        Some(kept) => {
            connections.insert(id, *kept);
            false
        }
        None => true,
    }
}

fn end(
    turn: &mut Turn<'_>,
    connections: &mut BTreeMap<ConnectionId, Connection>,
    id: ConnectionId,
    why: &End,
) {
    let Some(Connection { client, wire, .. }) = connections.get_mut(&id) else { return };
    let out = &mut Out(Arc::clone(wire));
    // A connection whose session was taken over stays until it gets `Post::Close`.
    if client.as_mut().is_none_or(|client| client.end(turn, out, why)) {
        wire.end();
        connections.remove(&id);
    }
}

impl Owner for IoThread {
    fn drain(&self, connection: ConnectionId) {
        self.post(Post::Drain(connection));
    }

    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell) {
        self.post(Post::Close(connection, reason, farewell));
    }
}
