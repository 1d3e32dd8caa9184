//! A broker, its clients, the network between them and the disks below, and what happens to them.
//!
//! Everything is decided by one generator of random numbers, on one thread, at a time that is a number.

use std::collections::BTreeSet;

use barid_core::session::{Overflow, QueueLimits, Room};
use barid_store::memory::Disk;
use fastrand::Rng;

use super::broker::{Broker, Remains, Remembered, Settings, remains};
use super::client::{Client, Heard, Method};
use super::packet::{FILTERS, Packet, TOPICS};
use super::promises::{Promises, Published};
use crate::Outcome;
use crate::chance::{fail, pick};
use crate::history::{Event, History};
use crate::network::{ClientId, LinkId, Network};
use crate::rules::Rules;

/// Steps after which a world without failures must have come to rest.
const REST_STEPS: u32 = 60_000;

/// The world of one history.
pub struct World {
    rng: Rng,
    chances: Chances,
    rules: Rules,
    settings: Settings,
    history: History,
    promises: Promises,
    disks: Vec<Disk>,
    broker: Broker,
    clients: Vec<Client>,
    /// When each client lost its connection, in milliseconds.
    lost_at: Vec<u64>,
    network: Network<Packet>,
    /// Milliseconds.
    now: u64,
    crashes: u32,
    /// From here on nothing fails, and nobody begins anything.
    healed: bool,
}

/// How often things happen in a history: each has its own, some of them never.
struct Chances {
    steps: u32,
    weights: [u32; Doing::ALL.len()],
    clean_start: f64,
    request: f64,
    retain: f64,
    expire: f64,
}

/// What can happen next.
#[derive(Clone, Copy)]
enum Doing {
    Deliver,
    Act,
    Commit,
    HandOn,
    Fetch,
    Cut,
    Notice,
    Wait,
    Crash,
    Fail,
    Audit,
}

impl Doing {
    const ALL: [Self; 11] = [
        Self::Deliver,
        Self::Act,
        Self::Commit,
        Self::HandOn,
        Self::Fetch,
        Self::Cut,
        Self::Notice,
        Self::Wait,
        Self::Crash,
        Self::Fail,
        Self::Audit,
    ];
}

impl Chances {
    fn new(rng: &mut Rng) -> Self {
        let mut some = |choices: [u32; 4]| choices[rng.usize(..4)];
        let weights = [
            some([300, 300, 200, 500]),
            some([80, 120, 160, 200]),
            some([30, 60, 150, 300]),
            some([20, 100, 200, 200]),
            some([10, 40, 40, 80]),
            some([0, 4, 12, 30]),
            some([2, 10, 10, 30]),
            some([2, 10, 10, 40]),
            some([0, 3, 6, 12]),
            some([0, 0, 4, 10]),
            some([0, 1, 1, 2]),
        ];
        Self {
            steps: rng.u32(100..900),
            weights,
            clean_start: if rng.bool() { 0.0 } else { 0.15 },
            request: [0.03, 0.1, 0.3][rng.usize(..3)],
            retain: [0.0, 0.1, 0.3][rng.usize(..3)],
            expire: [0.0, 0.0, 0.2][rng.usize(..3)],
        }
    }
}

impl World {
    /// The world of a seed. `readable`: its history keeps lines to read.
    pub fn new(seed: u64, rules: Rules, readable: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let chances = Chances::new(&mut rng);
        let disks: Vec<Disk> = (0..rng.usize(1..=4)).map(|_| Disk::new()).collect();
        let overflow = [Overflow::DropOldest, Overflow::DropNewest][rng.usize(..2)];
        let limits = QueueLimits {
            messages: [5, 1000, 1000][rng.usize(..3)],
            bytes: [800, 1_000_000, 1_000_000][rng.usize(..3)],
            overflow,
            tenant: Room::UNBOUNDED,
        };
        let in_memory_max = [0, 300, 1_000_000][rng.usize(..3)];
        let settings = Settings { limits, in_memory_max };
        let expiry = |rng: &mut Rng| [None, None, Some(0), Some(600)][rng.usize(..4)];
        let clients: Vec<Client> = (0..rng.usize(2..=5))
            .map(|_| {
                let method = if rng.bool() { Method::A } else { Method::B };
                Client::new(expiry(&mut rng), rng.u16(1..=5), method)
            })
            .collect();
        let levels = clients.iter().map(|_| FILTERS.map(|_| rng.u8(..=5) / 2)).collect();
        let expiries = clients.iter().map(|client| client.expiry).collect();
        Self {
            broker: Broker::start(&disks, settings, rules, 0, Remembered::default()),
            rng,
            chances,
            rules,
            settings,
            history: History::new(readable),
            promises: Promises::new(expiries, levels),
            disks,
            lost_at: vec![0; clients.len()],
            clients,
            network: Network::default(),
            now: 0,
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
            messages: self.promises.messages(),
            deliveries: self.promises.deliveries,
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
            Doing::HandOn => {
                if self.broker.jobs() > 0 {
                    let job = self.rng.usize(..self.broker.jobs());
                    self.broker.hand_on(job, &mut self.history);
                }
            }
            Doing::Fetch => {
                if self.broker.fetches() > 0 {
                    let fetch = self.rng.usize(..self.broker.fetches());
                    self.broker.fetch(fetch);
                }
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
                self.now += self.rng.u64(1..200);
                self.history.note(Event::Time(self.now));
                self.broker.set_time(self.now);
                self.broker.expire(&mut self.history);
            }
            Doing::Crash => self.crash(),
            Doing::Fail => fail(&mut self.rng, &self.disks, &mut self.history),
            Doing::Audit => self.audit(),
        }
    }

    /// The network brings one packet to where it goes.
    fn deliver(&mut self) {
        let Some(link) = self.network.any(&mut self.rng) else { return };
        let wire = self.network.wire(link).expect("it is there");
        let client = wire.client;
        if self.rng.bool() {
            let Some(packet) = wire.to_broker.front().copied() else { return };
            if self.broker.receive(client, link, packet) {
                wire.to_broker.pop_front();
                self.history.note(Event::BrokerGets(client, link, packet));
            }
        } else if let Some(packet) = wire.to_client.pop_front() {
            self.client_gets(client, link, packet);
        }
    }

    fn client_gets(&mut self, client: ClientId, link: LinkId, packet: Packet) {
        let (heard, answer) = self.clients[client].receive(packet);
        match heard {
            Some(Heard::Connected(Some(present), birth)) => {
                self.connected(client, link, present, birth)
            }
            Some(Heard::Connected(None, _)) => self.cut(link),
            Some(Heard::Message(message, qos, retain)) => {
                self.history.note(Event::Delivered(client, message, qos));
                self.promises.delivered(client, message, qos, retain);
            }
            Some(Heard::Acknowledged(message, verdict)) => {
                self.promises.acknowledged(client, message, verdict, self.history.steps());
            }
            Some(Heard::Subscribed(filter, verdict)) => {
                self.promises.subscribed(client, filter, verdict, self.history.steps());
            }
            Some(Heard::Unsubscribed(filter)) => {
                self.promises.unsubscribed(client, filter, self.history.steps());
            }
            Some(Heard::Completed) | None => {}
        }
        if let Some(answer) = answer {
            self.client_sends(client, answer);
        }
    }

    fn connected(&mut self, id: ClientId, link: LinkId, present: bool, birth: u64) {
        let client = &mut self.clients[id];
        client.link = Some((link, true));
        let clean_start = std::mem::take(&mut client.wants_clean);
        let away = self.now - self.lost_at[id];
        let now = self.history.steps();
        if !self.promises.connected(id, clean_start, (present, birth), (away, now)) {
            self.clients[id].forget_session();
            self.promises.begin_session(id);
        }
        for packet in self.clients[id].resend() {
            self.client_sends(id, packet);
        }
    }

    fn client_sends(&mut self, client: ClientId, packet: Packet) {
        let Some((link, _)) = self.clients[client].link else { return };
        self.history.note(Event::ClientSends(client, link, packet));
        if let Some(wire) = self.network.wire(link) {
            wire.to_broker.push_back(packet);
        }
    }

    /// A client does something of its own.
    fn act(&mut self) {
        let id = self.rng.usize(..self.clients.len());
        match self.clients[id].link {
            None => self.connect(id),
            Some((_, true)) if !self.healed => {
                let is_new = !self.promises.is_subscriber(id);
                let request = if is_new { 0.5 } else { self.chances.request };
                if self.rng.f64() < request {
                    self.request(id);
                } else {
                    self.publish(id);
                }
            }
            Some(_) => {}
        }
    }

    fn connect(&mut self, id: ClientId) {
        let clean_start = !self.healed && self.rng.f64() < self.chances.clean_start;
        if clean_start && !self.clients[id].wants_clean {
            self.clients[id].wants_clean = true;
            self.clients[id].forget_session();
            self.promises.begin_session(id);
        }
        self.clients[id].link = Some((self.network.connect(id), false));
        let connect = self.clients[id].connect();
        self.client_sends(id, connect);
    }

    fn request(&mut self, id: ClientId) {
        let filter = self.rng.usize(..FILTERS.len());
        if !self.clients[id].request(filter) {
            return;
        }
        let packet = if self.rng.u8(..4) > 0 {
            self.promises.subscribing(id, filter);
            Packet::Subscribe(1, filter, self.promises.level(id, filter))
        } else {
            self.promises.unsubscribing(id, filter);
            Packet::Unsubscribe(1, filter)
        };
        self.client_sends(id, packet);
    }

    fn publish(&mut self, id: ClientId) {
        let qos = [0, 1, 1, 2, 2, 2][self.rng.usize(..6)];
        if qos > 0 && !self.clients[id].may_publish() {
            return;
        }
        let topic = self.rng.usize(..TOPICS.len());
        let mut published = Published::new(id, topic, qos);
        published.retain = self.rng.f64() < self.chances.retain;
        published.removes = published.retain && self.rng.u8(..4) == 0;
        let expires = !published.retain && self.rng.f64() < self.chances.expire;
        let expiry = expires.then(|| self.rng.u64(100..2_000));
        published.expires_at = expiry.map(|expiry| self.now + expiry);
        let retain = published.retain;
        let len = if published.removes { 0 } else { self.rng.usize(10..200) };
        let message = self.promises.publish(published, self.history.steps());
        let packet_id = if qos > 0 { self.clients[id].free_id() } else { 0 };
        let packet =
            Packet::Publish { message, topic, qos, id: packet_id, dup: false, retain, len, expiry };
        self.clients[id].publish(packet);
        self.client_sends(id, packet);
    }

    /// A connection breaks. Its client notices at once, the broker when it does.
    fn cut(&mut self, link: LinkId) {
        let Some(client) = self.network.cut(link) else { return };
        self.history.note(Event::Cut(client, link));
        self.disconnected(client);
    }

    fn disconnected(&mut self, client: ClientId) {
        if self.clients[client].link.is_some_and(|(_, connected)| connected) {
            self.lost_at[client] = self.now;
        }
        self.clients[client].disconnected();
    }

    /// The broker's process ends at this very moment, and another one starts.
    fn crash(&mut self) {
        self.history.note(Event::Crash);
        self.crashes += 1;
        for client in self.network.collapse() {
            self.disconnected(client);
        }
        let remembered = self.broker.remembered();
        for disk in &self.disks {
            disk.crash();
        }
        self.broker = Broker::start(&self.disks, self.settings, self.rules, self.now, remembered);
        self.broker.expire(&mut self.history);
    }

    /// When all is written, memory and stores must be the same.
    fn audit(&mut self) {
        if self.broker.jobs() > 0 {
            return;
        }
        self.history.note(Event::Audit);
        for shard in (0_u16..).take(self.disks.len()) {
            // A store that fails has not all.
            for _ in 0..6 {
                self.broker.commit(shard, &mut self.history);
            }
        }
        if self.broker.is_written() {
            self.compare("in memory is not what is in the stores");
        }
    }

    /// What another process would find must be what this one has.
    fn compare(&mut self, what: &str) {
        let found =
            Broker::start(&self.disks, self.settings, self.rules, self.now, Remembered::default());
        let (here, there) = (self.broker.picture(), found.picture());
        if here != there {
            self.promises.violate(format!("what is {what}:\n{here:#?}\n{there:#?}"));
        }
    }

    /// The broker's packets go on their way.
    fn take_effects(&mut self) {
        let effects = std::mem::take(&mut self.broker.effects);
        for (client, message, reason) in effects.dropped {
            self.history.note(Event::Dropped(client, message, reason.name()));
            self.promises.dropped(client, message);
        }
        for message in effects.refused {
            self.promises.refused(message);
        }
        for (client, link, packet) in effects.packets {
            if let Some(wire) = self.network.wire(link) {
                self.history.note(Event::BrokerSends(client, link, packet));
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
        // Deliver, Act, Commit, HandOn, Fetch, Notice.
        self.chances.weights = [400, 20, 100, 100, 50, 0, 10, 0, 0, 0, 0];
    }

    fn is_at_rest(&self) -> bool {
        let connected = |client: &Client| client.link.is_some_and(|(_, connected)| connected);
        self.clients.iter().all(|client| client.is_idle() && connected(client))
            && self.network.is_quiet()
            && self.broker.is_idle()
    }

    fn check_end(&mut self) {
        if self.promises.violation().is_some() {
            return;
        }
        self.promises.all_is_delivered(self.now);
        for client in 0..self.clients.len() {
            let subscriptions = self.broker.subscriptions(client);
            let found: BTreeSet<usize> =
                subscriptions.into_iter().flatten().map(|(filter, _)| *filter).collect();
            self.promises.has_subscribed(client, &found);
        }
        for (topic, name) in TOPICS.iter().enumerate() {
            self.promises.has_retained(topic, self.broker.retained(name));
        }
        self.compare("in memory in the end is not what is in the stores");
        // Notes of sessions that ended while a message of theirs was handed on go with the next start.
        self.crash();
        while !self.broker.is_written() {
            for shard in (0_u16..).take(self.disks.len()) {
                self.broker.commit(shard, &mut self.history);
            }
        }
        let remains = remains(&self.disks);
        if remains != Remains::default() {
            self.promises.violate(format!("nothing is on its way, and there remain {remains:?}"));
        }
    }
}
