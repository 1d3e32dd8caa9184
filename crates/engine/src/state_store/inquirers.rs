//! Clients of this broker that use the state store of another one, and clients with watches, which may move to another one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::{HashMap, HashSet};
use mqtt_proto::ReasonCode;
use statestore_proto::Verb;

use crate::access::Permissions;
use crate::ids::ConnectionId;
use crate::session::{Requests, Session, SessionRef};
use crate::sync::Mutex;

/// The clients of this broker that have asked the state store of another one, or watch keys.
#[derive(Debug, Default)]
pub struct Inquirers {
    all: Mutex<HashMap<ConnectionId, Inquirer>>,
    /// Keys that they watch and that have come to this broker.
    adopted: Mutex<HashMap<ConnectionId, HashSet<Box<[u8]>>>>,
    /// Whether there has ever been one.
    had_any: AtomicBool,
}

/// A client that has asked the state store of another broker, or watches keys.
#[derive(Clone, Debug)]
pub struct Inquirer {
    /// Its session.
    pub session: Weak<Session>,
    /// The permissions of the user; `None`: everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// The requests of its connection.
    pub requests: Arc<Requests>,
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
        (connection, client_id): (ConnectionId, &str),
        key: &[u8],
        watch: impl FnOnce(Weak<Session>),
        unwatch: impl FnOnce(),
    ) {
        let find = || {
            let (session, inquirer) = self.find(connection)?;
            let permissions = inquirer.permissions.as_deref();
            let may_watch = permissions.is_none_or(|own| own.may_touch(Verb::KeyNotify, key));
            (*session.client_id == *client_id && may_watch).then_some(session)
        };
        let Some(session) = find() else { return };
        watch(session.downgrade());
        self.adopted.lock().entry(connection).or_default().insert(key.into());
        // The client may have ended meanwhile, or lost the right, and not have seen this key.
        if find().is_none() {
            if let Some(keys) = self.adopted.lock().get_mut(&connection) {
                keys.remove(key);
            }
            unwatch();
        }
    }

    /// Returns the keys that a client watches and that have come to this broker since the last call.
    pub(crate) fn take_adopted(&self, connection: ConnectionId) -> HashSet<Box<[u8]>> {
        self.adopted.lock().remove(&connection).unwrap_or_default()
    }

    /// Ends the connections of all these clients: the broker with the state store is down, and with it their watches and
    /// what it had not answered.
    pub fn disconnect(&self) {
        let all = self.all.lock().drain().collect();
        Self::close(all);
    }

    fn close(all: Vec<(ConnectionId, Inquirer)>) {
        for (connection, inquirer) in all {
            if let Some(session) = SessionRef::upgrade(&inquirer.session)
                && session.is_owned_by(connection)
            {
                session.close_connection(ReasonCode::ServerBusy);
            }
        }
    }

    /// Ends the connections of those whose requests the broker at a place has not answered: it is down.
    pub(crate) fn disconnect_unanswered(&self, place: u8) {
        let all: Vec<_> =
            self.all.lock().extract_if(|_, inquirer| inquirer.requests.wait_for(place)).collect();
        Self::close(all);
    }

    /// Ends the connection of one of them, whose watches are gone.
    pub(crate) fn disconnect_one(&self, connection: ConnectionId, client_id: &str) {
        let session = self.find(connection).map(|(session, _)| session);
        if let Some(session) = session.filter(|session| *session.client_id == *client_id) {
            session.close_connection(ReasonCode::ServerBusy);
        }
    }

    pub(crate) fn find(&self, connection: ConnectionId) -> Option<(SessionRef, Inquirer)> {
        let inquirer = self.all.lock().get(&connection).cloned()?;
        let session = SessionRef::upgrade(&inquirer.session)?;
        session.is_owned_by(connection).then_some((session, inquirer))
    }
}
