//! The clients, and what passes between them and the brokers.

use std::collections::VecDeque;

use barid_peers::Placement;
use fastrand::Rng;

use super::super::NODES;
use super::super::node::index_of;
use super::askers::{FIRST, FIRST_LINK};
use super::{Connection, Guest, Visit, World};
use crate::history::Event;
use crate::messages::client::{Client, Heard, Method};
use crate::messages::codec;
use crate::network::{ClientId, LinkId, client_id};
use crate::packets::messages::{Packet, Verdict};
use crate::packets::state_store::Packet as Told;
use crate::process::TENANT;
use crate::rules::Rule;
use crate::state_store::codec as asked;
use crate::world::Checker as _;

/// The topics that clients publish to, as indices.
const TOPICS: usize = 4;

/// The filters that clients subscribe to, as indices.
const FILTERS: usize = 6;

/// Time after which subscriptions do not wait any more for a broker that has stopped, in milliseconds.
const LEASE: u64 = 2_000;

/// What a broker has sent to a client.
#[derive(Clone, Copy)]
enum Sent {
    /// To a client that publishes and subscribes.
    One(Packet),
    /// To one of the state store.
    Told(Told),
    /// It has closed the connection.
    End,
}

impl World {
    /// A packet arrives at a broker or at a client.
    pub(super) fn deliver(&mut self) {
        let client = match self.any_client() {
            Ok(guest) => guest,
            Err(asker) => return self.deliver_asked(asker),
        };
        if self.rng.bool() {
            return self.deliver_to_broker(client);
        }
        let connection = self.guests[client].connection.as_mut();
        if let Some(packet) = connection.and_then(|connection| connection.to_client.pop_front()) {
            self.client_gets(client, packet);
        }
    }

    /// Returns a random client, or a client of the state store (`Err`).
    pub(super) fn any_client(&mut self) -> Result<ClientId, usize> {
        let guests = self.guests.len();
        let one = self.rng.usize(..guests + self.askers.len());
        one.checked_sub(guests).map_or(Ok(one), Err)
    }

    /// A broker that has stopped before it read what a client has sent goes on with that.
    pub(super) fn read_on(&mut self) {
        let Some((client, _)) = self.lured else { return };
        match &self.guests[client].connection {
            Some(connection) if connection.is_read && !self.runs(connection.node) => {}
            Some(connection) if connection.is_read && !connection.to_broker.is_empty() => {
                self.deliver_to_broker(client);
            }
            _ => self.lured = None,
        }
    }

    fn deliver_to_broker(&mut self, client: ClientId) {
        let Some(connection) = &self.guests[client].connection else { return };
        let (link, node, is_read) = (connection.link, connection.node, connection.is_read);
        if connection.to_broker.is_empty()
            || !self.runs(node)
            || !(is_read || self.with(node, |node, _| node.process.reads(link)))
        {
            return;
        }
        // The process may be stopped between its look at the clock and its read.
        let stops = !is_read && !self.healed && self.rng.f64() < self.stop_when_read;
        let Some(connection) = &mut self.guests[client].connection else { return };
        connection.is_read = stops;
        if stops {
            return self.stop_and_lure(node, client);
        }
        self.lured.take_if(|(lured, _)| is_read && *lured == client);
        // Then it reads everything that has arrived meanwhile.
        let count = if is_read { connection.to_broker.len() } else { 1 };
        for packet in connection.to_broker.drain(..count).collect::<Vec<_>>() {
            self.history.note(Event::BrokerGets(client, link, packet));
            if matches!(packet, Packet::Connect { .. }) {
                self.arrives(client, node);
            }
            self.with(node, |node, _| node.gets(client, link, packet));
        }
    }

    /// A broker stops between its look at the clock and its read of what a client has sent. Meanwhile another client subscribes
    /// elsewhere, and then that one publishes. Not much comes after it, since a subscription ends with its connection.
    fn stop_and_lure(&mut self, node: usize, client: ClientId) {
        self.stop_one(node);
        if self.askers.len() > 0 || self.rng.bool() {
            return;
        }
        let other = self.rng.usize(..self.guests.len());
        if other != client && self.guests[other].home.is_none() {
            self.disconnect(other);
        }
        let begins = self.now + LEASE;
        let until = begins + self.rng.u64(..LEASE);
        self.places[node].away_until = until;
        self.lured = Some((client, begins));
        let steps = u32::try_from(2 * (until - self.now) / self.pace).expect("it is soon");
        self.steps = self.steps.min(self.history.steps() + steps + 200);
    }

    /// Takes the packets that a broker has sent to its clients.
    pub(super) fn collect(&mut self, node: usize) {
        let (guests, askers) = (&self.guests, &self.askers);
        let of = |link: LinkId| {
            let has_it =
                |guest: &Guest| guest.connection.as_ref().is_some_and(|it| it.link == link);
            let asker = askers.of(link).map(|asker| FIRST + asker);
            asker.or_else(|| guests.iter().position(has_it))
        };
        let decode = |link, bytes: &[u8]| match link >= FIRST_LINK {
            true => asked::decode(bytes).map(|(told, len)| (told.map(Sent::Told), len)),
            false => codec::decode(bytes, (0, true)).map(|(one, len)| (one.map(Sent::One), len)),
        };
        let of_node = self.places[node].node.as_mut().expect("its process runs");
        for (client, link, sent) in of_node.process.take_packets(of, Sent::End, decode) {
            if client >= FIRST {
                let packet = if let Sent::Told(told) = sent { told } else { Told::Disconnect };
                self.history.note(Event::StoreTells(client, link, packet));
                self.askers.sent(client - FIRST, packet);
                continue;
            }
            let packet = if let Sent::One(packet) = sent { packet } else { Packet::Disconnect };
            self.history.note(Event::BrokerSends(client, link, packet));
            if let Some(connection) = &mut self.guests[client].connection {
                connection.to_client.push_back(packet);
            }
        }
    }

    fn client_gets(&mut self, client: ClientId, packet: Packet) {
        let (heard, answer) = self.guests[client].half.receive(packet);
        match heard {
            Some(Heard::Connected(Some(is_present), ..)) => self.connected(client, is_present),
            Some(Heard::Connected(None, ..) | Heard::Disconnected) => self.disconnect(client),
            Some(Heard::Message(number, qos, _)) => {
                self.history.note(Event::Delivered(client, number, qos));
                if let Some(session) = self.guests[client].session {
                    self.promises.received(session, number, qos);
                }
            }
            Some(Heard::Acknowledged(number, Verdict::Done)) => {
                self.promises.acknowledged(number);
                self.perhaps_crash();
            }
            Some(Heard::Subscribed(_, Verdict::Done)) => {
                let session = self.guests[client].session;
                session.into_iter().for_each(|session| self.promises.subscribed(session));
            }
            _ => {}
        }
        if let Some(answer) = answer {
            self.client_sends(client, answer);
        }
    }

    fn connected(&mut self, client: ClientId, is_present: bool) {
        let guest = &mut self.guests[client];
        let known = guest.connection.as_ref().map(|it| (it.node, it.visit));
        let Some((node, visit)) = known else { return };
        guest.half.connected = true;
        if guest.half.wants_clean && guest.home.is_some() {
            return self.has_visited(client, node);
        }
        (guest.visit, guest.is_unsure) = (Visit::None, false);
        if is_present {
            if visit == Visit::Answered {
                self.promises.violate(format!("the session of c{client} is back"));
            }
            let guest = &mut self.guests[client];
            if let (Some(since), Some(session)) = (guest.in_doubt_since.take(), guest.session) {
                self.promises.has_survived(session, since);
            }
            for packet in self.guests[client].half.resend() {
                if let Packet::Publish { message, .. } = packet {
                    self.promises.repeats(message, node);
                }
                self.client_sends(client, packet);
            }
            return;
        }
        guest.half.forget_session();
        if let Some(session) = guest.session {
            let may_be_gone = guest.home.is_none() || visit != Visit::None;
            if !may_be_gone && self.promises.is_subscribed(session) {
                self.promises.violate(format!("the stored session of c{client} is gone"));
            }
        }
        self.begins(client, node);
    }

    /// A session begins, in place of an earlier one.
    fn begins(&mut self, client: ClientId, node: usize) {
        let guest = &mut self.guests[client];
        guest.in_doubt_since = None;
        guest.session.take().into_iter().for_each(|session| self.promises.ends(session));
        if guest.home.is_none() {
            guest.filter = self.rng.usize(..FILTERS);
        }
        guest.session = Some(self.promises.begins(
            (client, guest.home.is_some()),
            node,
            (guest.filter, guest.level),
        ));
        self.subscribe(client);
    }

    fn subscribe(&mut self, client: ClientId) {
        let guest = &mut self.guests[client];
        if guest.half.request(guest.filter) {
            let packet = Packet::Subscribe(60_000, guest.filter, guest.level);
            self.client_sends(client, packet);
        }
    }

    fn client_sends(&mut self, client: ClientId, packet: Packet) {
        let Some(connection) = &mut self.guests[client].connection else { return };
        self.history.note(Event::ClientSends(client, connection.link, packet));
        connection.to_broker.push_back(packet);
    }

    /// A random client connects, publishes, or subscribes.
    pub(super) fn act(&mut self) {
        let lured = self.lured.filter(|(_, begins)| self.now >= *begins && self.rng.bool());
        let client = match lured.map_or_else(|| self.any_client(), |(client, _)| Ok(client)) {
            Ok(guest) => guest,
            Err(asker) => return self.act_as_asker(asker),
        };
        if self.lured.is_some_and(|(lured, begins)| lured == client && self.now < begins) {
            return;
        }
        let guest = &self.guests[client];
        let Some(connection) = &guest.connection else { return self.connect(client) };
        let node = connection.node;
        let Some(session) = guest.session.filter(|_| guest.half.connected) else { return };
        if !self.promises.is_subscribed(session) {
            return self.subscribe(client);
        }
        if self.healed || !guest.half.may_publish() {
            return;
        }
        let (topic, qos) = (self.rng.usize(..TOPICS), self.rng.u8(..=2));
        let id = if qos > 0 { guest.half.free_id() } else { 0 };
        let (message, len) = (self.promises.next(), self.rng.usize(1..60));
        let publish = Packet::Publish {
            message,
            topic,
            qos,
            id,
            dup: false,
            retain: false,
            len,
            expiry: None,
        };
        self.promises.publishes(session, topic, qos, node);
        self.guests[client].half.publish(publish);
        self.client_sends(client, publish);
    }

    fn connect(&mut self, client: ClientId) {
        let home = self.guests[client].home.filter(|_| self.rules.hold(Rule::OpenAtHome));
        let visits = home.is_some()
            && (self.guests[client].is_unsure || (!self.healed && self.rng.f64() < self.visit));
        let home = home.filter(|_| !visits);
        let node = home.unwrap_or_else(|| self.rng.usize(..NODES));
        if !self.runs(node) || !self.node(node).takes_clients() {
            return;
        }
        // No two connections begin at the same time.
        self.now += 1;
        self.next_link += 1;
        let guest = &mut self.guests[client];
        guest.half.wants_clean = guest.home.is_none() || visits;
        guest.half.expiry = if guest.half.wants_clean { Some(0) } else { None };
        if visits {
            let since = self.promises.moment();
            guest.visit = Visit::Asked { since, is_reached: false };
            guest.in_doubt_since.get_or_insert(since);
        }
        guest.connection = Some(Connection {
            link: self.next_link,
            node,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            is_read: false,
            visit: Visit::None,
        });
        let connect = guest.half.connect(None);
        self.client_sends(client, connect);
    }

    /// The connection of a client is over.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        let guest = &mut self.guests[client];
        let Some(connection) = guest.connection.take() else { return };
        guest.half.disconnected();
        if guest.home.is_none() {
            guest.half.forget_session();
            guest.session.take().into_iter().for_each(|session| self.promises.ends(session));
        }
        self.unnoticed.push((connection.node, connection.link));
    }

    /// A broker notices that a connection has broken.
    pub(super) fn notice(&mut self) {
        if self.unnoticed.is_empty() {
            return;
        }
        let (node, link) = self.unnoticed.swap_remove(self.rng.usize(..self.unnoticed.len()));
        match self.runs(node) {
            true => self.with(node, |node, _| node.process.lose(link)),
            false => self.unnoticed.push((node, link)),
        }
    }
}

/// Creates a client with a random role.
pub(super) fn guest(rng: &mut Rng, client: ClientId, placement: &Placement) -> Guest {
    let is_stored = rng.bool();
    let expiry = if is_stored { None } else { Some(0) };
    let method = if rng.bool() { Method::A } else { Method::B };
    Guest {
        half: Client::new(expiry, rng.u16(1..=5), method),
        home: is_stored.then(|| index_of(placement.home(TENANT, &client_id(client)))),
        filter: rng.usize(..FILTERS),
        level: rng.u8(..=5) / 2,
        connection: None,
        session: None,
        visit: Visit::None,
        in_doubt_since: None,
        is_unsure: false,
    }
}
