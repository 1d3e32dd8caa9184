//! What happens to a broker and its clients.

use std::collections::BTreeSet;

use barid_core::queue::{Overflow, QueueLimits, Room};
use barid_core::session::OVERHEAD;
use barid_store::memory::Disk;
use fastrand::Rng;

use super::broker::{Broker, Picture, Remains, Remembered, Settings, remains};
use super::client::{Client, Heard, Method};
use super::promises::{Promises, Published};
use crate::history::Event;
use crate::network::{ClientId, LinkId};
use crate::packets::messages::{FILTERS, Packet, TOPICS};
use crate::rules::Rules;
use crate::world::{self, Beginning, Broker as _, Checker as _, Doing, Note, Story};

type World = world::World<Messages>;

/// Clients publish and subscribe.
pub struct Messages {
    rules: Rules,
    settings: Settings,
    /// When each client lost its connection, in milliseconds.
    lost_at: Vec<u64>,
    // How often things happen in a history.
    clean_start: f64,
    request: f64,
    retain: f64,
    expire: f64,
}

impl Story for Messages {
    type Packet = Packet;
    type Broker = Broker;
    type Client = Client;
    type Promises = Promises;
    type Picture = Picture;

    const DOINGS: &'static [Doing<Self>] = &[
        (World::deliver, [300, 300, 200, 500], 400),
        (World::act, [80, 120, 160, 200], 20),
        (World::commit, [30, 60, 150, 300], 100),
        (World::hand_on, [20, 100, 200, 200], 100),
        (World::fetch, [10, 40, 40, 80], 50),
        (World::cut, [0, 4, 12, 30], 0),
        (World::notice, [2, 10, 10, 30], 10),
        (World::expire, [2, 10, 10, 40], 0),
        (World::crash, [0, 3, 6, 12], 0),
        (World::fail, [0, 0, 4, 10], 0),
        (World::audit_if_idle, [0, 1, 1, 2], 0),
    ];
    const STEPS_MAX: u32 = 900;
    const BEGIN: u64 = 0;
    const SENDS: Note<Packet> = Event::ClientSends;
    const ARRIVES: Note<Packet> = Event::BrokerGets;
    const TELLS: Note<Packet> = Event::BrokerSends;

    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self> {
        let clean_start = if rng.bool() { 0.0 } else { 0.15 };
        let request = [0.03, 0.1, 0.3][rng.usize(..3)];
        let retain = [0.0, 0.1, 0.3][rng.usize(..3)];
        let expire = [0.0, 0.0, 0.2][rng.usize(..3)];
        let disks = rng.usize(1..=4);
        let overflow = [Overflow::DropOldest, Overflow::DropNewest][rng.usize(..2)];
        let limits = QueueLimits {
            messages: [5, 1000, 1000][rng.usize(..3)],
            bytes: [800 + 8 * OVERHEAD, 1_000_000, 1_000_000][rng.usize(..3)],
            overflow,
            tenant: Room::UNBOUNDED,
        };
        let in_memory_max = [0, 300, 1_000_000][rng.usize(..3)];
        let settings = Settings { limits, in_memory_max };
        let expiry = |rng: &mut Rng| [None, None, Some(0), Some(600)][rng.usize(..4)];
        let clients: Vec<_> = (0..rng.usize(2..=5))
            .map(|_| {
                let method = if rng.bool() { Method::A } else { Method::B };
                Client::new(expiry(rng), rng.u16(1..=5), method)
            })
            .collect();
        let levels = clients.iter().map(|_| FILTERS.map(|_| rng.u8(..=5) / 2)).collect();
        let expiries = clients.iter().map(|client| client.expiry).collect();
        let lost_at = vec![0; clients.len()];
        let story = Self { rules, settings, lost_at, clean_start, request, retain, expire };
        Beginning { story, disks, clients, promises: Promises::new(expiries, levels) }
    }

    fn start(&self, disks: &[Disk], _: u32, now: u64) -> Broker {
        Broker::start(disks, self.settings, self.rules, now, Remembered::default())
    }

    fn connect(world: &mut World, id: ClientId) {
        let clean_start = !world.healed && world.rng.f64() < world.story.clean_start;
        if clean_start && !world.clients[id].wants_clean {
            world.clients[id].wants_clean = true;
            world.clients[id].forget_session();
            world.promises.begin_session(id);
        }
        world.network.connect(id);
        let connect = world.clients[id].connect();
        world.client_sends(id, connect);
    }

    fn act(world: &mut World, id: ClientId) {
        if !world.clients[id].connected || world.healed {
            return;
        }
        let is_new = !world.promises.is_subscriber(id);
        let request = if is_new { 0.5 } else { world.story.request };
        if world.rng.f64() < request {
            world.request(id);
        } else {
            world.publish(id);
        }
    }

    fn client_gets(world: &mut World, client: ClientId, link: LinkId, packet: Packet) {
        let (heard, answer) = world.clients[client].receive(packet);
        match heard {
            Some(Heard::Connected(Some(present), birth)) => world.connected(client, present, birth),
            Some(Heard::Connected(None, _)) => world.cut_link(link),
            Some(Heard::Message(message, qos, retain)) => {
                world.deliveries += 1;
                world.history.note(Event::Delivered(client, message, qos));
                world.promises.delivered(client, message, qos, retain);
            }
            Some(Heard::Acknowledged(message, verdict)) => {
                world.promises.acknowledged(client, message, verdict, world.history.steps());
            }
            Some(Heard::Subscribed(filter, verdict)) => {
                world.promises.subscribed(client, filter, verdict, world.history.steps());
            }
            Some(Heard::Unsubscribed(filter)) => {
                world.promises.unsubscribed(client, filter, world.history.steps());
            }
            Some(Heard::Completed) | None => {}
        }
        if let Some(answer) = answer {
            world.client_sends(client, answer);
        }
    }

    fn disconnected(world: &mut World, client: ClientId) {
        if world.clients[client].connected {
            world.story.lost_at[client] = world.now;
        }
        world.clients[client].disconnected();
    }

    fn take_packets(world: &mut World) -> Vec<(ClientId, LinkId, Packet)> {
        let effects = std::mem::take(&mut world.broker.effects);
        for (client, message, reason) in effects.dropped {
            world.history.note(Event::Dropped(client, message, reason.name()));
            world.promises.dropped(client, message);
        }
        for message in effects.refused {
            world.promises.refused(message);
        }
        effects.packets
    }

    fn restart(world: &mut World) {
        let Self { settings, rules, .. } = world.story;
        let remembered = world.broker.remembered();
        world.broker = Broker::start(&world.disks, settings, rules, world.now, remembered);
        world.broker.expire(&mut world.history);
    }

    fn picture(_: &World, broker: &Broker) -> Picture {
        broker.picture()
    }

    fn is_at_rest(world: &World) -> bool {
        world.clients.iter().all(|client| client.is_idle() && client.connected)
            && world.broker.is_idle()
    }

    fn check_end(world: &mut World) {
        world.promises.all_is_delivered(world.now);
        for client in 0..world.clients.len() {
            let subscriptions = world.broker.subscriptions(client);
            let found: BTreeSet<usize> =
                subscriptions.into_iter().flatten().map(|(filter, _)| *filter).collect();
            world.promises.has_subscribed(client, &found);
        }
        for (topic, name) in TOPICS.iter().enumerate() {
            world.promises.has_retained(topic, world.broker.retained(name));
        }
        world.compare();
        // Notes of sessions that ended while a message of theirs was handed on go with the next start.
        world.crash();
        while !world.broker.is_written() {
            for shard in (0_u16..).take(world.disks.len()) {
                world.broker.commit(shard, &mut world.history);
            }
        }
        let remains = remains(&world.disks);
        if remains != Remains::default() {
            world.promises.violate(format!("nothing is on its way, and there remain {remains:?}"));
        }
    }
}

impl World {
    /// A message goes to one session more.
    fn hand_on(&mut self) {
        if self.broker.jobs() > 0 {
            let job = self.rng.usize(..self.broker.jobs());
            self.broker.hand_on(job, &mut self.history);
        }
    }

    /// A session gets what it waits for from the store.
    fn fetch(&mut self) {
        if self.broker.fetches() > 0 {
            let fetch = self.rng.usize(..self.broker.fetches());
            self.broker.fetch(fetch);
        }
    }

    /// Time passes, and sessions expire.
    fn expire(&mut self) {
        self.wait(1..200);
        self.broker.expire(&mut self.history);
    }

    /// While a message is being handed on, some of it is only in memory.
    fn audit_if_idle(&mut self) {
        if self.broker.jobs() == 0 {
            self.audit();
        }
    }

    fn connected(&mut self, id: ClientId, present: bool, birth: u64) {
        let client = &mut self.clients[id];
        client.connected = true;
        let clean_start = std::mem::take(&mut client.wants_clean);
        let away = self.now - self.story.lost_at[id];
        let now = self.history.steps();
        if !self.promises.connected(id, clean_start, (present, birth), (away, now)) {
            self.clients[id].forget_session();
            self.promises.begin_session(id);
        }
        for packet in self.clients[id].resend() {
            self.client_sends(id, packet);
        }
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
        published.retain = self.rng.f64() < self.story.retain;
        published.removes = published.retain && self.rng.u8(..4) == 0;
        let expires = !published.retain && self.rng.f64() < self.story.expire;
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
}
