//! Clients of this broker that use the state store of another one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use mqtt_proto::ReasonCode;

use crate::access::Permissions;
use crate::ids::ConnectionId;
use crate::session::{Session, SessionRef};
use crate::sync::Mutex;

/// The clients of this broker that have asked the state store of another one.
#[derive(Debug, Default)]
pub struct Inquirers {
    all: Mutex<HashMap<ConnectionId, Inquirer>>,
    /// Whether there has ever been one.
    had_any: AtomicBool,
}

/// A client that has asked the state store of another broker.
#[derive(Clone, Debug)]
pub struct Inquirer {
    /// Its session.
    pub session: Weak<Session>,
    /// The permissions of the user; `None`: everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// Its requests that have not been answered.
    pub pending: Arc<Pending>,
}

/// Counts the requests of a client that another broker has not answered. A client is read from only as fast as it is
/// answered: responses may be much larger than requests.
#[derive(Debug, Default)]
pub struct Pending(AtomicUsize);

/// Number of unanswered requests of a client from which on it is not read from.
const PENDING_MAX: usize = 16;

impl Pending {
    /// A request is sent.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there are so many that the client is not to be read from.
    pub(crate) fn are_many(&self) -> bool {
        self.0.load(Ordering::Acquire) >= PENDING_MAX
    }

    /// Requests have been answered. Returns whether the client may be read from again.
    pub(crate) fn remove(&self, count: usize) -> bool {
        let before = self.0.fetch_sub(count, Ordering::AcqRel);
        before >= PENDING_MAX && before - count < PENDING_MAX
    }
}

impl Inquirers {
    /// Notes a client, or its new permissions.
    pub fn put(&self, connection: ConnectionId, inquirer: Inquirer) {
        self.had_any.store(true, Ordering::Relaxed);
        self.all.lock().insert(connection, inquirer);
    }

    /// Whether there has ever been one.
    pub(crate) fn had_any(&self) -> bool {
        self.had_any.load(Ordering::Relaxed)
    }

    /// Forgets a client, whose connection has ended.
    pub fn remove(&self, connection: ConnectionId) {
        self.all.lock().remove(&connection);
    }

    /// Ends the connections of all these clients: the broker with the state store is down, and with it their watches and
    /// what it had not answered.
    pub fn disconnect(&self) {
        let all: Vec<_> = self.all.lock().drain().collect();
        for (connection, inquirer) in all {
            if let Some(session) = SessionRef::upgrade(&inquirer.session)
                && session.is_owned_by(connection)
            {
                session.close_connection(ReasonCode::ServerBusy);
            }
        }
    }

    pub(crate) fn find(&self, connection: ConnectionId) -> Option<(SessionRef, Inquirer)> {
        let inquirer = self.all.lock().get(&connection).cloned()?;
        let session = SessionRef::upgrade(&inquirer.session)?;
        session.is_owned_by(connection).then_some((session, inquirer))
    }
}
