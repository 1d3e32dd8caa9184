//! The mailbox of an IO thread, through which other threads address it.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barid_auth::{Outcome, Standing, Step};
use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Farewell, Owner};
use mio::Waker;
use mqtt_proto::ReasonCode;
use parking_lot::Mutex;

use super::Peer;
use crate::cluster::{LinkStream, NoHome};
use crate::logins::{Change, LoginOwner};
use crate::transport::Accepted;

/// A message to an IO thread.
#[derive(Debug)]
pub enum Post {
    /// A listener has accepted a connection.
    Accept(Box<Accepted>),
    /// Another thread hands over a connection.
    Adopt(Peer),
    /// Something waits for the client of a connection, or its session may be able to continue.
    Drain(ConnectionId),
    /// The connection is to be closed, with a reason that an MQTT 5 client is told.
    Close {
        /// The connection to close.
        connection: ConnectionId,
        /// The reason.
        reason: ReasonCode,
        /// How the client is told the reason.
        farewell: Farewell,
    },
    /// The outcome of the login of a connection.
    Authenticated(ConnectionId, Outcome),
    /// What follows the first message of an enhanced authentication.
    Stepped(ConnectionId, Step),
    /// Whether the client of a connection may stay.
    Renewed(ConnectionId, u32, Standing),
    /// The link of a client to the broker that has its session, or why there is none.
    Relayed(ConnectionId, Result<LinkStream, NoHome>),
    /// Connected clients are to be checked after a change.
    Check(Change),
    /// All clients are to be disconnected, and the thread is to end.
    Shutdown,
}

/// The mailbox of one IO thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mailbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    posts: Mutex<Vec<Post>>,
    /// Whether there are posts that the thread has not collected. It has been woken then, or must not wait.
    woken: AtomicBool,
    waker: Waker,
}

thread_local! {
    /// The mailbox of this thread, if it is an IO thread.
    static OWN: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

impl Mailbox {
    /// Creates a mailbox whose thread is woken by `waker`.
    pub fn new(waker: Waker) -> Self {
        Self(Arc::new(Shared { posts: Mutex::default(), woken: AtomicBool::new(false), waker }))
    }

    /// The present thread collects the posts from now on. It asks whether it [has any](Self::has_posts) before it waits, so its own
    /// posts do not wake it: a system call.
    pub fn belongs_here(&self) {
        OWN.set(Arc::as_ptr(&self.0));
    }

    /// Whether there are posts that have not been collected.
    pub fn has_posts(&self) -> bool {
        self.0.woken.load(Ordering::Acquire)
    }

    /// Posts, and wakes the thread if it has not been woken already.
    pub fn post(&self, post: Post) {
        self.0.post(post);
    }

    /// Returns the thread as the owner of its connections.
    pub fn as_owner(&self) -> Arc<dyn LoginOwner> {
        Arc::clone(&self.0) as Arc<dyn LoginOwner>
    }

    /// Whether there is a post to check clients that has not been collected.
    pub fn has_checks(&self) -> bool {
        self.0.posts.lock().iter().any(|post| matches!(post, Post::Check(_)))
    }

    /// Moves all posts to the end of `into`.
    pub fn collect(&self, into: &mut Vec<Post>) {
        self.0.woken.store(false, Ordering::Release);
        into.append(&mut self.0.posts.lock());
    }
}

impl Shared {
    fn post(&self, post: Post) {
        self.posts.lock().push(post);
        if !self.woken.swap(true, Ordering::AcqRel) && !ptr::eq(OWN.get(), self) {
            // Waking fails only if the thread has ended. Nobody waits for the post then.
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
    fn authenticated(&self, connection: ConnectionId, outcome: Outcome) {
        self.post(Post::Authenticated(connection, outcome));
    }

    fn stepped(&self, connection: ConnectionId, step: Step) {
        self.post(Post::Stepped(connection, step));
    }

    fn renewed(&self, connection: ConnectionId, number: u32, standing: Standing) {
        self.post(Post::Renewed(connection, number, standing));
    }
}
