//! Connections that delay what they carry, and break without the broker noticing.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

/// Number of a client.
pub type ClientId = usize;

/// Number of a network connection, unique in a history.
pub type LinkId = u32;

/// Returns the MQTT client identifier of a client.
pub fn client_id(client: ClientId) -> String {
    format!("c{client}")
}

/// Returns the client that has an MQTT client identifier.
pub fn client_of(client_id: &str) -> ClientId {
    client_id[1..].parse().expect("it was made of a number")
}

/// All connections of a world, with the packets in flight on them.
#[derive(Debug)]
pub struct Network<P> {
    wires: BTreeMap<LinkId, Wire<P>>,
    /// Broken connections that the broker has not noticed yet.
    unnoticed: Vec<(ClientId, LinkId)>,
    next_link: LinkId,
}

/// One connection.
#[derive(Debug)]
pub struct Wire<P> {
    /// The client that opened the connection.
    pub client: ClientId,
    /// Packets in flight to the broker, in the order in which they were sent.
    pub to_broker: VecDeque<P>,
    /// Packets in flight to the client, in the order in which they were sent.
    pub to_client: VecDeque<P>,
}

impl<P> Default for Network<P> {
    fn default() -> Self {
        Self { wires: BTreeMap::new(), unnoticed: Vec::new(), next_link: 0 }
    }
}

impl<P> Network<P> {
    /// Creates a connection of a client that has none.
    pub fn connect(&mut self, client: ClientId) {
        self.next_link += 1;
        let (to_broker, to_client) = (VecDeque::new(), VecDeque::new());
        self.wires.insert(self.next_link, Wire { client, to_broker, to_client });
    }

    /// Returns the connection with this number, if it has not broken.
    pub fn wire(&mut self, link: LinkId) -> Option<&mut Wire<P>> {
        self.wires.get_mut(&link)
    }

    /// Returns the client of a connection, if the connection has not broken.
    pub fn owner(&self, link: LinkId) -> Option<ClientId> {
        self.wires.get(&link).map(|wire| wire.client)
    }

    /// Returns the connection of a client, with its number.
    pub fn of(&mut self, client: ClientId) -> Option<(LinkId, &mut Wire<P>)> {
        let mut wires = self.wires.iter_mut();
        wires.find(|(_, wire)| wire.client == client).map(|(link, wire)| (*link, wire))
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.wires.len()
    }

    /// Returns a random connection.
    pub fn any(&self, rng: &mut Rng) -> Option<LinkId> {
        let count = self.wires.len();
        (count > 0).then(|| *self.wires.keys().nth(rng.usize(..count)).expect("it is there"))
    }

    /// Breaks a connection, and returns its client. The broker does not notice yet.
    pub fn cut(&mut self, link: LinkId) -> Option<ClientId> {
        let client = self.wires.remove(&link)?.client;
        self.unnoticed.push((client, link));
        Some(client)
    }

    /// Returns a random broken connection that the broker notices now, or `None` if it has noticed all.
    pub fn notice(&mut self, rng: &mut Rng) -> Option<(ClientId, LinkId)> {
        let count = self.unnoticed.len();
        (count > 0).then(|| self.unnoticed.swap_remove(rng.usize(..count)))
    }

    /// Breaks all connections, because the broker's process has ended. Returns their clients.
    pub fn collapse(&mut self) -> impl Iterator<Item = ClientId> + use<P> {
        self.unnoticed.clear();
        std::mem::take(&mut self.wires).into_values().map(|wire| wire.client)
    }

    /// Whether no packet is in flight.
    pub fn is_quiet(&self) -> bool {
        self.wires.values().all(|wire| wire.to_broker.is_empty() && wire.to_client.is_empty())
    }
}
