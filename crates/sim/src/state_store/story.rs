//! The choice of the next event, for the state store.

use barid_store::memory::Disk;
use fastrand::Rng;

use super::broker::{Broker, Picture, orphans};
use super::client::Client;
use super::promises::Promises;
use crate::history::Event;
use crate::linearizability::Moment;
use crate::network::{ClientId, LinkId};
use crate::packets::state_store::{Command, FENCED, KEYS, Key, Packet, Request, VOLATILE, Value};
use crate::process;
use crate::rules::Rules;
use crate::world::{self, Beginning, Checker as _, Doing, Note, Story};

/// Maximum number of requests for one key in a history: as many as the search for an order can handle.
const REQUESTS_MAX: usize = 60;

type World = world::World<StateStore>;

/// The story in which clients send requests for keys.
pub struct StateStore {
    rules: Rules,
    /// Maximum number of batches in flight to the log of a shard.
    window: usize,
    /// Number of requests for each key.
    requests: [usize; KEYS.len()],
    /// Keys that each client has not read since the world has healed.
    to_see: Vec<Vec<Key>>,
    // Probabilities of actions in this history.
    clean: f64,
    watch: f64,
    ttl: f64,
    /// Probability that a client that had the lock sends its version as fencing token.
    token: f64,
}

impl Story for StateStore {
    type Packet = Packet;
    type Broker = Broker;
    type Client = Client;
    type Promises = Promises;
    type Picture = Picture;

    const DOINGS: &'static [Doing<Self>] = &[
        (World::deliver, [200, 300, 300, 500], 400),
        (World::act, [40, 80, 120, 160], 50),
        (World::commit, [4, 20, 80, 150], 100),
        (World::cut, [0, 4, 12, 30], 0),
        (World::notice, [2, 10, 10, 30], 10),
        (|world| world.wait(1..200), [2, 10, 30, 60], 1),
        (process::obey, [20, 60, 100, 200], 100),
        (process::make_room, [5, 10, 40, 80], 100),
        (process::keep_house, [2, 10, 20, 40], 20),
        (World::crash, [0, 3, 6, 12], 0),
        (|world| _ = process::close_or_open(world), [0, 0, 3, 20], 20),
        (World::fail, [0, 0, 0, 6], 0),
        (World::audit, [0, 1, 1, 2], 0),
    ];
    const STEPS_MAX: u32 = 3_000;
    const SENDS: Note<Packet> = Event::ClientAsks;
    const ARRIVES: Note<Packet> = Event::StoreGets;
    const TELLS: Note<Packet> = Event::StoreTells;

    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self> {
        let clean = if rng.bool() { 0.0 } else { 0.1 };
        let watch = [0.0, 0.1, 0.3][rng.usize(..3)];
        let ttl = [0.0, 0.2, 0.6][rng.usize(..3)];
        let token = [0.0, 0.5, 0.9][rng.usize(..3)];
        let disks = rng.usize(1..=4);
        let window = rng.usize(1..=3);
        let skew = |rng: &mut Rng| [-5_000, 0, 0, 20, 5_000, 59_000][rng.usize(..6)];
        let clients: Vec<_> = (0..rng.usize(2..=4)).map(|_| Client::new(skew(rng))).collect();
        let requests = [0; KEYS.len()];
        let to_see = clients.iter().map(|_| (0..KEYS.len()).collect()).collect();
        let story = Self { rules, window, requests, to_see, clean, watch, ttl, token };
        Beginning { story, disks, clients, promises: Promises::default() }
    }

    fn start(&self, disks: &[Disk], _: u32) -> Broker {
        Broker::start(disks, self.window, self.rules)
    }

    fn connect(world: &mut World, id: ClientId) {
        if !world.healed && world.rng.f64() < world.story.clean {
            world.clients[id].wants_clean = true;
            world.clients[id].forget_session();
        }
        world.network.connect(id);
        world.client_sends(id, Packet::Connect { clean: world.clients[id].wants_clean });
    }

    fn act(world: &mut World, id: ClientId) {
        let client = &world.clients[id];
        if !client.connected || !client.may_ask() {
            return;
        }
        if world.healed {
            if let Some(key) = world.story.to_see[id].pop() {
                world.ask(id, key, Command::Get);
            }
        } else if world.rng.f64() < world.story.watch {
            let key = world.rng.usize(..KEYS.len());
            world.client_sends(id, Packet::Watch(key));
        } else {
            world.request(id);
        }
    }

    fn client_gets(world: &mut World, id: ClientId, link: LinkId, packet: Packet) {
        world.history.note(Event::ClientHears(id, link, packet));
        let now = world.moment();
        let client = &mut world.clients[id];
        match packet {
            Packet::ConnAck => {
                client.connected = true;
                client.wants_clean = false;
                for packet in client.resend() {
                    world.client_sends(id, packet);
                }
            }
            Packet::PubAck(packet_id) => client.acknowledged(packet_id),
            Packet::Response(number, told, packet_id) => {
                if client.answered(number, told).is_some() {
                    world.deliveries += 1;
                    world.promises.told(number, told, now);
                }
                world.client_sends(id, Packet::Got(packet_id));
            }
            Packet::Notification(key, value, version, packet_id) => {
                world.promises.notified(link, (key, value, version), now);
                world.client_sends(id, Packet::Got(packet_id));
            }
            Packet::Watching(packet_id) => world.client_sends(id, Packet::Got(packet_id)),
            Packet::Disconnect => world.cut_link(link),
            _ => unreachable!("a broker sends no such packet"),
        }
    }

    fn disconnected(world: &mut World, client: ClientId) {
        world.clients[client].disconnected();
    }

    fn take_packets(world: &mut World) -> Vec<(ClientId, LinkId, Packet)> {
        let network = &world.network;
        let packets = world.broker.take_packets(|link| network.owner(link));
        world.broker.process.tell(&mut world.history);
        packets
    }

    fn picture(world: &World, broker: &Broker) -> Picture {
        broker.picture(&world.promises.all())
    }

    fn is_at_rest(world: &mut World) -> bool {
        world.broker.process.is_idle()
            && world.clients.iter().all(|client| client.is_idle() && client.connected)
            && world.story.to_see.iter().all(Vec::is_empty)
    }

    fn check_end(world: &mut World) {
        world.promises.check();
        world.compare();
        let orphans = orphans(&world.disks);
        if orphans > 0 {
            world.promises.violate(format!("{orphans} answers are left of sessions that are gone"));
        }
    }
}

impl World {
    fn moment(&self) -> Moment {
        Moment { step: self.history.steps(), millis: self.now }
    }

    /// Lets a client send a random request.
    fn request(&mut self, id: ClientId) {
        let key = self.rng.usize(..KEYS.len());
        if self.story.requests[key] == REQUESTS_MAX {
            return;
        }
        let own = Value::try_from(id).expect("there are few clients");
        let (share, number) = (self.story.ttl, self.promises.next());
        let ttl = |rng: &mut Rng| (rng.f64() < share).then(|| rng.u64(1..600));
        let command = Command::random(&mut self.rng, key, (own, number), ttl);
        self.ask(id, key, command);
    }

    fn ask(&mut self, id: ClientId, key: Key, command: Command) {
        self.story.requests[key] += 1;
        let client = &self.clients[id];
        let fenced = matches!(key, FENCED | VOLATILE) && self.rng.f64() < self.story.token;
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
}
