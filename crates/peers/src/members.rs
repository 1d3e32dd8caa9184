//! The brokers of a cluster, and which of them can be reached.
//!
//! Each broker sends each other one a heartbeat several times a second, with what it knows of all the others. From these
//! every broker comes to its own conclusions; there is no vote and no master.
//!
//! - A broker whose heartbeats have not arrived for [`Timing::silence`] is *unreachable* to the one that misses them.
//! - It is *down* when more than half of the brokers miss them, or when its process has certainly ended. Of two brokers,
//!   none is ever down by silence: each would hold the other for the dead one.
//! - Down is for good. Messages that waited for the broker are given up, so it must not go on as if nothing had happened.
//!   When it hears that it is held down, it ends what others rely on, and joins again with a new *incarnation*.

use std::collections::BTreeMap;
use std::time::Duration;

use barid_core::time::{MonoTime, WallTime};

use crate::error::Refusal;
use crate::frame::{Heartbeat, Seen, Verdict};
use crate::identity::Identity;

/// How long a broker that is down or has left is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The times after which silence means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a broker is unreachable.
    pub silence: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { heartbeat: Duration::from_millis(250), silence: Duration::from_secs(1) }
    }
}

/// The state of another broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has said hello, and not yet sent a heartbeat.
    Joining,
    /// Its heartbeats arrive.
    Up,
    /// Its heartbeats do not arrive here.
    Unreachable,
    /// It is out of the cluster. Its next incarnation may join.
    Down,
    /// It has left by itself.
    Left,
}

/// A change of the cluster. Contains the name of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A broker, or a new incarnation of it, has said hello.
    Joining(String),
    /// A broker can be reached, for the first time or again.
    Up(String),
    /// A broker cannot be reached any more.
    Unreachable(String),
    /// A broker is out of the cluster.
    Down(String),
    /// A broker has left.
    Left(String),
    /// Another broker, of this name, holds this broker to be down.
    Condemned(String),
}

/// Another broker.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name and address, and the incarnation that is known.
    pub identity: Identity,
    /// Its state.
    pub state: State,
    /// When it came to this state.
    pub since: MonoTime,
    /// Milliseconds that its wall clock is ahead of that of this broker, as of its last heartbeat. Contains the time
    /// that the heartbeat was under way.
    pub ahead: i64,
    /// The hash of its settings.
    pub settings: u64,
    /// Whether it has said that it hears this broker.
    pub hears_us: bool,
    /// When its last heartbeat arrived, and its number.
    heard: (MonoTime, u64),
    /// Whether its host refuses connections.
    is_refused: bool,
    /// What it thinks of the others, by name.
    seen: BTreeMap<String, (u64, Verdict)>,
}

/// All brokers of a cluster, as one of them sees them.
#[derive(Debug)]
pub struct Members {
    me: Identity,
    timing: Timing,
    settings: u64,
    others: BTreeMap<String, Member>,
    /// Maximum number of other brokers.
    most: usize,
    /// Addresses of brokers that others have named and that have not said hello here.
    named: BTreeMap<String, String>,
    /// Number of heartbeats sent.
    sent: u64,
}

impl Members {
    /// Begins alone. `most` is the maximum number of other brokers; `settings` a hash of the settings that all brokers
    /// should have in common.
    pub fn new(me: Identity, timing: Timing, most: usize, settings: u64) -> Self {
        let (others, named) = (BTreeMap::new(), BTreeMap::new());
        Self { me, timing, settings, others, most, named, sent: 0 }
    }

    /// This broker.
    pub fn me(&self) -> &Identity {
        &self.me
    }

    /// The hash of the settings of this broker.
    pub fn settings(&self) -> u64 {
        self.settings
    }

    /// The other brokers, by name.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.others.values()
    }

    /// Another broker.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.others.get(name)
    }

    /// Addresses of brokers that others have named, and to which there is no link yet.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.named.values().map(String::as_str)
    }

    /// Whether a broker that has proved that it belongs to the cluster may have links.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn admits(&self, peer: &Identity) -> Result<(), Refusal> {
        let Some(known) = self.others.get(&peer.name) else {
            let is_full = self.counted().count() >= self.most;
            return if is_full { Err(Refusal::Full((self.most + 1).to_string())) } else { Ok(()) };
        };
        let is_over = matches!(known.state, State::Down | State::Left);
        if peer.incarnation < known.identity.incarnation
            || (peer.incarnation == known.identity.incarnation && is_over)
        {
            return Err(Refusal::Down);
        }
        // A broker that was started again takes the place of its former life. Another one with the same name lives at
        // another address.
        let is_other = peer.address != known.identity.address;
        if peer.incarnation != known.identity.incarnation && is_other && known.state == State::Up {
            return Err(Refusal::NameTaken);
        }
        Ok(())
    }

    /// A broker that is [admitted](Self::admits) has said hello. If it is a new incarnation, the former one is down.
    pub fn on_hello(&mut self, now: MonoTime, peer: &Identity, events: &mut Vec<Event>) {
        self.named.remove(&peer.name);
        if let Some(known) = self.others.get_mut(&peer.name) {
            if known.identity.incarnation == peer.incarnation {
                return;
            }
            if !matches!(known.state, State::Down | State::Left) {
                events.push(Event::Down(peer.name.clone()));
            }
        }
        let member = Member {
            identity: peer.clone(),
            state: State::Joining,
            since: now,
            ahead: 0,
            settings: 0,
            hears_us: false,
            heard: (now, 0),
            is_refused: false,
            seen: BTreeMap::new(),
        };
        self.others.insert(peer.name.clone(), member);
        events.push(Event::Joining(peer.name.clone()));
    }

    /// A heartbeat has arrived from an incarnation of a broker.
    pub fn on_heartbeat(
        &mut self,
        (now, wall): (MonoTime, WallTime),
        (name, incarnation): (&str, u64),
        heartbeat: Heartbeat,
        events: &mut Vec<Event>,
    ) {
        let Some(member) = self.others.get_mut(name) else { return };
        if member.identity.incarnation != incarnation
            || matches!(member.state, State::Down | State::Left)
        {
            return;
        }
        member.ahead = heartbeat.wall.cast_signed().wrapping_sub(wall.as_millis().cast_signed());
        member.settings = heartbeat.settings;
        member.heard = (now, heartbeat.number);
        member.is_refused = false;
        member.seen.clear();
        member.hears_us = false;
        for seen in heartbeat.seen {
            if seen.name == self.me.name {
                if seen.incarnation == self.me.incarnation {
                    member.hears_us = seen.verdict == Verdict::Up;
                    if seen.verdict == Verdict::Down {
                        events.push(Event::Condemned(name.to_owned()));
                    }
                }
                continue;
            }
            member.seen.insert(seen.name.clone(), (seen.incarnation, seen.verdict));
            if seen.verdict == Verdict::Up && self.named.len() < self.most && seen.name != name {
                self.named.insert(seen.name, seen.address);
            }
        }
        if matches!(member.state, State::Joining | State::Unreachable) {
            (member.state, member.since) = (State::Up, now);
            events.push(Event::Up(name.to_owned()));
        }
        let others = &self.others;
        self.named.retain(|name, _| !others.contains_key(name));
    }

    /// The host of a broker refuses connections at its address.
    pub fn on_refused(&mut self, now: MonoTime, address: &str, events: &mut Vec<Event>) {
        for member in self.others.values_mut() {
            if member.identity.address == address && member.state != State::Joining {
                member.is_refused = true;
            }
        }
        self.conclude(now, events);
    }

    /// A broker says that it leaves.
    pub fn on_leaving(
        &mut self,
        now: MonoTime,
        (name, incarnation): (&str, u64),
        events: &mut Vec<Event>,
    ) {
        if let Some(member) = self.others.get_mut(name)
            && member.identity.incarnation == incarnation
            && !matches!(member.state, State::Down | State::Left)
        {
            (member.state, member.since) = (State::Left, now);
            events.push(Event::Left(name.to_owned()));
        }
    }

    /// Time has passed. To be called as often as heartbeats are sent.
    pub fn on_tick(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        for (name, member) in &mut self.others {
            let is_silent = now.since(member.heard.0) >= self.timing.silence;
            if is_silent && matches!(member.state, State::Up | State::Joining) {
                (member.state, member.since) = (State::Unreachable, now);
                events.push(Event::Unreachable(name.clone()));
            }
        }
        self.conclude(now, events);
        self.others.retain(|_, member| {
            let is_over = matches!(member.state, State::Down | State::Left);
            !(is_over && now.since(member.since) >= REMEMBERED)
        });
    }

    /// This broker begins a new life.
    pub fn begin_anew(&mut self, incarnation: u64) {
        self.me.incarnation = incarnation;
        self.sent = 0;
        for member in self.others.values_mut() {
            member.hears_us = false;
        }
    }

    /// Returns the next heartbeat.
    pub fn heartbeat(&mut self, wall: WallTime) -> Heartbeat {
        self.sent += 1;
        let seen = |(name, member): (&String, &Member)| Seen {
            name: name.clone(),
            address: member.identity.address.clone(),
            incarnation: member.identity.incarnation,
            verdict: member.verdict(),
            heard: member.heard.1,
        };
        let seen = self.others.iter().map(seen).collect();
        Heartbeat { number: self.sent, wall: wall.as_millis(), settings: self.settings, seen }
    }

    /// The other brokers that are neither down nor gone by themselves.
    fn counted(&self) -> impl Iterator<Item = (&String, &Member)> {
        let is_counted = |member: &Member| !matches!(member.state, State::Down | State::Left);
        self.others.iter().filter(move |(_, member)| is_counted(member))
    }

    /// Finds those that are down.
    fn conclude(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        let brokers = self.counted().count() + 1;
        let mut down = Vec::new();
        for (name, member) in
            self.counted().filter(|(_, member)| member.state == State::Unreachable)
        {
            let (mut missing, mut gone) = (1, usize::from(member.is_refused));
            for (_, witness) in self.counted().filter(|(_, witness)| witness.state == State::Up) {
                match witness.seen.get(name) {
                    // One that holds it down has its reasons, and messages for it are given up already.
                    Some((incarnation, Verdict::Down))
                        if *incarnation == member.identity.incarnation =>
                    {
                        missing += brokers;
                    }
                    Some((incarnation, verdict)) if *incarnation == member.identity.incarnation => {
                        missing += usize::from(*verdict != Verdict::Up);
                        gone += usize::from(*verdict == Verdict::Gone);
                    }
                    _ => {}
                }
            }
            let witnesses = (brokers - 1).min(2);
            if (brokers > 2 && missing * 2 > brokers) || missing > brokers || gone >= witnesses {
                down.push(name.clone());
            }
        }
        for name in down {
            if let Some(member) = self.others.get_mut(&name) {
                (member.state, member.since) = (State::Down, now);
            }
            events.push(Event::Down(name));
        }
    }
}

impl Member {
    fn verdict(&self) -> Verdict {
        match self.state {
            State::Joining | State::Up => Verdict::Up,
            State::Unreachable if self.is_refused => Verdict::Gone,
            State::Unreachable => Verdict::Unreachable,
            State::Down | State::Left => Verdict::Down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: WallTime = WallTime::from_millis(1_000_000);

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    fn identity(name: &str, incarnation: u64) -> Identity {
        Identity {
            cluster: "c".into(),
            name: name.into(),
            incarnation,
            address: format!("{name}:1"),
            software: "0".into(),
            placement: 0,
        }
    }

    /// Brokers that hear each other, unless they are cut off.
    struct World {
        all: Vec<Members>,
        now: MonoTime,
        events: Vec<Vec<Event>>,
    }

    impl World {
        fn new(count: usize) -> Self {
            let names: Vec<_> = (0..count).map(|index| index.to_string()).collect();
            let timing = Timing::default();
            let mut all: Vec<_> =
                names.iter().map(|name| Members::new(identity(name, 1), timing, 8, 0)).collect();
            for members in &mut all {
                let me = members.me.name.clone();
                for name in names.iter().filter(|name| **name != me) {
                    members.on_hello(at(0), &identity(name, 1), &mut vec![]);
                }
            }
            let mut world = Self { all, now: at(0), events: vec![vec![]; count] };
            world.pass(500, |_, _| true);
            world.events.iter_mut().for_each(Vec::clear);
            world
        }

        /// Lets time pass. `hears` says whether the second broker hears the first one.
        fn pass(&mut self, millis: u64, hears: impl Fn(usize, usize) -> bool) {
            for _ in 0..millis / 250 {
                self.now = self.now.after(Duration::from_millis(250));
                for from in 0..self.all.len() {
                    let heartbeat = self.all[from].heartbeat(WALL);
                    let me = self.all[from].me.clone();
                    for to in 0..self.all.len() {
                        if to != from && hears(from, to) {
                            self.all[to].on_heartbeat(
                                (self.now, WALL),
                                (&me.name, me.incarnation),
                                heartbeat.clone(),
                                &mut self.events[to],
                            );
                        }
                    }
                }
                for (members, events) in self.all.iter_mut().zip(&mut self.events) {
                    members.on_tick(self.now, events);
                }
            }
        }

        fn state(&self, of: usize, at: usize) -> State {
            self.all[at].others[&of.to_string()].state
        }
    }

    #[test]
    fn whoever_is_silent_to_most_is_down_for_good() {
        let mut world = World::new(3);
        assert_eq!(world.state(2, 0), State::Up);
        world.pass(1_000, |from, _| from != 2);
        assert_eq!(world.state(2, 0), State::Unreachable);
        world.pass(500, |from, _| from != 2);
        assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Down, State::Down));
        let expected = [Event::Unreachable("2".into()), Event::Down("2".into())];
        assert_eq!(world.events[0], expected);
        // It hears that it is held down, and they hear nothing from it any more.
        world.pass(500, |_, _| true);
        assert!(world.events[2].contains(&Event::Condemned("0".into())));
        assert_eq!(world.state(2, 0), State::Down);
        assert_eq!(world.all[0].admits(&identity("2", 1)), Err(Refusal::Down));
        // Its next incarnation may come.
        let (again, now) = (identity("2", 2), world.now);
        assert_eq!(world.all[0].admits(&again), Ok(()));
        world.all[0].on_hello(now, &again, &mut world.events[0]);
        assert_eq!(world.state(2, 0), State::Joining);
    }

    #[test]
    fn whoever_is_silent_to_one_only_is_not_down() {
        let mut world = World::new(5);
        world.pass(3_000, |from, to| (from, to) != (2, 0));
        assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Unreachable, State::Up));
        world.pass(500, |_, _| true);
        assert_eq!(world.state(2, 0), State::Up);
    }

    #[test]
    fn of_two_brokers_none_is_down_by_silence() {
        let mut world = World::new(2);
        world.pass(60_000, |_, _| false);
        assert_eq!(
            (world.state(1, 0), world.state(0, 1)),
            (State::Unreachable, State::Unreachable)
        );
        // But a process that has ended is.
        let (now, mut events) = (world.now, vec![]);
        world.all[0].on_refused(now, "1:1", &mut events);
        assert_eq!(events, [Event::Down("1".into())]);
    }

    #[test]
    fn of_three_brokers_two_must_see_that_a_process_has_ended() {
        let mut world = World::new(4);
        world.pass(1_000, |from, to| (from, to) != (3, 0));
        let (now, mut events) = (world.now, vec![]);
        world.all[0].on_refused(now, "3:1", &mut events);
        assert_eq!(events, [], "to the others it is up");
    }

    #[test]
    fn the_smaller_part_of_a_cluster_holds_nobody_down() {
        let mut world = World::new(5);
        let in_minority = |broker: usize| broker < 2;
        world.pass(5_000, |from, to| in_minority(from) == in_minority(to));
        assert_eq!(
            (world.state(3, 0), world.state(4, 1)),
            (State::Unreachable, State::Unreachable)
        );
        assert_eq!((world.state(0, 3), world.state(1, 4)), (State::Down, State::Down));
    }

    #[test]
    fn names_are_not_taken_from_those_who_live() {
        let world = World::new(2);
        let elsewhere = Identity { address: "elsewhere:1".into(), ..identity("1", 2) };
        assert_eq!(world.all[0].admits(&elsewhere), Err(Refusal::NameTaken));
        assert_eq!(world.all[0].admits(&identity("1", 2)), Ok(()), "it was started again");
        assert_eq!(world.all[0].admits(&identity("1", 0)), Err(Refusal::Down), "an earlier life");
    }

    #[test]
    fn a_restarted_broker_ends_its_former_life() {
        let mut world = World::new(2);
        let mut events = vec![];
        world.all[0].on_hello(at(900), &identity("1", 2), &mut events);
        assert_eq!(events, [Event::Down("1".into()), Event::Joining("1".into())]);
    }

    #[test]
    fn members_name_members() {
        let mut world = World::new(2);
        let mut events = vec![];
        world.all[1].on_hello(at(600), &identity("new", 1), &mut events);
        world.pass(250, |_, _| true);
        assert_eq!(world.all[0].named().collect::<Vec<_>>(), ["new:1"]);
        world.all[0].on_hello(at(800), &identity("new", 1), &mut events);
        assert_eq!(world.all[0].named().count(), 0);
    }

    #[test]
    fn there_are_no_more_members_than_allowed() {
        let mut members = Members::new(identity("me", 1), Timing::default(), 2, 0);
        for name in ["a", "b"] {
            assert_eq!(members.admits(&identity(name, 1)), Ok(()));
            members.on_hello(at(0), &identity(name, 1), &mut vec![]);
        }
        assert_eq!(members.admits(&identity("c", 1)), Err(Refusal::Full("3".into())));
        members.on_leaving(at(1), ("a", 1), &mut vec![]);
        assert_eq!(members.admits(&identity("c", 1)), Ok(()));
    }
}
