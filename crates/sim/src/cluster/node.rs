//! One broker of a cluster.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use barid_core::time::MonoTime;
use barid_engine::cluster::{Cluster, ClusterSize, MemberRef, Slots, Teller};
use barid_engine::ids::ConnectionId;
use barid_engine::links::{Membership, NewLife, Watcher};
use barid_engine::owner::{Farewell, Owner};
use barid_peers::{
    CommonSettings, Event, Frame, FrameError, Identity, Members, Object, Placement, Timing,
    origin_of,
};
use barid_store::memory::Disk;
use mqtt_proto::ReasonCode;
use parking_lot::Mutex;

use crate::environment::RANDOM;
use crate::messages::codec;
use crate::network::{ClientId, LinkId};
use crate::packets::messages::Packet;
use crate::packets::state_store::Packet as Asked;
use crate::process::{Process, Settings, TENANT};
use crate::rules::Rules;
use crate::state_store::codec as asked;

/// Maximum number of other brokers, more than a history has.
const MEMBERS_MAX: usize = 8;

/// The tenant of the clients of the state store, and their user name. Others do not get their responses.
pub const ASKERS: &str = "askers";
const USER: &str = "askers/one";

/// One broker: its process, and its place in the cluster.
pub struct Node {
    pub process: Process,
    pub membership: Membership,
    /// The thread that has the connections of its message links.
    pub owner: Arc<LinkThread>,
    watch: Watch,
    connected: Arc<Mutex<VecDeque<Connected>>>,
}

/// A client that has connected.
pub struct Connected {
    client: String,
    at: u64,
    begins_anew: bool,
}

/// An event of which a broker was told.
#[derive(Debug)]
pub enum Happened {
    /// It has seen this of another one.
    Seen(Event),
    /// It has begun a new life.
    NewLife,
}

impl Node {
    /// Starts the broker with this index from its disks.
    pub fn start(
        index: usize,
        placement: &Placement,
        (disks, settings, rules): (&[Disk], &Settings, Rules),
        incarnation: u64,
    ) -> Self {
        let name = name(index);
        let connected = Arc::default();
        let size = ClusterSize { members: MEMBERS_MAX, threads: 1, origin: origin_of(&name) };
        let slots = Arc::new(Slots::new(placement.clone(), &name));
        let teller = Box::new(News(Arc::clone(&connected)));
        let cluster = Cluster::new(size, disks.len(), RANDOM, teller, Some(slots));
        let cluster = Arc::new(cluster);
        let me = Identity {
            cluster: "c".into(),
            name: name.clone(),
            incarnation,
            address: name,
            software: "0".into(),
            placement: placement.fingerprint(),
            reference: String::new(),
        };
        let brokers = placement.homes().len();
        let members = Members::new(me, Timing::default(), MEMBERS_MAX, CommonSettings::default())
            .with_homes(placement.homes().iter().cloned());
        Self {
            process: Process::in_cluster(disks, settings, rules, Some(Arc::clone(&cluster))),
            membership: Membership::new(members, cluster),
            owner: Arc::default(),
            watch: Watch { others: brokers - 1, ..Watch::default() },
            connected,
        }
    }

    /// The broker, in its present life.
    pub fn me(&self) -> Identity {
        self.membership.members().me().clone()
    }

    /// The place of another broker.
    pub fn place(&self, index: usize) -> MemberRef {
        self.membership.cluster().place(&name(index)).expect("there is a place for each")
    }

    /// Whether the broker takes clients.
    pub fn takes_clients(&self) -> bool {
        self.membership.cluster().takes_clients()
    }

    /// Notes that it has tried to reach a broker.
    pub fn tries(&self, index: usize) {
        self.watch.tried.borrow_mut().insert(index);
    }

    /// It has exchanged hellos with another broker.
    pub fn greets(&self, peer: &Identity) {
        self.change(|members, now, events| members.on_hello(now, peer, events));
    }

    /// Another broker refuses connections.
    pub fn is_refused_by(&self, index: usize) {
        self.change(|members, now, events| members.on_refused(now, &name(index), events));
    }

    /// Another broker holds this life to be down.
    pub fn is_condemned(&self, by: usize, incarnation: u64) {
        self.membership.condemned(&self.process.engine, &name(by), incarnation, &self.watch);
    }

    /// Does what is to be done regularly.
    pub fn ticks(&self) {
        self.membership.tick(&self.process.engine, &self.watch);
    }

    fn change(&self, change: impl FnOnce(&mut Members, MonoTime, &mut Vec<Event>)) {
        self.membership.change(&self.process.engine, &self.watch, change);
    }

    /// Hears a frame of a control link. Appends the answer to `out`.
    pub fn hears(
        &self,
        (peer, index): (&Identity, usize),
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        let from = (peer, self.place(index));
        self.membership.hear(&self.process.engine, from, frame, &self.watch, out)
    }

    /// A packet of a client arrives.
    pub fn gets(&mut self, client: ClientId, link: LinkId, packet: Packet) {
        let mut bytes = Vec::new();
        codec::encode(client, packet, &mut bytes);
        self.process.receive(link, &bytes, matches!(packet, Packet::Connect { .. }));
    }

    /// A packet of a client of the state store arrives.
    pub fn is_asked(&mut self, client: ClientId, link: LinkId, packet: Asked) {
        let mut bytes = Vec::new();
        asked::encode(client, Some(USER), packet, &mut bytes);
        self.process.receive(link, &bytes, matches!(packet, Asked::Connect { .. }));
    }

    /// Returns the frames that tell the others of clients that have connected since the last call.
    pub fn tells_of_clients(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for Connected { client, at, begins_anew } in self.connected.lock().drain(..) {
            Frame::Connected { tenant: TENANT, client: &client, at, begins_anew }.encode(&mut out);
        }
        out
    }

    /// Returns what has happened since the last call.
    pub fn happened(&self) -> Vec<Happened> {
        std::mem::take(&mut *self.watch.happened.borrow_mut())
    }
}

/// The name of a broker, which is its address as well.
pub fn name(index: usize) -> String {
    format!("b{index}")
}

/// The broker of a name.
pub fn index_of(name: &str) -> usize {
    name[1..].parse().expect("it was made of a number")
}

#[derive(Default)]
struct Watch {
    others: usize,
    tried: RefCell<BTreeSet<usize>>,
    happened: RefCell<Vec<Happened>>,
}

impl Watcher for Watch {
    fn has_tried_all(&self) -> bool {
        self.tried.borrow().len() == self.others
    }

    fn on_event(&self, event: &Event, _: usize) {
        self.happened.borrow_mut().push(Happened::Seen(event.clone()));
    }

    fn takes_clients(&self) {}

    fn on_new_life(&self, _: &NewLife<'_>) {
        self.happened.borrow_mut().push(Happened::NewLife);
    }
}

struct News(Arc<Mutex<VecDeque<Connected>>>);

impl Teller for News {
    fn news_to_tell(&self) {}

    fn object_changed(&self, _: Object<'_>) {}

    fn client_connected(&self, _: &str, client: &str, at: u64, begins_anew: bool) {
        self.0.lock().push_back(Connected { client: client.into(), at, begins_anew });
    }
}

/// The thread that has the connections of message links. It is not woken: the world lets both ends of each link write, again
/// and again.
#[derive(Debug, Default)]
pub struct LinkThread;

impl Owner for LinkThread {
    fn drain(&self, _: ConnectionId) {}

    fn close(&self, _: ConnectionId, _: ReasonCode, _: Farewell) {}
}
