//! Clients of this broker that use the state store of another one, or may do so when it has moved.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use mqtt_proto::ReasonCode;

use crate::access::Permissions;
use crate::ids::ConnectionId;
use crate::session::{Session, SessionRef};
use crate::sync::Mutex;

/// The clients of this broker that have asked the state store of another one, or watch keys.
#[derive(Debug, Default)]
pub struct Inquirers {
    all: Mutex<HashMap<ConnectionId, Inquirer>>,
    /// Keys that they watch and that have come to this broker.
    adopted: Mutex<HashMap<ConnectionId, Vec<Box<[u8]>>>>,
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

    /// Forgets a client, whose connection has ended. The keys that it has [adopted](Self::take_adopted) stay.
    pub fn remove(&self, connection: ConnectionId) {
        self.all.lock().remove(&connection);
    }

    /// A key that a client watches has come to this broker. `watch` notes the watch in the state store, and `unwatch` ends it.
    pub(crate) fn adopt(
        &self,
        connection: ConnectionId,
        key: &[u8],
        watch: impl FnOnce(Weak<Session>),
        unwatch: impl FnOnce(),
    ) {
        let Some((session, _)) = self.find(connection) else { return };
        watch(session.downgrade());
        self.adopted.lock().entry(connection).or_default().push(key.into());
        if self.find(connection).is_none() {
            // It has ended meanwhile, and has perhaps not seen this key.
            self.adopted.lock().remove(&connection);
            unwatch();
        }
    }

    /// Returns the keys that a client watches and that have come to this broker since the last call.
    pub(crate) fn take_adopted(&self, connection: ConnectionId) -> Vec<Box<[u8]>> {
        self.adopted.lock().remove(&connection).unwrap_or_default()
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
