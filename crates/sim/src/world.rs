//! A broker, its clients, the network between them and the disks below, and what happens to them.
//!
//! Everything is decided by one generator of random numbers, on one thread, at a time that is a number. What
//! is particular to some broker and its clients is their [`Story`].

use std::fmt::Debug;
use std::ops::Range;

use barid_store::memory::{Disk, Fault};
use fastrand::Rng;

use crate::Outcome;
use crate::environment;
use crate::history::{Event, History};
use crate::network::{ClientId, LinkId, Network};
use crate::rules::Rules;

/// Steps after which a world without failures must have come to rest.
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
    /// Milliseconds.
    pub now: u64,
    pub crashes: u32,
    /// Messages or answers that clients got.
    pub deliveries: u64,
    /// From here on nothing fails.
    pub healed: bool,
    /// How many steps there are before that.
    steps: u32,
    /// The chance that the broker crashes just after a client has been told something. An answer that leaves before what it
    /// says is durable is found out only then.
    crash_when_told: f64,
    /// What can happen next, and how often it does.
    doings: Vec<(Happen<S>, u32)>,
}

/// What can happen next.
pub type Happen<S> = fn(&mut World<S>);

/// … and how often it does: one of four weights in each history, and another one when nothing fails any more.
pub type Doing<S> = (Happen<S>, [u32; 4], u32);

/// As what it is noted that a packet goes somewhere.
pub type Note<P> = fn(ClientId, LinkId, P) -> Event;

/// The part of a world that differs between kinds of histories.
pub trait Story: Sized + 'static {
    type Packet: Copy;
    type Broker: Broker<Self::Packet>;
    type Client;
    type Promises: Checker;
    type Picture: Debug + PartialEq;

    const DOINGS: &'static [Doing<Self>];
    /// A history has fewer steps until it heals.
    const STEPS_MAX: u32;
    /// The time at which it begins, in milliseconds.
    const BEGIN: u64 = 1_000_000;
    /// A client sends a packet, …
    const SENDS: Note<Self::Packet>;
    /// … it arrives at the broker, …
    const ARRIVES: Note<Self::Packet>;
    /// … and the broker sends one.
    const TELLS: Note<Self::Packet>;

    /// What a seed decides at the beginning.
    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self>;

    /// A broker from what is on its disks. `life`: how many there were before.
    fn start(&self, disks: &[Disk], life: u32) -> Self::Broker;

    /// A client that has no connection makes one.
    fn connect(world: &mut World<Self>, client: ClientId);

    /// A client that has one does something of its own.
    fn act(world: &mut World<Self>, client: ClientId);

    /// A packet arrives at a client.
    fn client_gets(world: &mut World<Self>, client: ClientId, link: LinkId, packet: Self::Packet);

    /// A client has lost its connection.
    fn disconnected(world: &mut World<Self>, client: ClientId);

    /// The packets that the broker has sent since the last call.
    fn take_packets(world: &mut World<Self>) -> Vec<(ClientId, LinkId, Self::Packet)>;

    /// Another process starts.
    fn restart(world: &mut World<Self>) {
        world.broker = world.story.start(&world.disks, world.crashes);
    }

    /// All that a broker stores, as it has it in memory.
    fn picture(world: &World<Self>, broker: &Self::Broker) -> Self::Picture;

    /// Whether nobody has anything left to do.
    fn is_at_rest(world: &mut World<Self>) -> bool;

    /// Everything has come to rest.
    fn check_end(world: &mut World<Self>);
}

/// With what a history begins.
pub struct Beginning<S: Story> {
    pub story: S,
    pub disks: usize,
    pub clients: Vec<S::Client>,
    pub promises: S::Promises,
}

/// The broker's process.
pub trait Broker<P> {
    /// Time passes.
    fn set_time(&mut self, _now: u64) {}

    /// A packet has come from a client. False: it has to wait, and is to be given again.
    fn receive(&mut self, client: ClientId, link: LinkId, packet: P) -> bool;

    /// The broker learns that a connection has gone.
    fn lose(&mut self, client: ClientId, link: LinkId);

    /// The committer of a shard goes one step on.
    fn commit(&mut self, shard: u16, history: &mut History);

    /// Whether nothing is left to be written.
    fn is_written(&mut self) -> bool;
}

/// Checks promises.
pub trait Checker {
    /// The first promise that was broken.
    fn violation(&mut self) -> &mut Option<String>;

    /// How many messages or requests were sent.
    fn messages(&self) -> u32;

    /// The broker's process has ended.
    fn crashed(&mut self) {}

    /// A promise is broken.
    fn violate(&mut self, what: String) {
        self.violation().get_or_insert(what);
    }
}

impl<S: Story> World<S> {
    /// The world of a seed. `readable`: its history keeps lines to read.
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

    /// Lets it all happen.
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

    /// The network brings one packet to where it goes.
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

    /// A client does something of its own.
    pub fn act(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        match self.network.of(client) {
            None => S::connect(self, client),
            Some(_) => S::act(self, client),
        }
    }

    /// A client sends a packet, if it has a connection.
    pub fn client_sends(&mut self, client: ClientId, packet: S::Packet) {
        let Some((link, wire)) = self.network.of(client) else { return };
        self.history.note(S::SENDS(client, link, packet));
        wire.to_broker.push_back(packet);
    }

    /// The committer of a shard goes one step on.
    pub fn commit(&mut self) {
        let shard = self.rng.usize(..self.disks.len());
        self.broker.commit(number(shard), &mut self.history);
    }

    /// A connection breaks.
    pub fn cut(&mut self) {
        if let Some(link) = self.network.any(&mut self.rng) {
            self.cut_link(link);
        }
    }

    /// A connection breaks. Its client notices at once, the broker when it does.
    pub fn cut_link(&mut self, link: LinkId) {
        let Some(client) = self.network.cut(link) else { return };
        self.history.note(Event::Cut(client, link));
        S::disconnected(self, client);
    }

    /// The broker notices that a connection has gone.
    pub fn notice(&mut self) {
        if let Some((client, link)) = self.network.notice(&mut self.rng) {
            self.history.note(Event::Gone(client, link));
            self.broker.lose(client, link);
        }
    }

    /// Time passes.
    pub fn wait(&mut self, millis: Range<u64>) {
        self.now += self.rng.u64(millis);
        self.history.note(Event::Time(self.now));
        environment::set_time(self.now);
        self.broker.set_time(self.now);
    }

    /// The broker's process ends at this very moment, and another one starts.
    pub fn crash(&mut self) {
        self.history.note(Event::Crash);
        self.crashes += 1;
        for client in self.network.collapse() {
            S::disconnected(self, client);
        }
        self.promises.crashed();
        self.disks.iter().for_each(Disk::crash);
        // It takes time to begin.
        self.now += self.rng.u64(1..20);
        environment::set_time(self.now);
        self.history.note(Event::Time(self.now));
        S::restart(self);
    }

    /// One of the disks begins to fail, or works again.
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

    /// When all is written, memory and stores must be the same.
    pub fn audit(&mut self) {
        self.history.note(Event::Audit);
        self.commit_all();
        if self.broker.is_written() {
            self.compare();
        }
    }

    /// All that is noted is written, unless a store fails.
    pub fn commit_all(&mut self) {
        for shard in (0..).take(self.disks.len()) {
            for _ in 0..6 {
                self.broker.commit(shard, &mut self.history);
            }
        }
    }

    /// What another process would find must be what this one has.
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

/// One of `all`, as often as its weight says.
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
