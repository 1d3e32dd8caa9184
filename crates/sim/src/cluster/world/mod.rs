//! The brokers, the clients, and the choice of the next event.

mod askers;
mod between;
mod clients;
mod trouble;
mod visits;

use std::collections::VecDeque;

use barid_engine::limits::Limits;
use barid_peers::Placement;
use barid_store::memory::Disk;
use fastrand::Rng;

use askers::Askers;
use visits::Visit;

use super::NODES;
use super::links::{Carried, Links};
use super::node::{Happened, Node, index_of, name};
use super::promises::{Moment, Promises, SessionId};
use crate::Outcome;
use crate::environment;
use crate::history::{Event, History};
use crate::messages::client::Client;
use crate::network::{ClientId, LinkId};
use crate::packets::messages::Packet;
use crate::process::Settings;
use crate::rules::Rules;
use crate::world::{Checker as _, pick};

/// Number of slots, which the brokers have in turn.
const SLOTS: u16 = 4;

/// Milliseconds between two heartbeats, and between two looks at the members.
const BEAT: u64 = 250;

/// Time at which a history begins, in milliseconds.
const BEGIN: u64 = 1_000_000;

/// Number of steps before the world heals, at most.
const STEPS_MAX: u32 = 12_000;

/// Number of steps within which it must come to rest afterwards.
const REST_STEPS: u32 = 100_000;

type Happen = fn(&mut World);

/// The events, each with its weights: a history picks one of the first three, for each event, and the last one after the
/// world has healed.
const DOINGS: &[(Happen, [u32; 4])] = &[
    (World::visit_control, [100, 100, 100, 100]),
    (World::visit_carried, [60, 120, 120, 120]),
    (World::dial, [20, 20, 40, 20]),
    (World::deliver, [200, 300, 400, 300]),
    (World::act, [60, 100, 150, 20]),
    (World::commit, [20, 120, 200, 200]),
    (World::obey, [60, 60, 60, 60]),
    (World::fetch, [20, 20, 20, 20]),
    (World::make_room, [20, 20, 40, 60]),
    (World::go_on, [20, 20, 20, 20]),
    (World::keep_house, [10, 10, 10, 10]),
    (World::tick, [20, 20, 20, 20]),
    (World::notice, [10, 10, 20, 10]),
    (World::lose_client, [0, 1, 5, 0]),
    (World::lose_link, [0, 1, 4, 0]),
    (World::cut, [0, 0, 2, 0]),
    (World::part, [0, 0, 1, 0]),
    (World::stop, [0, 0, 1, 0]),
    (World::crash, [0, 0, 1, 0]),
];

/// A client, with its place in the cluster.
struct Guest {
    half: Client,
    /// The broker with its session, if that is stored; otherwise it connects to any.
    home: Option<usize>,
    filter: usize,
    level: u8,
    connection: Option<Connection>,
    session: Option<SessionId>,
    visit: Visit,
    /// When it has first connected with Clean Start since it was last told that the session exists.
    in_doubt_since: Option<Moment>,
    /// Whether it has connected without Clean Start since, and does not know what session it has: it must connect with Clean
    /// Start until it was told that none is left (MQTT 5 §3.2.2.1.1).
    is_unsure: bool,
}

struct Connection {
    link: LinkId,
    node: usize,
    to_broker: VecDeque<Packet>,
    to_client: VecDeque<Packet>,
    /// Whether the broker is about to read, whatever has happened since it has looked whether it may.
    is_read: bool,
    /// The client's visit at the time when the broker read the CONNECT of this connection.
    visit: Visit,
}

/// The place of a broker, whether or not its process runs.
struct Place {
    node: Option<Node>,
    disks: Vec<Disk>,
    /// Rate of its clock, in thousandths.
    rate: u64,
    /// Milliseconds by which its wall clock is ahead.
    ahead: i64,
    /// Time until which the process is stopped, or does not exist.
    away_until: u64,
    next_tick: u64,
    /// The last incarnation.
    incarnation: u64,
    /// Whether it knows the subscriptions of each other broker.
    knows: [bool; NODES],
}

/// The world of one history.
pub struct World {
    rng: Rng,
    rules: Rules,
    settings: Settings,
    placement: Placement,
    history: History,
    promises: Promises,
    places: Vec<Place>,
    links: Links,
    /// Time until which nothing passes from one broker to another one.
    cut_until: [[u64; NODES]; NODES],
    guests: Vec<Guest>,
    askers: Askers,
    /// Broken connections of clients that their brokers have not noticed.
    unnoticed: Vec<(usize, LinkId)>,
    next_link: LinkId,
    /// Time, in milliseconds.
    now: u64,
    /// Time that a step takes at most.
    pace: u64,
    slowest: u64,
    crashes: u32,
    /// Probability that a broker crashes just after a client has got an acknowledgement: only that reveals one that has left
    /// too early.
    crash_when_told: f64,
    /// Probability that a broker stops just before it reads what a client has sent.
    stop_when_read: f64,
    /// A client whose broker has stopped in this way, and when it begins to publish: what it sends then is read when the broker
    /// goes on.
    lured: Option<(ClientId, u64)>,
    /// Probability that a client with a stored session connects with Clean Start.
    visit: f64,
    healed: bool,
    steps: u32,
    doings: Vec<(Happen, u32)>,
}

impl World {
    /// Creates the world of a seed. If `readable`, its history keeps lines to read.
    pub fn new(seed: u64, rules: Rules, readable: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        environment::begin(rng.fork().u64(..));
        environment::set_time(BEGIN);
        let homes = (0..NODES).map(name).collect();
        let placement = Placement::new(SLOTS, homes).expect("there are more slots than brokers");
        let settings = Settings {
            limits: Limits::default(),
            volatile: None,
            in_memory_max: [0, 300, 1_000_000][rng.usize(..3)],
            window: rng.usize(1..=3),
        };
        let some = |(what, weights): &(Happen, [u32; 4])| (*what, weights[rng.usize(..3)]);
        let doings = DOINGS.iter().map(some).collect();
        let guests =
            (0..rng.usize(3..=6)).map(|client| clients::guest(&mut rng, client, &placement));
        let guests = guests.collect();
        let askers = [0, 0, rng.usize(1..=3)][rng.usize(..3)];
        let askers = Askers::new(&mut rng, askers, &placement);
        let visit = [0.0, 0.0, 0.1][rng.usize(..3)];
        let disks = rng.usize(1..=2);
        let slowest = [2, 20, 200, 1_200][rng.usize(..4)];
        // By the clocks a broker tells whether a client has connected before. They are known up to the delay of a link.
        let is_visited = visit > 0.0;
        let skew = if is_visited && slowest > 2 { 0 } else { [0, 100, 5_000][rng.usize(..3)] };
        let place = |_| Place {
            node: None,
            disks: (0..disks).map(|_| Disk::new()).collect(),
            rate: if is_visited { 1_000 } else { rng.u64(970..=1_030) },
            ahead: rng.i64(-skew..=skew),
            away_until: 0,
            next_tick: 0,
            incarnation: 0,
            knows: [false; NODES],
        };
        let places = (0..NODES).map(place).collect();
        let pace = [2, 4, 8][rng.usize(..3)];
        let steps = rng.u32(1_000..STEPS_MAX);
        let crash_when_told = [0.0, 0.0, 0.01, 0.03][rng.usize(..4)];
        let stop_when_read = [0.005, 0.005, 0.03][rng.usize(..3)];
        let mut promises = Promises::default();
        for (node, other) in pairs() {
            promises.knows(node, other, false);
        }
        Self {
            rng,
            rules,
            settings,
            placement,
            history: History::new(readable),
            promises,
            places,
            links: Links::default(),
            cut_until: [[0; NODES]; NODES],
            guests,
            askers,
            unnoticed: Vec::new(),
            next_link: 0,
            now: BEGIN,
            pace,
            slowest,
            crashes: 0,
            crash_when_told,
            stop_when_read,
            lured: None,
            visit,
            healed: false,
            steps,
            doings,
        }
    }

    /// Runs the history to its end.
    pub fn run(mut self) -> Outcome {
        let mut healed_at = 0;
        loop {
            if !self.healed && self.history.steps() >= self.steps {
                self.heal();
                healed_at = self.history.steps();
            }
            self.step();
            if self.promises.violation().is_some() {
                break;
            }
            if self.healed && self.history.steps().is_multiple_of(64) && self.is_at_rest() {
                self.promises.check_end();
                self.check_askers();
                break;
            }
            if self.healed && self.history.steps() > healed_at + REST_STEPS {
                let what = format!("the world does not come to rest: {}", self.unrest());
                self.promises.violate(what);
                break;
            }
        }
        Outcome {
            digest: self.history.digest(),
            steps: self.history.steps(),
            crashes: self.crashes,
            messages: self.promises.messages() + self.askers.promises.messages(),
            deliveries: self.promises.deliveries,
            violation: self.promises.violation().take(),
            lines: self.history.into_lines(),
        }
    }

    fn step(&mut self) {
        self.history.step();
        self.now += self.rng.u64(..self.pace);
        for node in 0..NODES {
            if self.places[node].node.is_none() && self.now >= self.places[node].away_until {
                self.start(node);
            }
        }
        self.read_on();
        let doing = pick(&mut self.rng, self.doings.iter().copied());
        doing(self);
        self.links.sweep();
    }

    // ------------------------------------------------------------------------------------------------- brokers

    fn start(&mut self, node: usize) {
        self.set_clock(node);
        let place = &mut self.places[node];
        let wall = self.now.saturating_add_signed(place.ahead);
        place.incarnation = (place.incarnation + 1).max(wall);
        let stored = (&place.disks[..], &self.settings, self.rules);
        place.node = Some(Node::start(node, &self.placement, stored, place.incarnation));
        self.history.note(Event::Broker(node, "starts"));
    }

    /// Sets the clock to that of a broker.
    fn set_clock(&self, node: usize) {
        let Place { rate, ahead, .. } = self.places[node];
        environment::set_clocks(BEGIN + (self.now - BEGIN) * rate / 1_000, ahead);
    }

    fn runs(&self, node: usize) -> bool {
        self.places[node].node.is_some() && self.now >= self.places[node].away_until
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.now >= self.cut_until[from][to]
    }

    fn node(&mut self, node: usize) -> &mut Node {
        self.places[node].node.as_mut().expect("its process runs")
    }

    /// Lets a broker do something, and follows what comes of it.
    fn with<T>(&mut self, node: usize, act: impl FnOnce(&mut Node, &mut Rng) -> T) -> T {
        self.set_clock(node);
        let of = self.places[node].node.as_mut().expect("its process runs");
        let done = act(of, &mut self.rng);
        self.follow(node);
        done
    }

    /// Lets a random broker do something, if it runs.
    fn with_any(&mut self, act: impl FnOnce(&mut Node, &mut Rng)) {
        let node = self.rng.usize(..NODES);
        if self.runs(node) {
            self.with(node, act);
        }
    }

    fn follow(&mut self, node: usize) {
        for happened in self.node(node).happened() {
            use barid_peers::Event::{Down, Joining, Left, Unreachable, Up};
            match happened {
                Happened::Seen(Down(other) | Left(other)) => {
                    let other = index_of(&other);
                    self.history.note(Event::Seen(node, other, "is down"));
                    self.knows(node, other, false);
                }
                Happened::Seen(Joining(other)) => {
                    self.history.note(Event::Seen(node, index_of(&other), "joins"));
                }
                Happened::Seen(Up(other)) => {
                    self.history.note(Event::Seen(node, index_of(&other), "is up"));
                }
                Happened::Seen(Unreachable(other)) => {
                    self.history.note(Event::Seen(node, index_of(&other), "is unreachable"));
                }
                Happened::Seen(_) => {}
                Happened::NewLife => self.begins_anew(node),
            }
        }
        self.collect(node);
    }

    fn begins_anew(&mut self, node: usize) {
        self.history.note(Event::Broker(node, "begins a new life"));
        self.places[node].incarnation = self.node(node).me().incarnation;
        self.promises.is_upset(node);
        for other in (0..NODES).filter(|other| *other != node) {
            self.knows(node, other, false);
        }
        for ends in self.links.ends() {
            ends.is_closed |= ends.from == node;
            ends.is_over |= ends.to == node;
        }
    }

    fn knows(&mut self, node: usize, other: usize, knows: bool) {
        if self.places[node].knows[other] != knows {
            self.places[node].knows[other] = knows;
            let what = if knows { "has told all its filters" } else { "is not known any more" };
            self.history.note(Event::Seen(node, other, what));
            self.promises.knows(node, other, knows);
        }
    }

    fn tick(&mut self) {
        let node = self.rng.usize(..NODES);
        if self.runs(node) && self.now >= self.places[node].next_tick {
            self.places[node].next_tick = self.now + BEAT;
            self.with(node, |node, _| node.ticks());
        }
    }

    fn commit(&mut self) {
        let node = self.rng.usize(..NODES);
        if self.runs(node) {
            self.set_clock(node);
            let shard = self.rng.usize(..self.places[node].disks.len());
            let shard = u16::try_from(shard).expect("there are few");
            let of = self.places[node].node.as_mut().expect("its process runs");
            of.process.commit(shard, &mut self.history);
            self.follow(node);
        }
    }

    fn obey(&mut self) {
        self.with_any(|node, _| node.process.obey());
    }

    fn fetch(&mut self) {
        self.with_any(|node, rng| node.process.fetch(rng));
    }

    fn make_room(&mut self) {
        let healed = self.healed;
        self.with_any(|node, rng| {
            node.process.healed = healed;
            node.process.make_room(rng);
        });
    }

    fn go_on(&mut self) {
        self.with_any(|node, rng| node.process.go_on(rng));
    }

    fn keep_house(&mut self) {
        self.with_any(|node, _| node.process.keep_house());
    }

    // ------------------------------------------------------------------------------------------------------- rest

    fn heal(&mut self) {
        self.history.note(Event::Heal);
        self.healed = true;
        (self.slowest, self.pace) = (5, 4);
        self.cut_until = [[0; NODES]; NODES];
        for place in &mut self.places {
            place.away_until = place.away_until.min(self.now);
        }
        self.doings = DOINGS.iter().map(|(what, weights)| (*what, weights[3])).collect();
    }

    fn is_at_rest(&mut self) -> bool {
        self.unrest().is_empty()
    }

    /// Returns what is left to be done.
    fn unrest(&mut self) -> &'static str {
        let is_idle = |guest: &Guest| {
            let is_quiet = |it: &Connection| it.to_broker.is_empty() && it.to_client.is_empty();
            guest.half.connected
                && guest.half.is_idle()
                && guest.connection.as_ref().is_some_and(is_quiet)
        };
        if !self.guests.iter().all(is_idle) {
            return "a client is not connected, or waits";
        }
        if !self.askers.are_idle() {
            return "a client of the state store is not connected, or waits";
        }
        let sessions = self.guests.iter().map(|guest| guest.session);
        if !sessions.flatten().all(|session| self.promises.is_subscribed(session)) {
            return "a client has no subscription";
        }
        if !pairs().all(|(node, other)| self.places[node].knows[other]) {
            return "a broker does not know the subscriptions of another one";
        }
        if !self.unnoticed.is_empty() {
            return "a broker has not noticed that a client has gone";
        }
        for node in 0..NODES {
            self.set_clock(node);
            let Some(of) = &mut self.places[node].node else { return "a broker is down" };
            let cluster = of.membership.cluster();
            if !of.takes_clients() || !cluster.are_done(&cluster.sent()) {
                return "a broker has messages for another one";
            }
            if !of.process.is_idle() {
                return "a broker is busy";
            }
            self.follow(node);
        }
        let is_quiet = |link: &Carried| link.forth.is_empty() && link.back.is_empty();
        match self.links.carried.iter().all(is_quiet) {
            true => "",
            false => "messages are on their way",
        }
    }
}

/// All pairs of a broker and another one.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..NODES).flat_map(|one| {
        (0..NODES).filter(move |other| *other != one).map(move |other| (one, other))
    })
}
