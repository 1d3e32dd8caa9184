//! A broker, its clients, the network between them, the disks below, and the events that happen to them.
//!
//! One random number generator decides everything, on one thread. Time is a number. The [`Story`] has the parts
//! that differ between kinds of histories.

use std::fmt::Debug;
use std::ops::Range;

use barid_store::memory::{Disk, Fault};
use fastrand::Rng;

use crate::Outcome;
use crate::environment;
use crate::history::{Event, History};
use crate::network::{ClientId, LinkId, Network};
use crate::rules::Rules;

/// Number of steps after which a world without failures must have come to rest; otherwise a promise is broken.
const REST_STEPS: u32 = 60_000;

/// The world of one history.
pub struct World<S: Story> {
    pub rng: Rng,
    pub story: S,
    pub history: History,
    pub promises: S::Promises,
    pub disks: Vec<Disk>,
    pub broker: S::Broker,
    pub clients: Vec<S::Client>,
    pub network: Network<S::Packet>,
    /// Time, in milliseconds.
    pub now: u64,
    pub crashes: u32,
    /// Number of messages or responses that clients received.
    pub deliveries: u64,
    /// Whether the world has healed: nothing fails any more.
    pub healed: bool,
    /// Number of steps before the world heals.
    steps: u32,
    /// Probability that the broker crashes just after a client has got a packet. Only such a crash reveals an
    /// answer that left before its change was durable.
    crash_when_told: f64,
    /// The events that can happen next, with their weights.
    doings: Vec<(Happen<S>, u32)>,
}

/// An event that can happen next.
pub type Happen<S> = fn(&mut World<S>);

/// An event, with its weights: each history picks one of the four at random, and uses the last one after the
/// world has healed.
pub type Doing<S> = (Happen<S>, [u32; 4], u32);

/// Constructor of the event that a packet is sent or arrives.
pub type Note<P> = fn(ClientId, LinkId, P) -> Event;

/// The part of a world that differs between kinds of histories.
pub trait Story: Sized + 'static {
    type Packet: Copy;
    type Broker: Broker<Self::Packet>;
    type Client;
    type Promises: Checker;
    type Picture: Debug + PartialEq;

    const DOINGS: &'static [Doing<Self>];
    /// Upper bound, exclusive, of the number of steps before the world heals.
    const STEPS_MAX: u32;
    /// Time at which a history begins, in milliseconds.
    const BEGIN: u64 = 1_000_000;
    /// Event: a client sends a packet.
    const SENDS: Note<Self::Packet>;
    /// Event: a packet arrives at the broker.
    const ARRIVES: Note<Self::Packet>;
    /// Event: the broker sends a packet.
    const TELLS: Note<Self::Packet>;

    /// Creates the story, the disks, the clients and the checker of a seed.
    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self>;

    /// Starts a broker from its disks. `life` is the number of brokers before it.
    fn start(&self, disks: &[Disk], life: u32) -> Self::Broker;

    /// Lets a client without a connection connect.
    fn connect(world: &mut World<Self>, client: ClientId);

    /// Lets a client with a connection act.
    fn act(world: &mut World<Self>, client: ClientId);

    /// Handles a packet that arrives at a client.
    fn client_gets(world: &mut World<Self>, client: ClientId, link: LinkId, packet: Self::Packet);

    /// Handles the loss of a client's connection.
    fn disconnected(world: &mut World<Self>, client: ClientId);

    /// Returns the packets that the broker has sent since the last call.
    fn take_packets(world: &mut World<Self>) -> Vec<(ClientId, LinkId, Self::Packet)>;

    /// Replaces the broker by a new process.
    fn restart(world: &mut World<Self>) {
        world.broker = world.story.start(&world.disks, world.crashes);
    }

    /// Returns everything that a broker stores, as it is in memory.
    fn picture(world: &World<Self>, broker: &Self::Broker) -> Self::Picture;

    /// Whether neither the broker nor a client has anything left to do.
    fn is_at_rest(world: &mut World<Self>) -> bool;

    /// Checks the promises that can only be checked after the world has come to rest.
    fn check_end(world: &mut World<Self>);
}

/// The initial state of a history.
pub struct Beginning<S: Story> {
    pub story: S,
    pub disks: usize,
    pub clients: Vec<S::Client>,
    pub promises: S::Promises,
}

/// The broker's process.
pub trait Broker<P> {
    /// Tells the broker the time, in milliseconds.
    fn set_time(&mut self, _now: u64) {}

    /// Handles a packet from a client. Returns false if the packet has to wait; it must then be passed again.
    fn receive(&mut self, client: ClientId, link: LinkId, packet: P) -> bool;

    /// Tells the broker that a connection is lost.
    fn lose(&mut self, client: ClientId, link: LinkId);

    /// Advances the log and the committer of a shard by one step.
    fn commit(&mut self, shard: u16, history: &mut History);

    /// Whether nothing is left to be written.
    fn is_written(&mut self) -> bool;
}

/// A checker of promises.
pub trait Checker {
    /// The first promise that was broken.
    fn violation(&mut self) -> &mut Option<String>;

    /// Returns the number of messages or requests that were sent.
    fn messages(&self) -> u32;

    /// Takes note that the broker's process has ended.
    fn crashed(&mut self) {}

    /// Records that a promise is broken. Only the first one is kept.
    fn violate(&mut self, what: String) {
        self.violation().get_or_insert(what);
    }
}

impl<S: Story> World<S> {
    /// Creates the world of a seed. If `readable`, its history keeps lines to read.
    pub fn new(seed: u64, rules: Rules, readable: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        environment::begin(rng.fork().u64(..));
        environment::set_time(S::BEGIN);
        let some = |(what, weights, _): &Doing<S>| (*what, weights[rng.usize(..4)]);
        let doings = S::DOINGS.iter().map(some).collect();
        let steps = rng.u32(100..S::STEPS_MAX);
        let crash_when_told = [0.0, 0.0, 0.01, 0.03][rng.usize(..4)];
        let Beginning { story, disks, clients, promises } = S::begin(&mut rng, rules);
        let disks: Vec<_> = (0..disks).map(|_| Disk::new()).collect();
        Self {
            broker: story.start(&disks, 0),
            rng,
            story,
            history: History::new(readable),
            promises,
            disks,
            clients,
            network: Network::default(),
            now: S::BEGIN,
            crashes: 0,
            deliveries: 0,
            healed: false,
            steps,
            crash_when_told,
            doings,
        }
    }

    /// Runs the history to its end.
    pub fn run(mut self) -> Outcome {
        while self.history.steps() < self.steps && self.is_right() {
            self.step();
        }
        self.heal();
        let last = self.history.steps() + REST_STEPS;
        while !self.is_at_rest() && self.is_right() {
            self.step();
            if self.history.steps() == last {
                self.promises.violate("it does not come to rest".into());
            }
        }
        if self.is_right() {
            S::check_end(&mut self);
        }
        Outcome {
            digest: self.history.digest(),
            steps: self.history.steps(),
            crashes: self.crashes,
            messages: self.promises.messages(),
            deliveries: self.deliveries,
            violation: self.promises.violation().take(),
            lines: self.history.into_lines(),
        }
    }

    fn is_right(&mut self) -> bool {
        self.promises.violation().is_none()
    }

    fn is_at_rest(&mut self) -> bool {
        self.network.len() == self.clients.len()
            && self.network.is_quiet()
            && self.broker.is_written()
            && S::is_at_rest(self)
    }

    fn step(&mut self) {
        self.history.step();
        let happen = pick(&mut self.rng, self.doings.iter().copied());
        happen(self);
        for (client, link, packet) in S::take_packets(self) {
            if let Some(wire) = self.network.wire(link) {
                self.history.note(S::TELLS(client, link, packet));
                wire.to_client.push_back(packet);
            }
        }
    }

    /// Delivers the next packet of a random connection, in a random direction.
    pub fn deliver(&mut self) {
        let Some(link) = self.network.any(&mut self.rng) else { return };
        let wire = self.network.wire(link).expect("it is there");
        let client = wire.client;
        if self.rng.bool() {
            let Some(packet) = wire.to_broker.front().copied() else { return };
            if self.broker.receive(client, link, packet) {
                wire.to_broker.pop_front();
                self.history.note(S::ARRIVES(client, link, packet));
            }
        } else if let Some(packet) = wire.to_client.pop_front() {
            S::client_gets(self, client, link, packet);
            if !self.healed && self.rng.f64() < self.crash_when_told {
                self.crash();
            }
        }
    }

    /// Lets a random client act, or connect if it has no connection.
    pub fn act(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        match self.network.of(client) {
            None => S::connect(self, client),
            Some(_) => S::act(self, client),
        }
    }

    /// Sends a packet of a client, if the client has a connection.
    pub fn client_sends(&mut self, client: ClientId, packet: S::Packet) {
        let Some((link, wire)) = self.network.of(client) else { return };
        self.history.note(S::SENDS(client, link, packet));
        wire.to_broker.push_back(packet);
    }

    /// Advances the log and the committer of a random shard by one step.
    pub fn commit(&mut self) {
        let shard = self.rng.usize(..self.disks.len());
        self.broker.commit(number(shard), &mut self.history);
    }

    /// Breaks a random connection.
    pub fn cut(&mut self) {
        if let Some(link) = self.network.any(&mut self.rng) {
            self.cut_link(link);
        }
    }

    /// Breaks a connection. Its client notices at once, the broker only by [`notice`](Self::notice).
    pub fn cut_link(&mut self, link: LinkId) {
        let Some(client) = self.network.cut(link) else { return };
        self.history.note(Event::Cut(client, link));
        S::disconnected(self, client);
    }

    /// Lets the broker notice that a connection has broken.
    pub fn notice(&mut self) {
        if let Some((client, link)) = self.network.notice(&mut self.rng) {
            self.history.note(Event::Gone(client, link));
            self.broker.lose(client, link);
        }
    }

    /// Lets time pass, by a random number of milliseconds in this range.
    pub fn wait(&mut self, millis: Range<u64>) {
        self.now += self.rng.u64(millis);
        self.history.note(Event::Time(self.now));
        environment::set_time(self.now);
        self.broker.set_time(self.now);
    }

    /// Ends the broker's process at this moment, and starts another one.
    pub fn crash(&mut self) {
        self.history.note(Event::Crash);
        self.crashes += 1;
        for client in self.network.collapse() {
            S::disconnected(self, client);
        }
        self.promises.crashed();
        self.disks.iter().for_each(Disk::crash);
        // A start takes time.
        self.now += self.rng.u64(1..20);
        environment::set_time(self.now);
        self.history.note(Event::Time(self.now));
        S::restart(self);
    }

    /// Makes a random disk fail, or work again.
    pub fn fail(&mut self) {
        let shard = self.rng.usize(..self.disks.len());
        let (fault, what) = [
            (None, "works"),
            (None, "works"),
            (Some(Fault::Full), "is full"),
            (Some(Fault::Io), "fails"),
            (Some(Fault::IoButWritten), "fails, but writes"),
        ][self.rng.usize(..5)];
        self.disks[shard].fail(fault);
        self.history.note(Event::Disk(number(shard), what));
    }

    /// Writes everything that is noted, and checks that memory and stores agree.
    pub fn audit(&mut self) {
        self.history.note(Event::Audit);
        self.commit_all();
        if self.broker.is_written() {
            self.compare();
        }
    }

    /// Writes everything that is noted, unless a store fails.
    pub fn commit_all(&mut self) {
        for shard in (0..).take(self.disks.len()) {
            for _ in 0..6 {
                self.broker.commit(shard, &mut self.history);
            }
        }
    }

    /// Checks that another process would find in the stores what this process has in memory.
    pub fn compare(&mut self) {
        let disks: Vec<_> = self.disks.iter().map(Disk::copied).collect();
        let found = self.story.start(&disks, self.crashes + 1);
        let (here, there) = (S::picture(self, &self.broker), S::picture(self, &found));
        if here != there {
            let what = format!("what is in memory is not in the stores:\n{here:#?}\n{there:#?}");
            self.promises.violate(what);
        }
    }

    fn heal(&mut self) {
        self.history.note(Event::Heal);
        self.healed = true;
        for disk in &self.disks {
            disk.fail(None);
        }
        self.doings = S::DOINGS.iter().map(|(what, _, weight)| (*what, *weight)).collect();
    }
}

/// Returns a random item of `all`, with a probability in proportion to its weight.
pub fn pick<T>(rng: &mut Rng, all: impl Iterator<Item = (T, u32)> + Clone) -> T {
    let mut at = rng.u32(..all.clone().map(|(_, weight)| weight).sum::<u32>());
    for (one, weight) in all {
        if at < weight {
            return one;
        }
        at -= weight;
    }
    unreachable!("it is less than the sum of all weights")
}

fn number(shard: usize) -> u16 {
    u16::try_from(shard).expect("there are few")
}
