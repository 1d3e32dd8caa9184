//! The broker's process: the engine that ships, on one thread, over logs and connections of the history.
//!
//! Each call is something that happens at once; whoever calls decides what happens next, and when the process ends. What
//! is in a [`Process`] is then gone, and another one is started from the disks.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use barid_core::durable::keys;
use barid_engine::account::TenantSettings;
use barid_engine::budget::Budget;
use barid_engine::clock::Clock;
use barid_engine::departures::Departures;
use barid_engine::durability::{Durability, DurabilityClass, DurabilityRule};
use barid_engine::durable::{Committing, Fetch, Reading, Storage};
use barid_engine::engine::{Engine, EngineSettings};
use barid_engine::faults;
use barid_engine::housekeeping::Housekeeper;
use barid_engine::ids::ConnectionId;
use barid_engine::lifecycle::Context;
use barid_engine::limits::{Limits, ShareStrategy};
use barid_engine::mqtt::{Arrival, Client, End, admit, refuse};
use barid_engine::owner::{Farewell, Owner};
use barid_engine::recovery;
use barid_engine::router::Router;
use barid_engine::session::SessionRef;
use barid_engine::tenant::Tenant;
use barid_engine::turn::{Scratch, Turn};
use barid_engine::wire::Wire;
use barid_engine::worker::Worker;
use barid_store::Store;
use barid_store::memory::Disk;
use fastrand::Rng;
use mqtt_proto::{Connect, FixedHeader, MAX_PACKET_LEN, ReasonCode};
use parking_lot::Mutex;

use crate::environment::{RANDOM, TIME};
use crate::forgetful::Forgetful;
use crate::history::{Event, History};
use crate::log::{Done, Held, Log};
use crate::network::{ClientId, LinkId};
use crate::rules::Rules;
use crate::world::{Broker, Story, World};

/// The one tenant.
pub const TENANT: &str = "default";

/// Bytes that a client may leave unread before the broker's writes find no room.
const ROOM: usize = 600;

/// What a broker is set to.
#[derive(Clone, Debug)]
pub struct Settings {
    pub limits: Limits,
    /// Keys of the state store that are not stored, as a pattern.
    pub volatile: Option<&'static str>,
    /// Bytes of messages that wait in memory; beyond, they are in the store only.
    pub in_memory_max: usize,
    /// Batches that may be on their way to the log of a shard.
    pub window: usize,
}

/// The broker's process.
pub struct Process {
    pub engine: Arc<Engine>,
    context: Context,
    scratch: Scratch,
    housekeeper: Housekeeper,
    shards: Rc<RefCell<Vec<Shard>>>,
    /// Decides what committers do between the steps of another thread.
    rng: Rc<RefCell<Rng>>,
    readers: Vec<Reading>,
    /// What is to be read back, and by which of them.
    fetches: Vec<(usize, Box<dyn Fetch>)>,
    posts: Arc<Posts>,
    connections: BTreeMap<LinkId, Connection>,
    /// What the broker has closed, and what their clients have still to read.
    closed: Vec<(LinkId, Arc<SimWire>)>,
    /// From here on nothing fails, and clients read what they are sent.
    pub healed: bool,
}

/// A shard, on its way to the disk.
struct Shard {
    committing: Committing,
    log: Arc<Log>,
    /// What has happened and is not in the history yet.
    happened: Vec<Done>,
}

/// A connection, and its client when it has been admitted.
struct Connection {
    client: Option<Client>,
    wire: Arc<SimWire>,
    /// What has come and has not been handled.
    unread: Vec<u8>,
}

/// What threads ask of the owner of a connection.
#[derive(Debug, Default)]
struct Posts(Mutex<VecDeque<Post>>);

#[derive(Debug)]
enum Post {
    Drain(ConnectionId),
    Close(ConnectionId, ReasonCode, Farewell),
}

impl Owner for Posts {
    fn drain(&self, connection: ConnectionId) {
        self.0.lock().push_back(Post::Drain(connection));
    }

    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell) {
        self.0.lock().push_back(Post::Close(connection, reason, farewell));
    }
}

/// The way to a client, which has room for some bytes.
#[derive(Debug, Default)]
pub struct SimWire(Mutex<Pipe>);

#[derive(Debug)]
struct Pipe {
    bytes: Vec<u8>,
    room: usize,
    is_blocked: bool,
}

impl Default for Pipe {
    fn default() -> Self {
        Self { bytes: Vec::new(), room: ROOM, is_blocked: false }
    }
}

impl SimWire {
    /// Lets `take` have what was written, of which it takes a beginning and says how long that is.
    fn take(&self, take: impl FnOnce(&[u8]) -> usize) {
        let mut pipe = self.0.lock();
        let taken = take(&pipe.bytes);
        pipe.bytes.drain(..taken);
    }

    fn is_blocked(&self) -> bool {
        self.0.lock().is_blocked
    }

    fn is_quiet(&self) -> bool {
        let pipe = self.0.lock();
        pipe.bytes.is_empty() && !pipe.is_blocked
    }

    fn make_room(&self, room: usize) {
        let mut pipe = self.0.lock();
        (pipe.room, pipe.is_blocked) = (room, false);
    }
}

impl Wire for SimWire {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.0.lock();
        let count = bytes.len().min(pipe.room);
        if count < bytes.len() {
            pipe.is_blocked = true;
        }
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        pipe.room -= count;
        pipe.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

/// A wire, as its owner writes to it.
struct Out(Arc<SimWire>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Wire::write(&*self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Process {
    /// Starts a broker from what is on its disks, one for each shard.
    pub fn start(disks: &[Disk], settings: &Settings, rules: Rules) -> Self {
        faults::break_rule(rules.of_engine());
        let clock = Clock::start(TIME);
        let stores: Vec<Arc<dyn Store>> = (0..)
            .zip(disks)
            .map(|(shard, disk)| {
                let store = disk.open(keys::NAMES.len());
                Arc::new(Forgetful::new(store, shard, rules)) as Arc<dyn Store>
            })
            .collect();
        let log = |store: &Arc<dyn Store>| Log::new(Arc::clone(store), settings.window, rules);
        let logs: Vec<_> = stores.iter().map(log).map(Arc::new).collect();
        let held = logs.iter().map(|log| Box::new(Held(Arc::clone(log))) as Box<_>);
        let storage = Storage { shards: held.zip(stores).collect(), commits: Arc::default() };
        let of_engine = engine_settings(settings);
        let sizes = (1, settings.in_memory_max);
        let engine = Arc::new(Engine::new(of_engine, sizes, storage, clock, RANDOM));
        engine.tenants.recover(TENANT);
        let read = |shard| recovery::read(&engine, shard).expect("what was written can be read");
        let contents: Vec<_> = engine.shards.iter().map(read).collect();
        recovery::recover(&engine, contents);
        let worker = || Worker { id: 0, now: clock.now() };
        let context = || Context {
            worker: worker(),
            engine: Arc::clone(&engine),
            router: Router::new(RANDOM),
            departures: Departures::default(),
        };
        let shard = |(shard, log): (&Arc<barid_engine::durable::DurableShard>, _)| Shard {
            committing: shard.committing(clock),
            log,
            happened: Vec::new(),
        };
        let shards = engine.shards.iter().zip(logs).map(shard).collect();
        Self {
            shards: Rc::new(RefCell::new(shards)),
            rng: Rc::new(RefCell::new(Rng::with_seed(RANDOM.number()))),
            readers: engine.shards.iter().map(|shard| shard.reading(worker(), clock)).collect(),
            housekeeper: Housekeeper::new(context()),
            context: context(),
            scratch: Scratch::default(),
            fetches: Vec::new(),
            posts: Arc::default(),
            connections: BTreeMap::new(),
            closed: Vec::new(),
            healed: false,
            engine,
        }
    }

    /// The one tenant.
    pub fn tenant(&self) -> Arc<Tenant> {
        self.engine.tenants.get(TENANT).expect("it was recovered or made")
    }

    /// The session of a connection's client, if it has been admitted.
    pub fn session(&self, link: LinkId) -> Option<SessionRef> {
        Some(self.connections.get(&link)?.client.as_ref()?.attachment().0)
    }

    /// Bytes have come from a client. False: it does not read its answers, so it is not read from.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8], is_new: bool) -> bool {
        if is_new {
            let (wire, unread) = (Arc::new(SimWire::default()), Vec::new());
            self.connections.insert(link, Connection { client: None, wire, unread });
        }
        // What comes on a connection that the broker has closed is read by nobody.
        let Some(connection) = self.connections.get_mut(&link) else { return true };
        if let Some(client) = &mut connection.client
            && client.is_paused()
            && !client.resume_reading()
        {
            return false;
        }
        connection.unread.extend_from_slice(bytes);
        self.handle(link);
        true
    }

    /// Handles what has come on a connection, as far as it is whole. Committers go on meanwhile.
    fn handle(&mut self, link: LinkId) {
        let (shards, rng) = (Rc::clone(&self.shards), Rc::clone(&self.rng));
        faults::set_others(Some(Box::new(move || {
            let (mut shards, mut rng) = (shards.borrow_mut(), rng.borrow_mut());
            if rng.bool() {
                let shard = rng.usize(..shards.len());
                shards[shard].step();
            }
        })));
        self.handle_alone(link);
        faults::set_others(None);
    }

    fn handle_alone(&mut self, link: LinkId) {
        let Some(mut connection) = self.connections.remove(&link) else { return };
        let mut out = Out(Arc::clone(&connection.wire));
        let mut turn = turn(&mut self.context, &mut self.scratch);
        let mut result = Ok(());
        if connection.client.is_none() {
            let arrived = arrive(&mut turn, &mut out, link, &self.posts, &mut connection);
            result = arrived.map(|client| connection.client = client);
        }
        while let (Ok(()), Some(client)) = (&result, &mut connection.client) {
            let mut bytes = std::mem::take(&mut connection.unread);
            result = client.handle(&mut turn, &mut out, &mut bytes).map(|handled| {
                connection.unread = bytes.split_off(handled);
            });
            if !client.is_interrupted() || client.is_paused() {
                break;
            }
        }
        let goes_on = match (&result, &mut connection.client) {
            (Ok(()), _) => true,
            (Err(end), Some(client)) => !client.end(&mut turn, &mut out, end),
            (Err(_), None) => false,
        };
        if goes_on {
            self.connections.insert(link, connection);
        } else {
            self.closed.push((link, connection.wire));
        }
        self.end_turn();
    }

    /// The broker learns that a connection has gone.
    pub fn lose(&mut self, link: LinkId) {
        if let Some(connection) = self.connections.remove(&link) {
            self.end(connection, &End::Lost(ErrorKind::UnexpectedEof));
        }
    }

    fn end(&mut self, mut connection: Connection, end: &End) -> Arc<SimWire> {
        let mut turn = turn(&mut self.context, &mut self.scratch);
        let mut out = Out(Arc::clone(&connection.wire));
        if let Some(client) = &mut connection.client {
            client.end(&mut turn, &mut out, end);
        }
        self.end_turn();
        connection.wire
    }

    /// A thread obeys what another one has posted.
    pub fn obey(&mut self) {
        let post = self.posts.0.lock().pop_front();
        match post {
            Some(Post::Drain(id)) => self.drain(link_of(id), false),
            Some(Post::Close(id, reason, farewell)) => {
                if let Some(connection) = self.connections.remove(&link_of(id)) {
                    let wire = self.end(connection, &End::Closed { reason, farewell });
                    self.closed.push((link_of(id), wire));
                }
            }
            None => {}
        }
    }

    fn drain(&mut self, link: LinkId, writable: bool) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        let Some(client) = &mut connection.client else { return };
        let turn = turn(&mut self.context, &mut self.scratch);
        client.drain(&turn, &mut Out(Arc::clone(&connection.wire)), writable);
        if client.resume_reading() {
            self.handle(link);
        }
    }

    /// One of the clients that do not read reads again.
    pub fn make_room(&mut self, rng: &mut Rng) {
        let blocked = |(_, connection): &(&LinkId, &Connection)| connection.wire.is_blocked();
        let blocked: Vec<_> =
            self.connections.iter().filter(blocked).map(|(link, _)| *link).collect();
        if let Some(link) = rng.choice(blocked) {
            let room = if self.healed { usize::MAX } else { rng.usize(1..ROOM) };
            self.connections[&link].wire.make_room(room);
            self.drain(link, true);
        }
    }

    fn end_turn(&mut self) {
        let Context { worker, router, departures, .. } = &mut self.context;
        router.flush(worker, &mut Budget::unbounded());
        departures.go_on(&mut Budget::unbounded());
    }

    /// Housekeeping does what is due.
    pub fn keep_house(&mut self) {
        self.housekeeper.act();
    }

    /// A message is read back from the store.
    pub fn fetch(&mut self, rng: &mut Rng) {
        self.take_fetches();
        if self.fetches.is_empty() {
            return;
        }
        let (reader, mut wanted) = self.fetches.swap_remove(rng.usize(..self.fetches.len()));
        if self.readers[reader].read(&mut *wanted).is_some() {
            self.fetches.push((reader, wanted));
        }
    }

    fn take_fetches(&mut self) {
        for (reader, index) in self.readers.iter().zip(0..) {
            let wanted = std::iter::from_fn(|| Some((index, reader.poll()?)));
            self.fetches.extend(wanted);
        }
    }

    /// The log of a shard goes one step on, or its committer.
    pub fn commit(&mut self, shard: u16, history: &mut History) {
        self.shards.borrow_mut()[usize::from(shard)].step();
        self.tell(history);
    }

    /// Notes what logs have done meanwhile.
    pub fn tell(&mut self, history: &mut History) {
        for (shard, index) in self.shards.borrow_mut().iter_mut().zip(0..) {
            for done in shard.happened.drain(..) {
                match done {
                    Done::Written(batch, bytes, works) => {
                        history.write(&bytes);
                        history.note(Event::Written(index, batch, works));
                    }
                    Done::Told(batch, works) => history.note(Event::Told(index, batch, works)),
                }
            }
        }
    }

    /// Whether all that was noted is durable.
    pub fn is_written(&self) -> bool {
        self.shards.borrow().iter().all(|shard| shard.log.is_idle())
            && self.engine.shards.iter().all(|shard| shard.is_durable(shard.last_change()))
    }

    /// Whether nothing is left to be done. Housekeeping looks once more.
    pub fn is_idle(&mut self) -> bool {
        self.is_quiet() && {
            self.keep_house();
            self.is_quiet()
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.take_fetches();
        self.fetches.is_empty()
            && self.posts.0.lock().is_empty()
            && self.connections.values().all(|connection| connection.wire.is_quiet())
            && self.is_written()
    }

    /// The packets that were written to each client since the last time, as `decode` finds them: it returns the first one
    /// in some bytes, if clients have a use for it, and its length; `None` while it has not all come. What the broker has
    /// closed ends with `end`. `of`: whose a connection is, if it has not gone.
    pub fn take_packets<P: Copy>(
        &mut self,
        of: impl Fn(LinkId) -> Option<ClientId>,
        end: P,
        mut decode: impl FnMut(LinkId, &[u8]) -> Option<(Option<P>, usize)>,
    ) -> Vec<(ClientId, LinkId, P)> {
        let mut packets = Vec::new();
        let mut take = |link: LinkId, wire: &SimWire| {
            wire.take(|bytes| {
                let mut taken = 0;
                while let Some((packet, len)) = decode(link, &bytes[taken..]) {
                    taken += len;
                    packets.extend(of(link).zip(packet).map(|(of, packet)| (of, link, packet)));
                }
                taken
            });
        };
        self.connections.iter().for_each(|(link, connection)| take(*link, &connection.wire));
        self.closed.iter().for_each(|(link, wire)| take(*link, wire));
        let closed = self.closed.drain(..);
        packets.extend(closed.filter_map(|(link, _)| Some((of(link)?, link, end))));
        packets
    }
}

impl Shard {
    /// The log goes one step on, or the committer does if it has nothing to do.
    fn step(&mut self) {
        if let Some(done) = self.log.step() {
            self.happened.push(done);
        }
        if !self.committing.must_wait()
            && let Some((to_do, _)) = self.committing.poll()
        {
            self.committing.act(to_do);
        }
    }
}

/// A broker whose process is the engine, with which clients speak in packets of their own.
pub trait OverEngine {
    type Packet: Copy;

    /// The process.
    fn process(&mut self) -> &mut Process;

    /// Appends a packet of a client in bytes. True: it is the first one of its connection.
    fn encode(client: ClientId, packet: Self::Packet, out: &mut Vec<u8>) -> bool;

    /// The process has got a packet.
    fn received(&mut self, _link: LinkId, _packet: Self::Packet) {}
}

impl<B: OverEngine> Broker<B::Packet> for B {
    fn receive(&mut self, client: ClientId, link: LinkId, packet: B::Packet) -> bool {
        let mut bytes = Vec::new();
        let is_first = B::encode(client, packet, &mut bytes);
        let is_read = self.process().receive(link, &bytes, is_first);
        if is_read {
            self.received(link, packet);
        }
        is_read
    }

    fn lose(&mut self, _: ClientId, link: LinkId) {
        self.process().lose(link);
    }

    fn commit(&mut self, shard: u16, history: &mut History) {
        self.process().commit(shard, history);
    }

    fn is_written(&mut self) -> bool {
        self.process().is_written()
    }
}

/// A thread does what another one has asked it for.
pub fn obey<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().obey();
}

/// Something is read back from the store.
pub fn fetch<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().fetch(&mut world.rng);
}

/// A client that did not read does.
pub fn make_room<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    let process = world.broker.process();
    process.healed = world.healed;
    process.make_room(&mut world.rng);
}

/// What is due is done.
pub fn keep_house<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().keep_house();
}

/// A turn of a connection that begins now.
fn turn<'a>(context: &'a mut Context, scratch: &'a mut Scratch) -> Turn<'a> {
    context.worker.now = context.engine.clock.now();
    Turn { context, scratch, budget: Budget::unbounded(), writers: 1 }
}

/// The first packet of a connection. `None`: it has not all come.
fn arrive(
    turn: &mut Turn<'_>,
    out: &mut Out,
    link: LinkId,
    posts: &Arc<Posts>,
    connection: &mut Connection,
) -> Result<Option<Client>, End> {
    let header = FixedHeader::read(&connection.unread, MAX_PACKET_LEN)?;
    let Some(header) = header.filter(|header| header.packet_len() <= connection.unread.len())
    else {
        return Ok(None);
    };
    let rest = connection.unread.split_off(header.packet_len());
    let packet = std::mem::replace(&mut connection.unread, rest);
    let body = &packet[header.header_len..];
    let connect = Connect::decode(header, body)?;
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let wire: Arc<dyn Wire> = Arc::clone(&out.0) as _;
    let arrival = Arrival {
        id: ConnectionId(link.into()),
        peer,
        listener: "simulated",
        owner: Arc::clone(posts) as _,
        wire: Some(wire),
        permissions: None,
        assigned: None,
    };
    match admit(turn, out, arrival, &connect, body.len()) {
        Ok(client) => Ok(Some(client)),
        Err(refusal) => Err(refuse(turn.context, out, peer, &connect, &refusal, |_| false)),
    }
}

fn link_of(id: ConnectionId) -> LinkId {
    LinkId::try_from(id.0).expect("connections have the numbers of links")
}

fn engine_settings(settings: &Settings) -> EngineSettings {
    let volatile = settings.volatile.map(|keys| DurabilityRule {
        filter: None,
        keys: Some(keys.into()),
        class: DurabilityClass::Memory,
        tenant: None,
    });
    let of_tenant = TenantSettings {
        limits: Arc::new(settings.limits.clone()),
        durability: Arc::new(Durability::new(TENANT, DurabilityClass::Local, &volatile)),
        share_strategy: ShareStrategy::default(),
    };
    EngineSettings {
        max_tenants: 1,
        settings_of: Arc::new(move |_| of_tenant.clone()),
        sys_interval: 0,
    }
}
