//! The choice of the next event, for MQTT messages.

use std::collections::BTreeSet;

use barid_core::drop_reason::DropReason;
use barid_core::session::OVERHEAD;
use barid_engine::limits::{Limits, QueueOverflow};
use barid_store::memory::Disk;
use fastrand::Rng;

use super::bound;
use super::broker::{Broker, Remembered};
use super::client::{Client, Heard, Method};
use super::picture::{self, Picture, Remains, remains};
use super::promises::{Promises, Published};
use crate::history::Event;
use crate::network::{ClientId, LinkId, client_id};
use crate::packets::messages::{
    FILTERS, MessageNumber, Packet, SHARED, SHARED_TOPIC, TOPICS, WILL_TOPIC,
};
use crate::process::{self, Settings};
use crate::rules::Rules;
use crate::world::{self, Beginning, Broker as _, Checker as _, Doing, Note, Story};

/// Settings of a full queue, of which a history picks one.
const OVERFLOWS: [QueueOverflow; 4] = [
    QueueOverflow::DropOldest,
    QueueOverflow::DropNewest,
    QueueOverflow::Reject,
    QueueOverflow::Block,
];

type World = world::World<Messages>;

/// The story in which clients publish and subscribe.
pub struct Messages {
    rules: Rules,
    settings: Settings,
    /// Whether bindings fill queues with published messages.
    binds: bool,
    /// The time at which each client lost its connection, in milliseconds, because it broke or the broker
    /// closed it.
    lost_at: Vec<Option<u64>>,
    /// How long each client had been away when the broker sent the last CONNACK that admitted it, in
    /// milliseconds.
    away: Vec<u64>,
    /// Probability that a client connects when it can, for each client.
    returns: Vec<f64>,
    /// The will of each client's connection, and whether the broker must publish it when the connection breaks.
    wills: Vec<Option<(MessageNumber, bool)>>,
    // Probabilities of actions in this history.
    clean_start: f64,
    request: f64,
    retain: f64,
    expire: f64,
    share: f64,
    will: f64,
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
        (World::commit, [6, 30, 150, 300], 100),
        (process::obey, [20, 100, 200, 200], 100),
        (process::fetch, [10, 40, 40, 80], 50),
        (process::make_room, [5, 10, 40, 80], 100),
        (process::go_on, [5, 20, 50, 100], 20),
        (process::change_rates, [0, 0, 1, 3], 3),
        (|world| world.wait(1..10), [0, 0, 0, 0], 10),
        (process::keep_house, [5, 10, 20, 40], 20),
        (World::cut, [0, 4, 12, 30], 0),
        (World::notice, [2, 10, 10, 30], 10),
        (|world| world.wait(1..200_000), [2, 10, 10, 40], 0),
        (World::crash, [0, 1, 3, 6], 0),
        (World::close_or_open, [0, 0, 3, 20], 20),
        (World::fail, [0, 0, 4, 10], 0),
        (World::settle_and_audit, [0, 1, 1, 2], 0),
    ];
    const STEPS_MAX: u32 = 3_000;
    const BEGIN: u64 = 0;
    const SENDS: Note<Packet> = Event::ClientSends;
    const ARRIVES: Note<Packet> = Event::BrokerGets;
    const TELLS: Note<Packet> = Event::BrokerSends;

    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self> {
        // In some histories, members of the shared subscription come and go, and leave their messages to
        // others.
        let passes_on = rng.u8(..4) == 0;
        let clean_start = if passes_on { 0.4 } else { [0.0, 0.15][rng.usize(..2)] };
        let request = [0.03, 0.1, 0.3][rng.usize(..3)];
        let retain = [0.0, 0.1, 0.3][rng.usize(..3)];
        let expire = [0.0, 0.0, 0.2][rng.usize(..3)];
        let share = if passes_on { 0.95 } else { [0.0, 0.0, 0.2, 0.7][rng.usize(..4)] };
        let will = [0.0, 0.5][rng.usize(..2)];
        let disks = rng.usize(1..=4);
        let limits = Limits {
            max_queued_messages: [5, 1000, 1000][rng.usize(..3)],
            max_queued_bytes: [800 + 8 * OVERHEAD, 1_000_000, 1_000_000][rng.usize(..3)],
            queue_overflow: OVERFLOWS[rng.usize(..OVERFLOWS.len())],
            publish_rate: [0, 0, 0, 5][rng.usize(..4)],
            inbound_bytes_rate: [0, 0, 0, 100][rng.usize(..4)],
            outbound_bytes_rate: [0, 0, 0, 100][rng.usize(..4)],
            ..Limits::default()
        };
        let settings = Settings {
            limits,
            volatile: None,
            in_memory_max: [0, 300, 1_000_000][rng.usize(..3)],
            window: rng.usize(1..=3),
        };
        let expiry = |rng: &mut Rng| {
            let choices = if passes_on { [None; 4] } else { [None, None, Some(0), Some(600_000)] };
            choices[rng.usize(..4)]
        };
        let clients: Vec<_> = (0..rng.usize(2..=5))
            .map(|_| {
                let method = if rng.bool() { Method::A } else { Method::B };
                Client::new(expiry(rng), rng.u16(1..=5), method)
            })
            .collect();
        let mut levels: Vec<_> =
            clients.iter().map(|_| FILTERS.map(|_| rng.u8(..=5) / 2)).collect();
        // The shared subscription has QoS 1. A member with QoS 0 may lose messages for all members. QoS 2
        // messages of a session that ends go to nobody, because two stores cannot take and give in one commit.
        levels.iter_mut().for_each(|levels| levels[SHARED] = 1);
        let choices = if passes_on { [1.0, 0.1, 0.05, 0.02] } else { [1.0, 1.0, 0.2, 0.02] };
        let returns = clients.iter().map(|_| choices[rng.usize(..4)]).collect();
        let expiries = clients.iter().map(|client| client.expiry).collect();
        let (lost_at, away) = (vec![None; clients.len()], vec![0; clients.len()]);
        let wills = vec![None; clients.len()];
        let story = Self {
            rules,
            settings,
            binds: rng.u8(..3) == 0,
            lost_at,
            away,
            returns,
            wills,
            clean_start,
            request,
            retain,
            expire,
            share,
            will,
        };
        Beginning { story, disks, clients, promises: Promises::new(expiries, levels) }
    }

    fn start(&self, disks: &[Disk], life: u32) -> Broker {
        self.start_with(disks, life, Remembered::default())
    }

    fn connect(world: &mut World, id: ClientId) {
        if !world.healed && world.rng.f64() >= world.story.returns[id] {
            return;
        }
        let clean_start = !world.healed && world.rng.f64() < world.story.clean_start;
        if clean_start && !world.clients[id].wants_clean {
            world.clients[id].wants_clean = true;
            world.clients[id].forget_session();
            world.promises.begin_session(id);
        }
        world.network.connect(id);
        world.promises.connects(id);
        let has_will = !world.healed && world.rng.f64() < world.story.will;
        let will = has_will.then(|| {
            let will = Published::new(id, WILL_TOPIC, 1);
            world.promises.publish(will, world.history.steps())
        });
        world.story.wills[id] = will.map(|will| (will, false));
        let connect = world.clients[id].connect(will);
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
            Some(Heard::Connected(Some(present), birth, is_noted)) => {
                world.connected(client, present, birth, is_noted);
            }
            Some(Heard::Connected(None, ..) | Heard::Disconnected) => world.cut_link(link),
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
            Some(Heard::Unsubscribed(filter, existed)) => {
                world.promises.unsubscribed(client, filter, existed, world.history.steps());
            }
            Some(Heard::Completed) | None => {}
        }
        if let Some(answer) = answer {
            world.client_sends(client, answer);
        }
    }

    fn disconnected(world: &mut World, client: ClientId) {
        world.story.lost_at[client].get_or_insert(world.now);
        if let Some((will, true)) = world.story.wills[client].take() {
            world.promises.will_is_due(client, will, world.history.steps());
        }
        world.clients[client].disconnected();
    }

    fn take_packets(world: &mut World) -> Vec<(ClientId, LinkId, Packet)> {
        let network = &mut world.network;
        let client_of = |link| network.owner(link);
        let effects = world.broker.take_effects(client_of);
        world.broker.process.tell(&mut world.history);
        for (client, topic, reason) in effects.dropped {
            let name = topic.map_or("?", |topic| TOPICS[topic]);
            world.history.note(Event::Dropped(client, name, reason.name()));
            match reason {
                DropReason::StoreFull | DropReason::QueueRefuses => {
                    world.promises.refused_to(topic.expect("its publisher names it"));
                }
                DropReason::QueueMessages | DropReason::QueueBytes | DropReason::TenantQueue => {
                    world.promises.dropped(client, topic);
                }
                _ => {}
            }
        }
        for topic in effects.dropped_for_bindings {
            world.history.note(Event::DroppedForBinding(TOPICS[topic]));
            world.promises.dropped_for_binding(topic);
        }
        for message in effects.refused {
            world.promises.refused(message);
        }
        for (client, link, packet) in &effects.packets {
            let lost_at = &mut world.story.lost_at[*client];
            match packet {
                Packet::ConnAck { present: Some(_), is_noted, .. }
                    if world.network.of(*client).is_some_and(|(present, _)| present == *link) =>
                {
                    world.story.away[*client] = lost_at.map_or(0, |lost_at| world.now - lost_at);
                    lost_at.take_if(|_| *is_noted);
                }
                Packet::Disconnect => _ = lost_at.get_or_insert(world.now),
                _ => {}
            }
        }
        effects.packets
    }

    fn restart(world: &mut World) {
        let remembered = std::mem::take(&mut world.broker.remembered);
        world.broker = world.story.start_with(&world.disks, world.crashes, remembered);
    }

    fn picture(_: &World, broker: &Broker) -> Picture {
        picture::picture(&broker.process)
    }

    fn is_at_rest(world: &mut World) -> bool {
        world.clients.iter().all(|client| client.is_idle() && client.connected)
            && world.broker.process.is_idle()
    }

    fn check_end(world: &mut World) {
        world.promises.all_is_delivered(world.now);
        for client in 0..world.clients.len() {
            let found = subscriptions(world, client);
            world.promises.has_subscribed(client, &found);
        }
        for (topic, name) in TOPICS.iter().enumerate() {
            world.promises.has_retained(topic, picture::retained_of(&world.broker.process, name));
        }
        if world.story.binds {
            world.promises.has_queued(&bound::found(&world.broker.process));
        }
        world.compare();
        // Notes of received identifiers of sessions that ended while their message was being routed are removed
        // by the next start.
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

impl Messages {
    fn start_with(&self, disks: &[Disk], life: u32, remembered: Remembered) -> Broker {
        let broker = Broker::start(disks, &self.settings, self.rules, life, remembered);
        if self.binds {
            bound::declare(&broker.process);
        }
        broker
    }
}

impl World {
    /// Audits after the messages of ended sessions have gone to others: they are in the store until the others
    /// have them.
    fn settle_and_audit(&mut self) {
        self.settle();
        self.audit();
    }

    /// Closes or opens a shard. The sessions of a closed shard have no client from then on, even if the client
    /// learns of it later.
    fn close_or_open(&mut self) {
        process::close_or_open(self);
        for client in 0..self.clients.len() {
            let Some((link, _)) = self.network.of(client) else { continue };
            let session = self.broker.process.session(link);
            if session.is_some_and(|session| session.has_left()) {
                self.story.lost_at[client].get_or_insert(self.now);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            self.commit_all();
            process::keep_house(self);
        }
        self.commit_all();
    }

    fn connected(&mut self, id: ClientId, present: bool, birth: u64, is_noted: bool) {
        let client = &mut self.clients[id];
        client.connected = true;
        let clean_start = std::mem::take(&mut client.wants_clean);
        let away = self.story.away[id];
        if is_noted {
            // The will of a session that is not stored may be lost in a crash.
            let is_stored = self.clients[id].expiry != Some(0);
            if let Some((_, is_promised)) = &mut self.story.wills[id] {
                *is_promised = is_stored;
            }
        }
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
        let is_shared = self.rng.f64() < self.story.share;
        let filter = if is_shared { SHARED } else { self.rng.usize(..SHARED) };
        if filter == SHARED && self.clients[id].expiry == Some(0) {
            // Messages that this member was given would be lost in a crash.
            return;
        }
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
        let is_shared = self.rng.f64() < self.story.share;
        let topic = if is_shared { SHARED_TOPIC } else { self.rng.usize(..SHARED_TOPIC) };
        let mut published = Published::new(id, topic, qos);
        published.retain = self.rng.f64() < self.story.retain;
        published.removes = published.retain && self.rng.u8(..4) == 0;
        let expires = !published.retain && self.rng.f64() < self.story.expire;
        let expiry = expires.then(|| 1_000 * self.rng.u64(100..2_000));
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

/// Returns the filters that a client has subscribed to according to the broker.
fn subscriptions(world: &World, client: ClientId) -> BTreeSet<usize> {
    let tenant = world.broker.process.tenant();
    let client_id = client_id(client);
    let Some(session) = tenant.sessions.entry(&client_id).get().cloned() else {
        return BTreeSet::new();
    };
    let state = session.state();
    let of = |filter: &str| FILTERS.iter().position(|known| *known == filter);
    state.subscriptions.iter().map(|own| of(&own.filter).expect("there are no others")).collect()
}
