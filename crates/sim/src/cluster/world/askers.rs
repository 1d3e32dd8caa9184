//! Clients of the state store. The keys of the tenant are at one broker; requests of clients of the others pass between
//! brokers, and back.

use std::collections::VecDeque;

use barid_peers::Placement;
use fastrand::Rng;

use super::super::node::{ASKERS, index_of};
use super::World;
use crate::history::Event;
use crate::linearizability::Moment;
use crate::network::{ClientId, LinkId, client_id};
use crate::packets::state_store::{Command, FENCED, Key, Packet, Request, Value};
use crate::state_store::client::Client;
use crate::state_store::promises::Promises;
use crate::world::Checker as _;

/// Number of keys that they use. All are stored.
const KEYS: usize = 3;

/// Maximum number of requests for one key: as many as the search for an order can handle.
const REQUESTS_MAX: usize = 40;

/// The numbers of their connections begin here, and those of the clients themselves.
pub(super) const FIRST_LINK: LinkId = 500_000;
pub(super) const FIRST: ClientId = 100;

/// All clients of the state store.
#[derive(Default)]
pub(super) struct Askers {
    clients: Vec<Asker>,
    pub(super) promises: Promises,
    /// Number of requests for each key.
    requests: [usize; KEYS],
    /// Number of connections so far.
    links: LinkId,
}

/// A client of the state store. Its session is stored, and it connects to the broker that has it.
struct Asker {
    half: Client,
    home: usize,
    connection: Option<Connection>,
    /// Keys that it has not read since the world has healed.
    to_see: Vec<Key>,
}

struct Connection {
    link: LinkId,
    to_broker: VecDeque<Packet>,
    to_client: VecDeque<Packet>,
}

impl Askers {
    /// Creates so many clients.
    pub(super) fn new(rng: &mut Rng, count: usize, placement: &Placement) -> Self {
        let mut asker = |number| Asker {
            half: Client::new([-2_000, 0, 0, 20, 5_000][rng.usize(..5)]),
            home: index_of(placement.home(ASKERS, &client_id(FIRST + number))),
            connection: None,
            to_see: (0..KEYS).collect(),
        };
        Self { clients: (0..count).map(&mut asker).collect(), ..Self::default() }
    }

    /// Number of clients.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns the client that has a connection.
    pub(super) fn of(&self, link: LinkId) -> Option<usize> {
        let has_it = |asker: &Asker| asker.connection.as_ref().is_some_and(|it| it.link == link);
        self.clients.iter().position(has_it)
    }

    /// Takes a packet that a broker has sent to a client.
    pub(super) fn sent(&mut self, asker: usize, packet: Packet) {
        if let Some(connection) = &mut self.clients[asker].connection {
            connection.to_client.push_back(packet);
        }
    }

    /// Whether nothing is left to be asked or answered.
    pub(super) fn are_idle(&self) -> bool {
        let is_quiet = |it: &Connection| it.to_broker.is_empty() && it.to_client.is_empty();
        self.clients.iter().all(|asker| {
            asker.half.connected
                && asker.half.is_idle()
                && asker.to_see.is_empty()
                && asker.connection.as_ref().is_some_and(is_quiet)
        })
    }
}

impl World {
    /// A packet arrives at a broker or at a client.
    pub(super) fn deliver_asked(&mut self, asker: usize) {
        let (to_broker, home) = (self.rng.bool(), self.askers.clients[asker].home);
        let Some(connection) = &mut self.askers.clients[asker].connection else { return };
        let link = connection.link;
        if !to_broker {
            if let Some(packet) = connection.to_client.pop_front() {
                self.asker_gets(asker, link, packet);
            }
            return;
        }
        if connection.to_broker.is_empty()
            || !self.runs(home)
            || !self.with(home, |node, _| node.process.reads(link))
        {
            return;
        }
        let connection = self.askers.clients[asker].connection.as_mut();
        if let Some(packet) = connection.and_then(|it| it.to_broker.pop_front()) {
            self.history.note(Event::StoreGets(FIRST + asker, link, packet));
            self.with(home, |node, _| node.is_asked(FIRST + asker, link, packet));
        }
    }

    fn asker_gets(&mut self, asker: usize, link: LinkId, packet: Packet) {
        self.history.note(Event::ClientHears(FIRST + asker, link, packet));
        let now = self.moment();
        let half = &mut self.askers.clients[asker].half;
        match packet {
            Packet::ConnAck => {
                half.connected = true;
                for packet in half.resend() {
                    self.asker_sends(asker, packet);
                }
            }
            Packet::PubAck(id) => half.acknowledged(id),
            Packet::Response(number, told, id) => {
                if half.answered(number, told).is_some() {
                    self.promises.deliveries += 1;
                    self.askers.promises.told(number, told, now);
                    self.perhaps_crash();
                }
                self.asker_sends(asker, Packet::Got(id));
            }
            Packet::Notification(key, value, version, id) => {
                self.askers.promises.notified(link, (key, value, version), now);
                self.perhaps_crash_store();
                self.asker_sends(asker, Packet::Got(id));
            }
            Packet::Watching(id) => self.asker_sends(asker, Packet::Got(id)),
            Packet::Disconnect => self.disconnect_asker(asker),
            _ => unreachable!("a broker sends no such packet"),
        }
    }

    fn asker_sends(&mut self, asker: usize, packet: Packet) {
        let Some(connection) = &mut self.askers.clients[asker].connection else { return };
        self.history.note(Event::ClientAsks(FIRST + asker, connection.link, packet));
        connection.to_broker.push_back(packet);
    }

    /// A client connects, or sends a request.
    pub(super) fn act_as_asker(&mut self, asker: usize) {
        let one = &self.askers.clients[asker];
        if one.connection.is_none() {
            return self.connect_asker(asker);
        }
        if !one.half.connected || !one.half.may_ask() {
            return;
        }
        if self.healed {
            if let Some(key) = self.askers.clients[asker].to_see.pop() {
                self.ask(asker, key, Command::Get);
            }
        } else if self.rng.u8(..4) == 0 {
            let key = self.rng.usize(..KEYS);
            self.asker_sends(asker, Packet::Watch(key));
        } else {
            self.request(asker);
        }
    }

    fn connect_asker(&mut self, asker: usize) {
        let home = self.askers.clients[asker].home;
        if !self.runs(home) || !self.node(home).takes_clients() {
            return;
        }
        self.askers.links += 1;
        let link = FIRST_LINK + self.askers.links;
        let (to_broker, to_client) = (VecDeque::new(), VecDeque::new());
        self.askers.clients[asker].connection = Some(Connection { link, to_broker, to_client });
        self.asker_sends(asker, Packet::Connect { clean: false });
    }

    /// Sends a random request.
    fn request(&mut self, asker: usize) {
        let key = self.rng.usize(..KEYS);
        if self.askers.requests[key] == REQUESTS_MAX {
            return;
        }
        let own = Value::try_from(asker).expect("there are few clients");
        let number = self.askers.promises.next();
        let command = Command::random(&mut self.rng, key, (own, number), |_| None);
        self.ask(asker, key, command);
    }

    fn ask(&mut self, asker: usize, key: Key, command: Command) {
        self.askers.requests[key] += 1;
        let half = &self.askers.clients[asker].half;
        let fenced = key == FENCED && self.rng.bool();
        let request = Request {
            number: self.askers.promises.next(),
            id: half.free_id(),
            dup: false,
            key,
            command,
            timestamp: self.now.saturating_add_signed(half.skew),
            token: half.lock.filter(|_| fenced),
        };
        let now = self.moment();
        self.askers.promises.asked(request, now);
        self.askers.clients[asker].half.ask(request);
        self.asker_sends(asker, Packet::Request(request));
    }

    /// The connection of a random client breaks.
    pub(super) fn lose_asker(&mut self, asker: usize) {
        if let Some(link) = self.askers.clients[asker].connection.as_ref().map(|it| it.link) {
            self.history.note(Event::Cut(FIRST + asker, link));
            self.disconnect_asker(asker);
        }
    }

    /// The process of a broker has ended, and with it the connections of its clients.
    pub(super) fn lose_askers_of(&mut self, node: usize) {
        for asker in 0..self.askers.len() {
            if self.askers.clients[asker].home == node {
                self.disconnect_asker(asker);
            }
        }
    }

    fn disconnect_asker(&mut self, asker: usize) {
        let one = &mut self.askers.clients[asker];
        let Some(connection) = one.connection.take() else { return };
        one.half.disconnected();
        self.unnoticed.push((one.home, connection.link));
    }

    /// Checks what the clients were told, after the world has come to rest.
    pub(super) fn check_askers(&mut self) {
        self.askers.promises.check();
        if let Some(violation) = self.askers.promises.violation().take() {
            self.promises.violate(violation);
        }
    }

    fn moment(&self) -> Moment {
        Moment { step: self.history.steps(), millis: self.now }
    }
}
