//! Connections that delay what they carry, and break without the broker noticing.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

/// Which client.
pub type ClientId = usize;

/// Which network connection, of all in a history.
pub type LinkId = u32;

/// The MQTT client identifier of a client.
pub fn client_id(client: ClientId) -> String {
    format!("c{client}")
}

/// The client of an MQTT client identifier.
pub fn client_of(client_id: &str) -> ClientId {
    client_id[1..].parse().expect("it was made of a number")
}

/// All connections of a world, and what is on its way on them.
#[derive(Debug)]
pub struct Network<P> {
    wires: BTreeMap<LinkId, Wire<P>>,
    /// Connections that have gone without the broker having noticed.
    unnoticed: Vec<(ClientId, LinkId)>,
    next_link: LinkId,
}

/// One connection.
#[derive(Debug)]
pub struct Wire<P> {
    /// Whose.
    pub client: ClientId,
    /// In the order in which it was sent, as the other direction.
    pub to_broker: VecDeque<P>,
    pub to_client: VecDeque<P>,
}

impl<P> Default for Network<P> {
    fn default() -> Self {
        Self { wires: BTreeMap::new(), unnoticed: Vec::new(), next_link: 0 }
    }
}

impl<P> Network<P> {
    /// A new connection of a client that has none.
    pub fn connect(&mut self, client: ClientId) {
        self.next_link += 1;
        let (to_broker, to_client) = (VecDeque::new(), VecDeque::new());
        self.wires.insert(self.next_link, Wire { client, to_broker, to_client });
    }

    /// One of the connections, if it has not gone.
    pub fn wire(&mut self, link: LinkId) -> Option<&mut Wire<P>> {
        self.wires.get_mut(&link)
    }

    /// Whose a connection is, if it has not gone.
    pub fn owner(&self, link: LinkId) -> Option<ClientId> {
        self.wires.get(&link).map(|wire| wire.client)
    }

    /// The connection of a client.
    pub fn of(&mut self, client: ClientId) -> Option<(LinkId, &mut Wire<P>)> {
        let mut wires = self.wires.iter_mut();
        wires.find(|(_, wire)| wire.client == client).map(|(link, wire)| (*link, wire))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.wires.len()
    }

    /// Any of them.
    pub fn any(&self, rng: &mut Rng) -> Option<LinkId> {
        let count = self.wires.len();
        (count > 0).then(|| *self.wires.keys().nth(rng.usize(..count)).expect("it is there"))
    }

    /// A connection breaks. Tells whose it was; the broker has not noticed yet.
    pub fn cut(&mut self, link: LinkId) -> Option<ClientId> {
        let client = self.wires.remove(&link)?.client;
        self.unnoticed.push((client, link));
        Some(client)
    }

    /// The broker notices that one has gone, if it has not noticed all.
    pub fn notice(&mut self, rng: &mut Rng) -> Option<(ClientId, LinkId)> {
        let count = self.unnoticed.len();
        (count > 0).then(|| self.unnoticed.swap_remove(rng.usize(..count)))
    }

    /// The broker's process has gone, and all connections with it. Tells whose they were.
    pub fn collapse(&mut self) -> impl Iterator<Item = ClientId> + use<P> {
        self.unnoticed.clear();
        std::mem::take(&mut self.wires).into_values().map(|wire| wire.client)
    }

    /// Whether nothing is on its way.
    pub fn is_quiet(&self) -> bool {
        self.wires.values().all(|wire| wire.to_broker.is_empty() && wire.to_client.is_empty())
    }
}
