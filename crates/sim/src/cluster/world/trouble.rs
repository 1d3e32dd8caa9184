//! Faults: connections that break, networks that are cut, and brokers that stop or crash.

use barid_store::memory::Disk;

use super::super::NODES;
use super::super::node::{ASKERS, index_of};
use super::World;
use crate::history::Event;

impl World {
    pub(super) fn lose_client(&mut self) {
        let client = match self.any_client() {
            Ok(guest) => guest,
            Err(asker) => return self.lose_asker(asker),
        };
        if let Some(link) = self.guests[client].connection.as_ref().map(|it| it.link) {
            self.history.note(Event::Cut(client, link));
            self.disconnect(client);
        }
    }

    pub(super) fn lose_link(&mut self) {
        let (is_broken, count) = (self.rng.bool(), self.links.ends().count());
        if count == 0 {
            return;
        }
        let chosen = self.rng.usize(..count);
        let ends = self.links.ends().nth(chosen).expect("there are so many");
        // The bytes on their way arrive, or are lost with the link.
        (ends.is_closed, ends.is_over) = (true, is_broken);
        let (from, to) = (ends.from, ends.to);
        self.history.note(Event::Seen(from, to, "loses a link"));
    }

    /// Returns a random time, in milliseconds: too short to be noticed, or long enough that a broker is held to be down.
    fn a_while(&mut self) -> u64 {
        let longest = [200, 1_500, 3_000, 12_000][self.rng.usize(..4)];
        self.rng.u64(..longest)
    }

    pub(super) fn cut(&mut self) {
        let (from, to) = (self.rng.usize(..NODES), self.rng.usize(..NODES));
        let until = self.now + self.a_while();
        self.cut_until[from][to] = until;
        if self.rng.bool() {
            self.cut_until[to][from] = until;
        }
        self.history.note(Event::Seen(from, to, "is cut off"));
    }

    pub(super) fn part(&mut self) {
        let (one, until) = (self.rng.usize(..NODES), self.now + self.a_while());
        for other in (0..NODES).filter(|other| *other != one) {
            (self.cut_until[one][other], self.cut_until[other][one]) = (until, until);
        }
        self.history.note(Event::Broker(one, "is cut off"));
    }

    pub(super) fn stop(&mut self) {
        let node = self.rng.usize(..NODES);
        if self.runs(node) {
            self.stop_one(node);
        }
    }

    pub(super) fn stop_one(&mut self, node: usize) {
        self.places[node].away_until = self.now + self.a_while();
        self.history.note(Event::Broker(node, "stops"));
    }

    /// A client was told something.
    pub(super) fn perhaps_crash(&mut self) {
        if !self.healed && self.rng.f64() < self.crash_when_told {
            self.crash();
        }
    }

    /// A client of the state store was told something, by the broker that has it.
    pub(super) fn perhaps_crash_store(&mut self) {
        if !self.healed && self.rng.f64() < 3.0 * self.crash_when_told {
            let home = index_of(self.placement.home_of_tenant(ASKERS));
            self.crash_one(home);
        }
    }

    pub(super) fn crash(&mut self) {
        let node = self.rng.usize(..NODES);
        self.crash_one(node);
    }

    fn crash_one(&mut self, node: usize) {
        if self.places[node].node.take().is_none() {
            return;
        }
        self.crashes += 1;
        self.history.note(Event::Broker(node, "CRASHES"));
        self.promises.is_upset(node);
        let away_until = self.now + self.a_while();
        let place = &mut self.places[node];
        place.disks.iter().for_each(Disk::crash);
        place.away_until = away_until;
        for other in (0..NODES).filter(|other| *other != node) {
            self.knows(node, other, false);
        }
        let all_is_lost = self.rng.bool();
        for ends in self.links.ends() {
            ends.is_closed |= ends.from == node;
            ends.is_over |= ends.to == node || (ends.from == node && all_is_lost);
        }
        for client in 0..self.guests.len() {
            if self.guests[client].connection.as_ref().is_some_and(|it| it.node == node) {
                self.disconnect(client);
            }
        }
        self.lose_askers_of(node);
        self.unnoticed.retain(|(at, _)| *at != node);
    }
}
