//! The broker's process: the production engine on one thread, over logs and connections of the history.
//!
//! Each call is one event, which happens at once. The caller decides what happens next, and when the process
//! ends. The content of a [`Process`] is lost then, and another one is started from the disks.

mod amqp;
mod mqtt;
mod wire;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;

use barid_core::durable::keys;
use barid_core::time::MonoTime;
use barid_engine::account::TenantSettings;
use barid_engine::amqp::Container;
use barid_engine::budget::Budget;
use barid_engine::clock::Clock;
use barid_engine::closing::Closing;
use barid_engine::cluster::Cluster;
use barid_engine::context::Context;
use barid_engine::departures::Departures;
use barid_engine::durability::{Durability, DurabilityClass, DurabilityRule};
use barid_engine::durable::{Committing, DurableShard, Fetch, Reading, Storage};
use barid_engine::engine::{Engine, EngineSettings};
use barid_engine::faults;
use barid_engine::housekeeping::Housekeeper;
use barid_engine::ids::ConnectionId;
use barid_engine::limits::{Limits, ShareStrategy};
use barid_engine::links::{Carrier, CarrierError};
use barid_engine::mqtt::{Client, End};
use barid_engine::recovery::Contents;
use barid_engine::router::Router;
use barid_engine::session::SessionRef;
use barid_engine::tenant::Tenant;
use barid_engine::turn::{Scratch, Turn};
use barid_engine::worker::Worker;
use barid_engine::{opening, recovery};
use barid_store::Store;
use barid_store::memory::Disk;
use fastrand::Rng;

pub use self::amqp::KEY;
use self::wire::{Out, Post, Posts, ROOM, SimWire};
use crate::environment::{RANDOM, TIME};
use crate::forgetful::Forgetful;
use crate::history::{Event, History};
use crate::log::{Done, Held, Log};
use crate::network::{ClientId, LinkId};
use crate::rules::Rules;
use crate::world::{Broker, Story, World};

/// Size of the largest packet of a client, in bytes.
const MESSAGE_MAX: usize = 1024;

/// The only tenant.
pub const TENANT: &str = "default";

/// The settings of a broker.
#[derive(Clone, Debug)]
pub struct Settings {
    pub limits: Limits,
    /// Pattern of the state store keys that are not stored.
    pub volatile: Option<&'static str>,
    /// Maximum size of the waiting messages in memory, in bytes. Further messages are in the store only.
    pub in_memory_max: usize,
    /// Maximum number of batches in flight to the log of a shard.
    pub window: usize,
}

/// The broker's process.
pub struct Process {
    pub engine: Arc<Engine>,
    context: Context,
    scratch: Scratch,
    housekeeper: Housekeeper,
    shards: Rc<RefCell<Vec<Shard>>>,
    /// Decides what committers, and the closing of a shard, do between the steps of another thread.
    rng: Rc<RefCell<Rng>>,
    readers: Vec<Reading>,
    /// Pending requests to read messages back from a store, each with the index of its reader.
    fetches: Vec<(usize, Box<dyn Fetch>)>,
    /// The shard that is being closed step by step, if any.
    closing: Rc<RefCell<Option<Close>>>,
    posts: Arc<Posts>,
    connections: BTreeMap<LinkId, Connection>,
    /// The time at which each connection is to have a turn, as it was after its last turn.
    timers: BTreeMap<LinkId, MonoTime>,
    settings: Settings,
    /// Connections that the broker has closed, with the bytes that their clients have not read yet.
    closed: Vec<(LinkId, Arc<SimWire>)>,
    window: usize,
    rules: Rules,
    /// Whether the world has healed: nothing fails any more, and clients read everything.
    pub healed: bool,
}

/// The next step to close a shard.
enum Close {
    Begin(u16),
    GoOn(Closing),
}

impl Close {
    fn step(&mut self, engine: &Engine) {
        match self {
            Self::Begin(shard) => *self = Self::GoOn(Closing::begin(engine, *shard)),
            Self::GoOn(closing) => {
                closing.step();
            }
        }
    }

    fn end(self, engine: &Engine) -> u16 {
        let closing = match self {
            Self::Begin(shard) => Closing::begin(engine, shard),
            Self::GoOn(closing) => closing,
        };
        closing.end(engine).index()
    }
}

/// The committer and the log of a shard.
struct Shard {
    committing: Committing,
    log: Arc<Log>,
    /// Steps of the log that are not recorded in the history yet.
    happened: Vec<Done>,
}

/// A network connection.
struct Connection {
    end: ConnectionEnd,
    wire: Arc<SimWire>,
    /// Bytes that have arrived and are not handled yet.
    unread: Vec<u8>,
}

impl Connection {
    /// Whether the connection waits for nothing.
    fn is_quiet(&self) -> bool {
        let waits_until = match &self.end {
            ConnectionEnd::Mqtt(client) => client.as_ref().and_then(|client| client.deadline()),
            ConnectionEnd::Amqp(container) => container.waits_until(),
        };
        self.wire.is_quiet() && waits_until.is_none()
    }
}

/// The broker's end of a connection.
enum ConnectionEnd {
    /// MQTT; `None` until the client is admitted.
    Mqtt(Option<Box<Client>>),
    Amqp(Box<Container>),
}

impl Process {
    /// Starts a broker from its disks, one for each shard.
    pub fn start(disks: &[Disk], settings: &Settings, rules: Rules) -> Self {
        Self::in_cluster(disks, settings, rules, None)
    }

    /// Starts a broker of a cluster from its disks, one for each shard.
    pub fn in_cluster(
        disks: &[Disk],
        settings: &Settings,
        rules: Rules,
        cluster: Option<Arc<Cluster>>,
    ) -> Self {
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
        let sources = (clock, RANDOM);
        let engine = Arc::new(Engine::in_cluster(of_engine, sizes, storage, sources, cluster));
        engine.tenants.recover(TENANT);
        let mut contents: Vec<_> =
            engine.shards.iter().map(|shard| read(&engine, &shard)).collect();
        contents.iter_mut().for_each(|contents| contents.announce(&engine));
        opening::recover(&engine, contents);
        let worker = || Worker { id: 0, now: clock.now() };
        let context = || Context {
            worker: worker(),
            engine: Arc::clone(&engine),
            router: Router::new(RANDOM),
            departures: Departures::default(),
        };
        let mut shards = Vec::new();
        for ((disk, shard), log) in disks.iter().zip(engine.shards.iter()).zip(logs) {
            let mut begun = Shard::begin(&shard, log, clock, disk);
            begun.happened.clear();
            shards.push(begun);
        }
        Self {
            window: settings.window,
            rules,
            shards: Rc::new(RefCell::new(shards)),
            rng: Rc::new(RefCell::new(Rng::with_seed(RANDOM.number()))),
            readers: engine.shards.iter().map(|shard| shard.reading(worker(), clock)).collect(),
            housekeeper: Housekeeper::new(context()),
            context: context(),
            scratch: Scratch::default(),
            fetches: Vec::new(),
            closing: Rc::default(),
            posts: Arc::default(),
            connections: BTreeMap::new(),
            timers: BTreeMap::new(),
            settings: settings.clone(),
            closed: Vec::new(),
            healed: false,
            engine,
        }
    }

    /// Returns the only tenant.
    pub fn tenant(&self) -> Arc<Tenant> {
        self.engine.tenants.get(TENANT).expect("it was recovered or made")
    }

    /// Returns the session of a connection's MQTT client, if the client is admitted.
    pub fn session(&self, link: LinkId) -> Option<SessionRef> {
        match &self.connections.get(&link)?.end {
            ConnectionEnd::Mqtt(client) => Some(client.as_ref()?.attachment().0),
            ConnectionEnd::Amqp(_) => None,
        }
    }

    /// Whether the broker reads from a client. It does not while the client does not read its answers.
    pub fn reads(&mut self, link: LinkId) -> bool {
        let Some(connection) = self.connections.get_mut(&link) else { return true };
        match &mut connection.end {
            ConnectionEnd::Mqtt(Some(client)) => {
                self.context.worker.now = self.engine.clock.now();
                let may = (!client.is_paused() || client.resume_reading())
                    && client.may_read(&self.context.worker, MESSAGE_MAX) > 0;
                self.arm(link);
                may
            }
            ConnectionEnd::Mqtt(None) => true,
            ConnectionEnd::Amqp(container) => {
                let turn = turn(&mut self.context, &mut self.scratch);
                !container.is_held_back() && !container.is_full(&turn)
            }
        }
    }

    /// Handles bytes from a client. `is_first` says that they are the first of a new connection.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8], is_first: bool) {
        if is_first {
            let end = match bytes.starts_with(b"AMQP") {
                true => ConnectionEnd::Amqp(Box::new(amqp::accept(link, &self.posts))),
                false => ConnectionEnd::Mqtt(None),
            };
            let (wire, unread) = (Arc::default(), Vec::new());
            self.connections.insert(link, Connection { end, wire, unread });
        }
        // Bytes on a connection that the broker has closed are ignored.
        if let Some(connection) = self.connections.get_mut(&link) {
            connection.unread.extend_from_slice(bytes);
            if let ConnectionEnd::Mqtt(Some(client)) = &mut connection.end {
                client.has_read(self.engine.clock.now(), bytes.len());
            }
            self.handle(link);
        }
    }

    /// Handles the complete frames that have arrived on a message link.
    ///
    /// # Errors
    /// The other broker has broken the protocol.
    pub fn carry(
        &mut self,
        carrier: &mut Carrier,
        bytes: &mut Vec<u8>,
    ) -> Result<(), CarrierError> {
        self.interrupted(|process| {
            let handled =
                carrier.handle(&mut turn(&mut process.context, &mut process.scratch), bytes);
            process.end_turn();
            bytes.drain(..handled?.len);
            Ok(())
        })
    }

    /// Handles the complete packets that have arrived on a connection.
    fn handle(&mut self, link: LinkId) {
        self.interrupted(|process| process.handle_alone(link));
    }

    /// Does something. Between its steps, committers and the closing of a shard do steps as well.
    fn interrupted<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let (shards, rng) = (Rc::clone(&self.shards), Rc::clone(&self.rng));
        let (engine, closing) = (Arc::clone(&self.engine), Rc::clone(&self.closing));
        faults::set_others(Some(Box::new(move || {
            let mut rng = rng.borrow_mut();
            if rng.bool() {
                let mut shards = shards.borrow_mut();
                let shard = rng.usize(..shards.len());
                shards[shard].step();
            }
            if let Some(close) = &mut *closing.borrow_mut() {
                while rng.bool() {
                    close.step(&engine);
                }
            }
        })));
        let done = act(self);
        faults::set_others(None);
        done
    }

    fn handle_alone(&mut self, link: LinkId) {
        let Some(mut connection) = self.connections.remove(&link) else { return };
        let Connection { end, wire, unread } = &mut connection;
        let mut out = Out(Arc::clone(wire));
        let mut turn = turn(&mut self.context, &mut self.scratch);
        let goes_on = match end {
            ConnectionEnd::Mqtt(client) => {
                mqtt::handle(&mut turn, &mut out, client, unread, (link, &self.posts))
            }
            ConnectionEnd::Amqp(container) => amqp::handle(&mut turn, &mut out, container, unread),
        };
        if goes_on {
            self.connections.insert(link, connection);
        } else {
            self.closed.push((link, connection.wire));
        }
        self.arm(link);
        self.end_turn();
    }

    /// Sets the timer of a connection after a turn.
    fn arm(&mut self, link: LinkId) {
        let deadline = match self.connections.get(&link).map(|connection| &connection.end) {
            Some(ConnectionEnd::Mqtt(Some(client))) => client.deadline(),
            Some(ConnectionEnd::Amqp(container)) => container.deadline(),
            Some(ConnectionEnd::Mqtt(None)) | None => None,
        };
        self.timers.remove(&link);
        self.timers.extend(deadline.map(|at| (link, at)));
    }

    /// Gives a turn to a random connection whose timer is due.
    pub fn go_on(&mut self, rng: &mut Rng) {
        let now = self.engine.clock.now();
        let due = self.timers.iter().filter(|(_, at)| **at <= now).map(|(link, _)| *link);
        let Some(link) = rng.choice(due.collect::<Vec<_>>()) else { return };
        let Some(connection) = self.connections.get_mut(&link) else {
            self.timers.remove(&link);
            return;
        };
        match &mut connection.end {
            ConnectionEnd::Mqtt(None) => {}
            ConnectionEnd::Mqtt(Some(client)) => {
                let reads = client.on_time(now).expect("no client has a Keep Alive");
                self.drain(link, false);
                if reads {
                    self.handle(link);
                }
            }
            ConnectionEnd::Amqp(container) => {
                let mut turn = turn(&mut self.context, &mut self.scratch);
                container.begin_turn(&turn);
                container.on_time(&mut turn);
                self.handle(link);
            }
        }
    }

    /// Changes the quotas of rates: at random, and to high ones after the world has healed, because little time
    /// passes then. Does nothing if there were none from the start.
    pub fn change_rates(&mut self, rng: &mut Rng) {
        let limits = &mut self.settings.limits;
        let rates = [
            (&mut limits.publish_rate, 5),
            (&mut limits.inbound_bytes_rate, 100),
            (&mut limits.outbound_bytes_rate, 100),
        ];
        for (rate, usual) in rates {
            if *rate > 0 {
                *rate = usual * if self.healed { 1_000 } else { rng.u64(1..5) };
            }
        }
        self.engine.apply(engine_settings(&self.settings));
    }

    /// Tells the broker that a connection is lost.
    pub fn lose(&mut self, link: LinkId) {
        if let Some(connection) = self.connections.remove(&link) {
            self.end(connection, &End::Lost(ErrorKind::UnexpectedEof));
        }
    }

    fn end(&mut self, mut connection: Connection, why: &End) -> Arc<SimWire> {
        let mut turn = turn(&mut self.context, &mut self.scratch);
        let mut out = Out(Arc::clone(&connection.wire));
        match &mut connection.end {
            ConnectionEnd::Mqtt(None) => {}
            ConnectionEnd::Mqtt(Some(client)) => _ = client.end(&mut turn, &mut out, why),
            ConnectionEnd::Amqp(container) => {
                let farewell = match why {
                    End::Closed { reason, .. } => Some(reason.name()),
                    _ => None,
                };
                amqp::end(&mut turn, &mut out, container, farewell);
            }
        }
        self.end_turn();
        connection.wire
    }

    /// Carries out the oldest post to the thread that owns the connections.
    pub fn obey(&mut self) {
        match self.posts.take() {
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
        let goes_on = match &mut connection.end {
            ConnectionEnd::Mqtt(None) => false,
            ConnectionEnd::Mqtt(Some(client)) => {
                let turn = turn(&mut self.context, &mut self.scratch);
                let was_held_back = client.is_held_back();
                client.drain(&turn, &mut Out(Arc::clone(&connection.wire)), writable);
                client.resume_reading() || (was_held_back && !client.is_held_back())
            }
            ConnectionEnd::Amqp(_) => true,
        };
        self.arm(link);
        if goes_on {
            self.handle(link);
        }
    }

    /// Lets a random client that has stopped reading read again.
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

    /// Lets housekeeping do what is due.
    pub fn keep_house(&mut self) {
        self.housekeeper.act();
    }

    /// Carries out a random request to read messages back from a store.
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

    /// Begins to close a shard, if it is open.
    pub fn begin_closing(&mut self, shard: u16) {
        if self.engine.shards.get(shard).is_open() {
            *self.closing.borrow_mut() = Some(Close::Begin(shard));
        }
    }

    /// Whether a shard is being closed.
    pub fn is_closing(&self) -> bool {
        self.closing.borrow().is_some()
    }

    /// Completes the closing of the shard that is being closed, and returns its index; `None` if there is none.
    pub fn end_closing(&mut self) -> Option<u16> {
        let close = self.closing.take();
        close.map(|close| close.end(&self.engine))
    }

    /// Opens a closed shard again. Returns false if the shard is not closed.
    pub fn open(&mut self, shard: u16, disk: &Disk) -> bool {
        let (index, before) = (usize::from(shard), self.engine.shards.get(shard));
        if before.is_open() || !before.is_closed() {
            return false;
        }
        let log = Arc::new(Log::new(Arc::clone(before.store()), self.window, self.rules));
        let held = Box::new(Held(Arc::clone(&log)));
        let tenure = opening::next_tenure(&self.engine, shard, Some(held));
        let contents = read(&self.engine, &tenure);
        opening::open(&self.engine, contents);
        let clock = self.engine.clock;
        let mut begun = Shard::begin(&tenure, log, clock, disk);
        let mut shards = self.shards.borrow_mut();
        let mut happened = std::mem::take(&mut shards[index].happened);
        happened.append(&mut begun.happened);
        shards[index] = Shard { happened, ..begun };
        self.readers[index] = tenure.reading(Worker { id: 0, now: clock.now() }, clock);
        self.fetches.retain(|(reader, _)| *reader != index);
        opening::serve(&self.engine, shard);
        true
    }

    /// Whether any shard is closed.
    pub fn is_any_closed(&self) -> bool {
        self.engine.shards.iter().any(|shard| !shard.is_open())
    }

    /// Advances the log and the committer of a shard by one step. The batch is perhaps sealed before.
    pub fn commit(&mut self, shard: u16, history: &mut History) {
        {
            let shard = &mut self.shards.borrow_mut()[usize::from(shard)];
            if self.rng.borrow_mut().u8(..4) == 0 {
                shard.committing.seal();
            }
            shard.step();
        }
        self.tell(history);
    }

    /// Records in the history what the logs have done since the last call.
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

    /// Whether everything that was noted is durable, and all shards are open.
    pub fn is_written(&self) -> bool {
        !self.is_any_closed()
            && self.shards.borrow().iter().all(|shard| shard.log.is_idle())
            && self.engine.shards.iter().all(|shard| shard.is_durable(shard.last_change()))
    }

    /// Whether nothing is left to be done, also after one more step of housekeeping.
    pub fn is_idle(&mut self) -> bool {
        self.is_quiet() && {
            self.keep_house();
            self.is_quiet()
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.take_fetches();
        self.fetches.is_empty()
            && self.posts.is_empty()
            && self.connections.values().all(Connection::is_quiet)
            && self.is_written()
    }

    /// Returns the packets that were written to each client since the last call. `decode` returns the content
    /// of the first packet in some bytes, and its length, or `None` while the packet is incomplete. The packets
    /// of a connection that the broker has closed end with `end`. `of` returns the client of a connection, if
    /// the connection has not broken.
    pub fn take_packets<P: Copy, I: IntoIterator<Item = P>>(
        &mut self,
        of: impl Fn(LinkId) -> Option<ClientId>,
        end: P,
        mut decode: impl FnMut(LinkId, &[u8]) -> Option<(I, usize)>,
    ) -> Vec<(ClientId, LinkId, P)> {
        let mut packets = Vec::new();
        let mut take = |link: LinkId, wire: &SimWire| {
            wire.take(|bytes| {
                let mut taken = 0;
                while let Some((found, len)) = decode(link, &bytes[taken..]) {
                    taken += len;
                    let of = of(link);
                    packets
                        .extend(found.into_iter().filter_map(|packet| Some((of?, link, packet))));
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
    /// Starts the committer of an opened shard, and returns when everything that the opening noted is durable.
    /// The disk does not fail until then: a shard whose first commit fails does not open.
    fn begin(shard: &Arc<DurableShard>, log: Arc<Log>, clock: Clock, disk: &Disk) -> Self {
        let committing = shard.committing(clock);
        let mut begun = Self { committing, log, happened: Vec::new() };
        let (noted, fault) = (shard.last_change(), disk.fail(None));
        while !shard.is_durable(noted) {
            begun.step();
        }
        disk.fail(fault);
        begun
    }

    /// Advances the log by one step, and then the committer if it has something to do.
    fn step(&mut self) {
        if let Some(done) = self.log.step() {
            self.happened.push(done);
        }
        if let Some((to_do, _)) = self.committing.poll() {
            self.committing.act(to_do);
        }
    }
}

/// A broker over the engine, with a packet type of its own for what it exchanges with clients.
pub trait OverEngine {
    type Packet: Copy;

    /// Returns the process.
    fn process(&mut self) -> &mut Process;

    /// Appends the bytes of a client's packet to `out`. Returns true if the packet is the first one of its
    /// connection.
    fn encode(
        &mut self,
        client: ClientId,
        link: LinkId,
        packet: Self::Packet,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Called after the process has handled a packet.
    fn received(&mut self, _link: LinkId, _packet: Self::Packet) {}
}

impl<B: OverEngine> Broker<B::Packet> for B {
    fn receive(&mut self, client: ClientId, link: LinkId, packet: B::Packet) -> bool {
        if !self.process().reads(link) {
            return false;
        }
        let mut bytes = Vec::new();
        let is_first = self.encode(client, link, packet, &mut bytes);
        self.process().receive(link, &bytes, is_first);
        self.received(link, packet);
        true
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

/// Event: the thread that owns the connections carries out a post.
pub fn obey<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().obey();
}

/// Event: a message is read back from the store.
pub fn fetch<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().fetch(&mut world.rng);
}

/// Event: a client that has stopped reading reads again.
pub fn make_room<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    let process = world.broker.process();
    process.healed = world.healed;
    process.make_room(&mut world.rng);
}

/// Event: a shard is opened again, the closing of a shard completes, or one begins. Returns true if a shard was
/// closed. After the world has healed no closing begins, so that all shards are open at the end.
pub fn close_or_open<S: Story<Broker: OverEngine>>(world: &mut World<S>) -> bool {
    let index = world.rng.usize(..world.disks.len());
    let shard = u16::try_from(index).expect("there are few");
    let process = world.broker.process();
    if process.open(shard, &world.disks[index]) {
        process.tell(&mut world.history);
        world.history.note(Event::Opened(shard));
        return false;
    }
    if let Some(closed) = process.end_closing() {
        world.history.note(Event::Closed(closed));
        return true;
    }
    if !world.healed {
        process.begin_closing(shard);
    }
    false
}

/// Event: a connection whose timer is due has its turn.
pub fn go_on<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().go_on(&mut world.rng);
}

/// Event: the quotas of rates change.
pub fn change_rates<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    let process = world.broker.process();
    process.healed = world.healed;
    process.change_rates(&mut world.rng);
}

/// Event: housekeeping does one step.
pub fn keep_house<S: Story<Broker: OverEngine>>(world: &mut World<S>) {
    world.broker.process().keep_house();
}

fn read(engine: &Engine, shard: &Arc<DurableShard>) -> Contents {
    recovery::read(engine, shard).expect("what was written can be read")
}

/// Begins a turn of a connection at the current time.
fn turn<'a>(context: &'a mut Context, scratch: &'a mut Scratch) -> Turn<'a> {
    context.worker.now = context.engine.clock.now();
    Turn { context, scratch, budget: Budget::unbounded(), writers: 1 }
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
        max_tenants: 2,
        settings_of: Arc::new(move |_| of_tenant.clone()),
        sys_interval: 0,
    }
}
