//! A broker, its clients, the network between them and the disks below, and what happens to them.

use barid_store::memory::Disk;
use fastrand::Rng;
use statestore_proto::Condition;

use super::broker::{Broker, orphans};
use super::client::Client;
use super::packet::{Command, FENCED, KEYS, Key, LOCK, Packet, Request, VOLATILE, Value};
use super::promises::Promises;
use crate::Outcome;
use crate::chance::{fail, pick};
use crate::history::{Event, History};
use crate::linearizability::Moment;
use crate::network::Network;
use crate::network::{ClientId, LinkId};
use crate::rules::Rules;

/// Steps after which a world without failures must have come to rest.
const REST_STEPS: u32 = 30_000;

/// Requests about one key in a history: as many as a search can put into an order.
const REQUESTS_MAX: usize = 60;

/// The world of one history.
pub struct World {
    rng: Rng,
    chances: Chances,
    rules: Rules,
    history: History,
    promises: Promises,
    disks: Vec<Disk>,
    broker: Broker,
    clients: Vec<Client>,
    /// How often each key was asked for.
    requests: [usize; KEYS.len()],
    /// The keys that each client has not looked at since nothing fails any more.
    to_see: Vec<Vec<Key>>,
    network: Network<Packet>,
    /// Milliseconds.
    now: u64,
    crashes: u32,
    /// From here on nothing fails.
    healed: bool,
}

/// How often things happen in a history: each has its own, some of them never.
struct Chances {
    steps: u32,
    weights: [u32; Doing::ALL.len()],
    clean: f64,
    watch: f64,
    ttl: f64,
    /// How often a client that had the lock proves it.
    token: f64,
}

/// What can happen next.
#[derive(Clone, Copy)]
enum Doing {
    Deliver,
    Act,
    Commit,
    Cut,
    Notice,
    Wait,
    Expire,
    Crash,
    Fail,
    Audit,
}

impl Doing {
    const ALL: [Self; 10] = [
        Self::Deliver,
        Self::Act,
        Self::Commit,
        Self::Cut,
        Self::Notice,
        Self::Wait,
        Self::Expire,
        Self::Crash,
        Self::Fail,
        Self::Audit,
    ];
}

impl Chances {
    fn new(rng: &mut Rng) -> Self {
        let mut some = |choices: [u32; 4]| choices[rng.usize(..4)];
        let weights = [
            some([200, 300, 300, 500]),
            some([40, 80, 120, 160]),
            some([20, 40, 80, 150]),
            some([0, 4, 12, 30]),
            some([2, 10, 10, 30]),
            some([2, 10, 30, 60]),
            some([0, 2, 10, 20]),
            some([0, 3, 6, 12]),
            some([0, 0, 0, 6]),
            some([0, 1, 1, 2]),
        ];
        Self {
            steps: rng.u32(100..1_200),
            weights,
            clean: if rng.bool() { 0.0 } else { 0.1 },
            watch: [0.0, 0.1, 0.3][rng.usize(..3)],
            ttl: [0.0, 0.2, 0.6][rng.usize(..3)],
            token: [0.0, 0.5, 0.9][rng.usize(..3)],
        }
    }
}

impl World {
    /// The world of a seed. `readable`: its history keeps lines to read.
    pub fn new(seed: u64, rules: Rules, readable: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let chances = Chances::new(&mut rng);
        let disks: Vec<Disk> = (0..rng.usize(1..=3)).map(|_| Disk::new()).collect();
        let skew = |rng: &mut Rng| [-5_000, 0, 0, 20, 5_000, 59_000][rng.usize(..6)];
        let clients: Vec<_> = (0..rng.usize(2..=4)).map(|_| Client::new(skew(&mut rng))).collect();
        let now = 1_000_000;
        Self {
            broker: Broker::start(&disks, rules, now),
            rng,
            chances,
            rules,
            history: History::new(readable),
            promises: Promises::default(),
            disks,
            requests: [0; KEYS.len()],
            to_see: clients.iter().map(|_| (0..KEYS.len()).collect()).collect(),
            clients,
            network: Network::default(),
            now,
            crashes: 0,
            healed: false,
        }
    }

    /// Lets it all happen.
    pub fn run(mut self) -> Outcome {
        while self.history.steps() < self.chances.steps && self.promises.violation().is_none() {
            self.step();
        }
        self.heal();
        let last = self.history.steps() + REST_STEPS;
        while !self.is_at_rest() && self.promises.violation().is_none() {
            self.step();
            if self.history.steps() == last {
                self.promises.violate("it does not come to rest".into());
            }
        }
        self.check_end();
        Outcome {
            digest: self.history.digest(),
            steps: self.history.steps(),
            crashes: self.crashes,
            messages: self.promises.requests(),
            deliveries: self.promises.answers,
            violation: self.promises.violation().map(String::from),
            lines: self.history.into_lines(),
        }
    }

    fn step(&mut self) {
        self.history.step();
        let doing = pick(&mut self.rng, Doing::ALL, self.chances.weights);
        self.happen(doing);
        self.take_effects();
    }

    fn happen(&mut self, doing: Doing) {
        match doing {
            Doing::Deliver => self.deliver(),
            Doing::Act => self.act(),
            Doing::Commit => {
                let shard = self.rng.usize(..self.disks.len());
                let shard = u16::try_from(shard).expect("there are few");
                self.broker.commit(shard, &mut self.history);
            }
            Doing::Cut => {
                if let Some(link) = self.network.any(&mut self.rng) {
                    self.cut(link);
                }
            }
            Doing::Notice => {
                if let Some((client, link)) = self.network.notice(&mut self.rng) {
                    self.history.note(Event::Gone(client, link));
                    self.broker.lose(client, link);
                }
            }
            Doing::Wait => {
                let millis = self.rng.u64(1..200);
                self.pass(millis);
            }
            Doing::Expire => self.broker.expire(),
            Doing::Crash => self.crash(),
            Doing::Fail => fail(&mut self.rng, &self.disks, &mut self.history),
            Doing::Audit => self.audit(),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.history.note(Event::Time(self.now));
        self.broker.set_time(self.now);
    }

    fn moment(&self) -> Moment {
        Moment { step: self.history.steps(), millis: self.now }
    }

    /// The network brings one packet to where it goes.
    fn deliver(&mut self) {
        let Some(link) = self.network.any(&mut self.rng) else { return };
        let wire = self.network.wire(link).expect("it is there");
        let client = wire.client;
        if self.rng.bool() {
            let Some(packet) = wire.to_broker.pop_front() else { return };
            self.history.note(Event::StoreGets(client, link, packet));
            self.broker.receive(client, link, packet);
        } else if let Some(packet) = wire.to_client.pop_front() {
            self.history.note(Event::ClientHears(client, link, packet));
            self.client_gets(client, link, packet);
        }
    }

    fn client_gets(&mut self, id: ClientId, link: LinkId, packet: Packet) {
        let now = self.moment();
        let client = &mut self.clients[id];
        match packet {
            Packet::ConnAck => {
                client.link = Some((link, true));
                client.wants_clean = false;
                for packet in client.resend() {
                    self.client_sends(id, packet);
                }
            }
            Packet::PubAck(packet_id) => client.acknowledged(packet_id),
            Packet::Response(number, told) => {
                if client.answered(number, told).is_some() {
                    self.promises.told(number, told, now);
                }
            }
            Packet::Notification(key, value, version) => {
                self.promises.notified(link, (key, value, version), now);
            }
            _ => unreachable!("a broker sends no such packet"),
        }
    }

    fn client_sends(&mut self, client: ClientId, packet: Packet) {
        let Some((link, _)) = self.clients[client].link else { return };
        self.history.note(Event::ClientAsks(client, link, packet));
        if let Some(wire) = self.network.wire(link) {
            wire.to_broker.push_back(packet);
        }
    }

    /// A client does something of its own.
    fn act(&mut self) {
        let id = self.rng.usize(..self.clients.len());
        match self.clients[id].link {
            None => self.connect(id),
            Some((_, true)) if self.clients[id].may_ask() => {
                if self.healed {
                    if let Some(key) = self.to_see[id].pop() {
                        self.ask(id, key, Command::Get);
                    }
                } else if self.rng.f64() < self.chances.watch {
                    let key = self.rng.usize(..KEYS.len());
                    self.client_sends(id, Packet::Watch(key));
                } else {
                    self.request(id);
                }
            }
            Some(_) => {}
        }
    }

    fn connect(&mut self, id: ClientId) {
        if !self.healed && self.rng.f64() < self.chances.clean {
            self.clients[id].wants_clean = true;
            self.clients[id].forget_session();
        }
        self.clients[id].link = Some((self.network.connect(id), false));
        self.client_sends(id, Packet::Connect { clean: self.clients[id].wants_clean });
    }

    /// A client asks for something.
    fn request(&mut self, id: ClientId) {
        let key = self.rng.usize(..KEYS.len());
        if self.requests[key] == REQUESTS_MAX {
            return;
        }
        let own = Value::try_from(id).expect("there are few clients");
        let value = if key == LOCK { own } else { self.promises.next() };
        let conditions = [Condition::Always, Condition::IfAbsent, Condition::IfAbsentOrEqual];
        let condition = match key {
            LOCK => Condition::IfAbsentOrEqual,
            _ => conditions[self.rng.usize(..3)],
        };
        let ttl = (self.rng.f64() < self.chances.ttl).then(|| self.rng.u64(1..600));
        let command = match self.rng.u8(..10) {
            0..5 => Command::Set(value, condition, ttl),
            5..7 => Command::Get,
            7 => Command::Del,
            _ if key == LOCK => Command::VDel(own),
            // What somebody has set, perhaps.
            _ => Command::VDel(self.rng.u32(..value.max(1))),
        };
        self.ask(id, key, command);
    }

    fn ask(&mut self, id: ClientId, key: Key, command: Command) {
        self.requests[key] += 1;
        let client = &self.clients[id];
        let fenced = matches!(key, FENCED | VOLATILE) && self.rng.f64() < self.chances.token;
        let request = Request {
            number: self.promises.next(),
            id: client.free_id(),
            dup: false,
            key,
            command,
            timestamp: self.now.saturating_add_signed(client.skew),
            token: client.lock.filter(|_| fenced),
        };
        self.promises.asked(request, self.moment());
        self.clients[id].ask(request);
        self.client_sends(id, Packet::Request(request));
    }

    /// A connection breaks. Its client notices at once, the broker when it does.
    fn cut(&mut self, link: LinkId) {
        let Some(client) = self.network.cut(link) else { return };
        self.history.note(Event::Cut(client, link));
        self.clients[client].disconnected();
    }

    /// The broker's process ends at this very moment, and another one starts.
    fn crash(&mut self) {
        self.history.note(Event::Crash);
        self.crashes += 1;
        for client in self.network.collapse() {
            self.clients[client].disconnected();
        }
        for disk in &self.disks {
            disk.crash();
        }
        // A process takes time to begin.
        self.now += self.rng.u64(1..20);
        self.history.note(Event::Time(self.now));
        self.broker = Broker::start(&self.disks, self.rules, self.now);
    }

    /// When all is written, memory and stores must be the same.
    fn audit(&mut self) {
        self.history.note(Event::Audit);
        self.write();
        if self.broker.is_written() {
            self.compare();
        }
    }

    /// Writes all that can be written.
    fn write(&mut self) {
        for shard in (0_u16..).take(self.disks.len()) {
            // A store that fails has not all.
            for _ in 0..6 {
                self.broker.commit(shard, &mut self.history);
            }
        }
    }

    /// What another process would find must be what this one has.
    fn compare(&mut self) {
        let found = Broker::start(&self.disks, self.rules, self.now);
        let requests = self.promises.all();
        let (here, there) = (self.broker.picture(&requests), found.picture(&requests));
        if here != there {
            self.promises
                .violate(format!("what is in memory is not in the stores:\n{here:#?}\n{there:#?}"));
        }
    }

    /// The broker's packets go on their way.
    fn take_effects(&mut self) {
        for (client, link, packet) in std::mem::take(&mut self.broker.effects) {
            if let Some(wire) = self.network.wire(link) {
                self.history.note(Event::StoreTells(client, link, packet));
                wire.to_client.push_back(packet);
            }
        }
    }

    fn heal(&mut self) {
        self.history.note(Event::Heal);
        self.healed = true;
        for disk in &self.disks {
            disk.fail(None);
        }
        // Deliver, Act, Commit, Notice, Wait, Expire.
        self.chances.weights = [400, 50, 100, 0, 10, 1, 1, 0, 0, 0];
    }

    fn is_at_rest(&self) -> bool {
        let connected = |client: &Client| client.link.is_some_and(|(_, connected)| connected);
        self.clients.iter().all(|client| client.is_idle() && connected(client))
            && self.to_see.iter().all(Vec::is_empty)
            && self.network.is_quiet()
            && self.broker.is_written()
    }

    fn check_end(&mut self) {
        if self.promises.violation().is_some() {
            return;
        }
        self.promises.check();
        self.compare();
        let orphans = orphans(&self.disks);
        if orphans > 0 {
            self.promises.violate(format!("{orphans} answers are left of sessions that are gone"));
        }
    }
}
