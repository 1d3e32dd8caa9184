//! The traces of all clients: what passes is looked at once, however many operators follow a client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;

use barid_engine::client_trace::ClientTrace;
use barid_engine::tapping::{Tap, Tapped, Tracer};
use barid_engine::tenant::Tenant;
use parking_lot::Mutex;

use super::recorder::{Direction, Recorder, What, Who};
use crate::framer::{Framer, HEAD_MAX};

/// Maximum number of connections of one client of which a new recorder is told: clients of AMQP may have many.
const CONNECTIONS_MAX: usize = 64;

/// The clients that are traced, by the number of their tenant and by their name.
#[derive(Debug, Default)]
pub struct Traces(Mutex<HashMap<(u64, Box<str>), Traced>>);

#[derive(Debug)]
struct Traced {
    hub: Arc<Hub>,
    trace: ClientTrace,
}

impl Traces {
    /// Has a recorder follow a client, until [`Self::end`].
    pub fn begin(&self, tenant: &Arc<Tenant>, client: &str, recorder: &Arc<Recorder>) -> Following {
        let key = (tenant.number, Box::from(client));
        let mut traces = self.0.lock();
        match traces.entry(key.clone()) {
            Entry::Occupied(traced) => traced.get().hub.add(recorder),
            Entry::Vacant(place) => {
                let hub = Arc::new(Hub::default());
                hub.add(recorder);
                let tracer = Arc::new(Connections(Arc::clone(&hub)));
                let trace = ClientTrace::begin(tenant, client, tracer);
                let trace = trace.expect("only this table has traces, and no client twice");
                place.insert(Traced { hub, trace });
            }
        }
        Following { key, recorder: Arc::clone(recorder) }
    }

    /// Ends what has begun.
    pub fn end(&self, Following { key, recorder }: &Following) {
        let mut traces = self.0.lock();
        let is_last = traces.get(key).is_some_and(|traced| traced.hub.remove(recorder));
        if is_last && let Some(traced) = traces.remove(key) {
            traced.trace.end();
        }
    }
}

/// A recorder that follows a client.
#[derive(Debug)]
pub struct Following {
    key: (u64, Box<str>),
    recorder: Arc<Recorder>,
}

/// The recorders that follow one client.
#[derive(Debug, Default)]
struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    recorders: Vec<Arc<Recorder>>,
    /// The connections that the client has now, the newest first.
    connections: Vec<(Who, SocketAddr)>,
}

impl Hub {
    fn add(&self, recorder: &Arc<Recorder>) {
        let mut state = self.0.lock();
        for &(who, peer) in &state.connections {
            recorder.change(who, What::Traced { peer, begins: false });
        }
        state.recorders.push(Arc::clone(recorder));
    }

    fn connected(&self, who: Who, peer: SocketAddr) {
        let connections = &mut self.0.lock().connections;
        connections.truncate(CONNECTIONS_MAX - 1);
        connections.insert(0, (who, peer));
    }

    /// Removes a recorder. Returns whether it was the last one.
    fn remove(&self, recorder: &Arc<Recorder>) -> bool {
        let mut state = self.0.lock();
        state.recorders.retain(|one| !Arc::ptr_eq(one, recorder));
        state.recorders.is_empty()
    }

    fn tell(&self, tell: impl Fn(&Recorder)) {
        self.0.lock().recorders.iter().for_each(|recorder| tell(recorder));
    }
}

/// Taps all connections of a client.
#[derive(Debug)]
struct Connections(Arc<Hub>);

impl Tracer for Connections {
    fn tap(&self, tapped: &Tapped<'_>) -> Arc<dyn Tap> {
        let Tapped { connection, protocol, peer, begins, .. } = *tapped;
        let (hub, who) = (Arc::clone(&self.0), (connection, protocol));
        hub.connected(who, peer);
        hub.tell(|recorder| recorder.change(who, What::Traced { peer, begins }));
        Arc::new(Connection { hub, who, sent: Mutex::new(Framer::new(protocol, HEAD_MAX)) })
    }
}

/// Taps one connection.
#[derive(Debug)]
struct Connection {
    hub: Arc<Hub>,
    who: Who,
    sent: Mutex<Framer>,
}

impl Connection {
    fn packets(&self, direction: Direction, framer: &mut Framer, bytes: &[u8]) {
        framer.feed(bytes, |head, bytes| {
            self.hub.tell(|recorder| recorder.packet(self.who, direction, bytes, head));
        });
    }
}

impl Tap for Connection {
    fn received(&self, bytes: &[u8]) {
        self.packets(Direction::Received, &mut Framer::new(self.who.1, HEAD_MAX), bytes);
    }

    fn sent(&self, bytes: &[u8]) {
        self.packets(Direction::Sent, &mut self.sent.lock(), bytes);
    }

    fn ended(&self, why: &str) {
        self.hub.0.lock().connections.retain(|(who, _)| who.0 != self.who.0);
        self.hub.tell(|recorder| recorder.change(self.who, What::Ended { reason: why.into() }));
    }
}
