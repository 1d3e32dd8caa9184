//! How other threads speak to an IO thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Farewell, Owner};
use mio::Waker;
use mqtt_proto::ReasonCode;
use parking_lot::Mutex;

use super::Peer;
use crate::auth::Verdict;
use crate::transport::Accepted;
use crate::verifier::LoginOwner;

/// What an IO thread can be told.
#[derive(Debug)]
pub enum Post {
    /// A client has connected.
    Accept(Box<Accepted>),
    /// A connection of another thread, which gives it away.
    Adopt(Peer),
    /// Something waits for the client of a connection.
    Drain(ConnectionId),
    /// The connection is to be closed, for a reason that an MQTT 5 client is told.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: ReasonCode,
        /// How the client is told.
        farewell: Farewell,
    },
    /// What became of a connection's authentication.
    Authenticated(ConnectionId, Verdict),
    /// All clients are to be disconnected, and the thread is to end.
    Shutdown,
}

/// Where to post for one IO thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mailbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    posts: Mutex<Vec<Post>>,
    /// The thread has been woken and has not looked yet.
    woken: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    /// A mailbox whose thread `waker` wakes.
    pub fn new(waker: Waker) -> Self {
        Self(Arc::new(Shared { posts: Mutex::default(), woken: AtomicBool::new(false), waker }))
    }

    /// Posts, and wakes the thread if it does not know yet that there is post.
    pub fn post(&self, post: Post) {
        self.0.post(post);
    }

    /// The thread as the owner of connections.
    pub fn as_owner(&self) -> Arc<dyn LoginOwner> {
        Arc::clone(&self.0) as Arc<dyn LoginOwner>
    }

    /// Takes all that was posted.
    pub fn collect(&self, into: &mut Vec<Post>) {
        self.0.woken.store(false, Ordering::Release);
        into.append(&mut self.0.posts.lock());
    }
}

impl Shared {
    fn post(&self, post: Post) {
        self.posts.lock().push(post);
        if !self.woken.swap(true, Ordering::AcqRel) {
            // A waker fails only if the thread is gone, and then nobody waits for the post.
            let _ = self.waker.wake();
        }
    }
}

impl Owner for Shared {
    fn drain(&self, connection: ConnectionId) {
        self.post(Post::Drain(connection));
    }

    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell) {
        self.post(Post::Close { connection, reason, farewell });
    }
}

impl LoginOwner for Shared {
    fn authenticated(&self, connection: ConnectionId, verdict: Verdict) {
        self.post(Post::Authenticated(connection, verdict));
    }
}
