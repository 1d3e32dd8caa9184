//! The AMQP connections of a tenant, for counting and listing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use barid_core::time::WallTime;

use crate::client_traffic::ClientTraffic;
use crate::ids::ConnectionId;
use crate::sync::Mutex;

/// AMQP connections of one tenant, in the order in which they were accepted. Their number is bounded by
/// `max_connections`.
#[derive(Debug, Default)]
pub struct AmqpClients(Mutex<BTreeMap<u64, Arc<AmqpClient>>>);

/// An AMQP connection that is open, with a valid key or as a user.
#[derive(Debug)]
pub struct AmqpClient {
    /// The number of the connection.
    pub id: ConnectionId,
    /// The container id of the client, cut off after 96 bytes.
    pub container: String,
    /// The name of the key that the client had proved last when it was listed; normally its first key. `None`: it
    /// had proved none.
    pub key: Option<String>,
    /// The name of the user that the client is; `None`: it has only a key.
    pub user: Option<String>,
    /// The address of the client.
    pub peer: SocketAddr,
    /// Wall time at which the connection was listed, which is when it was open and had a key or a user.
    pub since: WallTime,
    /// The handle that closes the connection.
    pub connection: Arc<dyn Close>,
    /// The messages of the connection since it was listed.
    pub traffic: ClientTraffic,
}

/// A connection that other threads may close or wake.
pub trait Close: Send + Sync + fmt::Debug {
    /// Asks the thread of the connection to close it. The client is told that an operator wants it.
    fn close(&self);

    /// Wakes the thread of the connection, so that it gives the connection a turn.
    fn wake(&self);
}

impl AmqpClients {
    /// The number of connections.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns the first `limit` connections behind the connection number `after`.
    pub fn page(&self, after: u64, limit: usize) -> Vec<Arc<AmqpClient>> {
        let behind = after.saturating_add(1);
        self.0.lock().range(behind..).take(limit).map(|(_, client)| Arc::clone(client)).collect()
    }

    /// Wakes all connections: the quotas of the tenant have changed.
    pub(crate) fn wake_all(&self) {
        let clients: Vec<_> = self.0.lock().values().cloned().collect();
        clients.iter().for_each(|client| client.connection.wake());
    }

    /// Returns the connection with this number.
    pub fn get(&self, id: u64) -> Option<Arc<AmqpClient>> {
        self.0.lock().get(&id).cloned()
    }
}

impl AmqpClient {
    /// Asks the connection's thread to close it. The client is told that an operator wants it.
    pub fn close(&self) {
        self.connection.close();
    }
}

/// The entry of a connection in the list of its tenant. Removed from the list when dropped.
#[derive(Debug)]
pub struct Listed {
    clients: Arc<AmqpClients>,
    client: Arc<AmqpClient>,
}

impl Listed {
    /// Adds a connection to a list.
    pub fn new(clients: &Arc<AmqpClients>, client: AmqpClient) -> Self {
        let client = Arc::new(client);
        clients.0.lock().insert(client.id.0, Arc::clone(&client));
        Self { clients: Arc::clone(clients), client }
    }

    /// The messages of the connection.
    pub fn traffic(&self) -> &ClientTraffic {
        &self.client.traffic
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.client.id.0);
    }
}
