//! The AMQP connections of a tenant, to be counted and listed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use barid_core::time::WallTime;

use crate::ids::ConnectionId;
use crate::sync::Mutex;

/// AMQP connections of one tenant, in the order in which they were accepted. `max_connections` bounds them.
#[derive(Debug, Default)]
pub struct AmqpClients(Mutex<BTreeMap<u64, Arc<AmqpClient>>>);

/// One of them: open, and with a key that counts.
#[derive(Debug)]
pub struct AmqpClient {
    /// Which connection it is.
    pub id: ConnectionId,
    /// The name that the client gives its container, cut off after 96 bytes.
    pub container: String,
    /// The name of the first key that it has proved to have.
    pub key: String,
    /// Where the client is.
    pub peer: SocketAddr,
    /// Since when, by the wall clock.
    pub since: WallTime,
    /// Where the connection is told to end.
    pub connection: Arc<dyn Close>,
}

/// A connection that an operator may close.
pub trait Close: Send + Sync + fmt::Debug {
    /// Asks the thread of the connection to close it. The client is told that an operator wants it.
    fn close(&self);
}

impl AmqpClients {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The first `limit` of them behind the connection number `after`.
    pub fn page(&self, after: u64, limit: usize) -> Vec<Arc<AmqpClient>> {
        let behind = after.saturating_add(1);
        self.0.lock().range(behind..).take(limit).map(|(_, client)| Arc::clone(client)).collect()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Arc<AmqpClient>> {
        self.0.lock().get(&id).cloned()
    }
}

impl AmqpClient {
    /// Has the connection closed. The client is told that an operator wanted it.
    pub fn close(&self) {
        self.connection.close();
    }
}

/// A connection in the list of its tenant, until it is dropped.
#[derive(Debug)]
pub struct Listed {
    clients: Arc<AmqpClients>,
    id: u64,
}

impl Listed {
    /// Puts a connection into a list.
    pub fn new(clients: &Arc<AmqpClients>, client: AmqpClient) -> Self {
        let id = client.id.0;
        clients.0.lock().insert(id, Arc::new(client));
        Self { clients: Arc::clone(clients), id }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.id);
    }
}
