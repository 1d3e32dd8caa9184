//! Random histories of brokers that lose and find each other: of two that serve, each waits for the other one, and whoever was
//! given up does not serve again in that life.
//!
//! Networks delay, cut one direction or both, and break links; processes are stopped and go on; clocks have different rates.
//! Between brokers there is only what the links of a cluster carry about members: hellos, heartbeats, that all filters were
//! told and heard, and farewells.

use std::collections::{BTreeSet, VecDeque};
use std::env;

use barid_core::time::{MonoTime, WallTime};
use barid_peers::{CommonSettings, Event, Heartbeat, Identity, Members, Refusal, Timing};

/// Length of a step, in milliseconds of true time.
const STEP: u64 = 25;

/// Steps in a history.
const STEPS: u64 = 4_000;

/// Histories, unless `QUORUM_HISTORIES` says otherwise.
const HISTORIES: u64 = 60;

#[derive(Debug)]
enum Said {
    Told,
    Heartbeat(Heartbeat),
    Leaving,
    /// The answer to `Told`.
    Heard,
}

/// A control link, over which one broker speaks, and the other one answers.
struct Link {
    from: (usize, u64),
    to: (usize, u64),
    /// Frames on their way to the listener, each with the earliest time of its arrival.
    forth: VecDeque<(u64, Said)>,
    /// The answers to them.
    back: VecDeque<(u64, Said)>,
    next_heartbeat: u64,
    /// Whether the speaker has ended it. What is on the way arrives.
    has_ended: bool,
}

struct Broker {
    members: Members,
    /// Rate of its clock, in thousandths.
    rate: u64,
    /// True time until which the process is stopped.
    stopped_until: u64,
    /// True time until which there is no process, and its host refuses connections.
    refuses_until: u64,
}

struct World {
    rng: fastrand::Rng,
    now: u64,
    brokers: Vec<Broker>,
    links: Vec<Link>,
    /// True time until which nothing passes from one broker to another one.
    cut_until: Vec<Vec<u64>>,
    slowest: u64,
    lives: u64,
    /// Steps in which all serve, and pairs that were compared.
    together: u64,
    compared: u64,
    begun_anew: u64,
    given_up: Vec<GivenUp>,
    checked: u64,
    /// Whether each broker knows how many there are.
    are_fixed: bool,
    /// A broker that does not come back.
    away: Option<usize>,
}

/// A life of a broker that another one has given up.
struct GivenUp {
    broker: usize,
    life: u64,
    by: (usize, u64),
    /// Whether that one has taken clients since then, in the same life: it acknowledges messages that the other one misses.
    counts: bool,
    /// The brokers whose processes have ended since then.
    ended: BTreeSet<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(3..=6);
        // Whether it is known how many there are.
        let are_fixed = rng.bool();
        let brokers = (0..count).map(|index| Broker {
            members: Members::new(
                identity(index, 1),
                Timing::default(),
                8,
                CommonSettings::default(),
            )
            .with_homes(names(if are_fixed { count } else { 0 })),
            rate: rng.u64(970..=1_030),
            stopped_until: rng.u64(0..2_000),
            refuses_until: 0,
        });
        let brokers = brokers.collect();
        let slowest = *[20, 200, 1_500].get(rng.usize(..3)).expect("three");
        let cut_until = vec![vec![0; count]; count];
        let links = Vec::new();
        let (together, compared, begun_anew) = (0, 0, 0);
        let (given_up, checked) = (Vec::new(), 0);
        Self {
            rng,
            now: 0,
            brokers,
            links,
            cut_until,
            slowest,
            lives: 1,
            together,
            compared,
            begun_anew,
            given_up,
            checked,
            are_fixed,
            away: None,
        }
    }

    /// Lets a step of time pass.
    fn step(&mut self, seed: u64) {
        self.now += STEP;
        self.connect();
        self.speak();
        self.hear();
        self.refuse();
        self.tick();
        self.check(seed);
    }

    /// The brokers that do not serve.
    fn idle(&self) -> Vec<usize> {
        let serves = |index: usize| {
            self.clock(index) < self.brokers[index].members.serves_until(self.clock(index))
        };
        (0..self.brokers.len()).filter(|index| !serves(*index)).collect()
    }

    fn clock(&self, broker: usize) -> MonoTime {
        MonoTime::from_millis(1_000 + self.now * self.brokers[broker].rate / 1_000)
    }

    fn life(&self, broker: usize) -> u64 {
        self.brokers[broker].members.me().incarnation
    }

    fn runs(&self, broker: usize) -> bool {
        self.now >= self.brokers[broker].stopped_until
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.now >= self.cut_until[from][to]
    }

    fn trouble(&mut self) {
        let count = self.brokers.len();
        if self.rng.u64(..400) == 0 {
            let broker = self.rng.usize(..count);
            self.brokers[broker].stopped_until = self.now + self.rng.u64(..6_000);
        }
        if self.rng.u64(..200) == 0 {
            let (from, to) = (self.rng.usize(..count), self.rng.usize(..count));
            let until = self.now + self.rng.u64(..15_000);
            self.cut_until[from][to] = until;
            if self.rng.bool() {
                self.cut_until[to][from] = until;
            }
        }
        if self.rng.u64(..600) == 0 {
            // One part is cut off from the rest.
            let part: Vec<_> = (0..count).map(|_| self.rng.bool()).collect();
            let until = self.now + self.rng.u64(..15_000);
            for from in 0..count {
                for to in (0..count).filter(|to| part[*to] != part[from]) {
                    self.cut_until[from][to] = until;
                }
            }
        }
        if self.rng.u64(..500) == 0 {
            let broker = self.rng.usize(..count);
            if self.rng.bool() {
                self.leave(broker);
            }
            self.restart(broker);
        }
        if self.rng.u64(..100) == 0 && !self.links.is_empty() {
            let broken = self.rng.usize(..self.links.len());
            self.links.swap_remove(broken);
        }
    }

    fn connect(&mut self) {
        let count = self.brokers.len();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let ends = ((from, self.life(from)), (to, self.life(to)));
                let is_there = |link: &Link| (link.from, link.to) == ends && !link.has_ended;
                let is_possible = self.runs(from)
                    && self.runs(to)
                    && self.passes(from, to)
                    && self.passes(to, from);
                if !is_possible || self.links.iter().any(is_there) || self.rng.u64(..8) != 0 {
                    continue;
                }
                let (speaker, listener) = (identity(from, ends.0.1), identity(to, ends.1.1));
                match self.brokers[to].members.admits(&speaker) {
                    Ok(()) => {}
                    Err(Refusal::Down) => {
                        self.begin_anew(from);
                        continue;
                    }
                    Err(_) => continue,
                }
                if self.brokers[from].members.admits(&listener).is_err() {
                    continue;
                }
                for (one, other) in [(from, &listener), (to, &speaker)] {
                    let now = self.clock(one);
                    self.brokers[one].members.on_hello(now, other, &mut Vec::new());
                }
                // The listener attends to the last link of a speaker only.
                self.links.retain(|link| (link.from.0, link.to) != (from, ends.1));
                let mut link = Link {
                    from: ends.0,
                    to: ends.1,
                    forth: VecDeque::new(),
                    back: VecDeque::new(),
                    next_heartbeat: 0,
                    has_ended: false,
                };
                let at = self.now + self.rng.u64(..self.slowest);
                link.forth.push_back((at, Said::Told));
                self.links.push(link);
            }
        }
    }

    fn speak(&mut self) {
        for index in 0..self.links.len() {
            let (from, life) = self.links[index].from;
            let is_due = self.runs(from)
                && !self.links[index].has_ended
                && life == self.life(from)
                && self.now >= self.links[index].next_heartbeat;
            if is_due {
                let now = self.clock(from);
                let heartbeat = self.brokers[from].members.heartbeat(now, WALL);
                let at = self.now + self.rng.u64(..self.slowest);
                self.links[index].forth.push_back((at, Said::Heartbeat(heartbeat)));
                self.links[index].next_heartbeat = self.now + 250;
            }
        }
    }

    fn hear(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        let (mut events, mut condemned) = (Vec::new(), Vec::new());
        links.retain_mut(|link| {
            let ((from, life), (to, listener)) = (link.from, link.to);
            let (speaker_name, listener_name) = (name(from), name(to));
            while link.forth.front().is_some_and(|(at, _)| *at <= self.now)
                && self.passes(from, to)
                && self.runs(to)
                && listener == self.life(to)
            {
                let Some((_, said)) = link.forth.pop_front() else { break };
                let now = self.clock(to);
                let members = &mut self.brokers[to].members;
                let mut happened = Vec::new();
                match said {
                    Said::Told => {
                        members.on_told(&speaker_name, life);
                        let at = self.now + self.rng.u64(..self.slowest);
                        link.back.push_back((at, Said::Heard));
                    }
                    Said::Heartbeat(heartbeat) => {
                        let of = (speaker_name.as_str(), life);
                        members.on_heartbeat((now, WALL), of, heartbeat, &mut happened);
                    }
                    Said::Leaving => members.on_leaving(now, (&speaker_name, life), &mut happened),
                    Said::Heard => unreachable!("speakers do not say so"),
                }
                events.extend(happened.into_iter().map(|event| (to, event)));
                let is_member = self.brokers[to].members.get(&speaker_name).is_some_and(|it| {
                    use barid_peers::State::{Down, Left};
                    it.identity.incarnation == life && !matches!(it.state, Down | Left)
                });
                if !is_member {
                    condemned.push((from, life));
                    return false;
                }
            }
            while link.back.front().is_some_and(|(at, _)| *at <= self.now)
                && self.passes(to, from)
                && self.runs(from)
                && life == self.life(from)
            {
                link.back.pop_front();
                self.brokers[from].members.on_heard(&listener_name, listener);
            }
            let is_over = listener != self.life(to) || (link.has_ended && link.forth.is_empty());
            !is_over
        });
        self.links = links;
        for (broker, life) in condemned {
            if self.life(broker) == life && self.runs(broker) {
                self.begin_anew(broker);
            }
        }
        self.follow(events);
    }

    fn tick(&mut self) {
        let (mut events, count) = (Vec::new(), self.brokers.len());
        for index in 0..count {
            if self.runs(index) && self.now % 250 < STEP {
                let now = self.clock(index);
                let mut happened = Vec::new();
                let members = &mut self.brokers[index].members;
                members.on_tick(now, &mut happened);
                // As if all addresses had been tried, and had answered, or belonged to the one that stays away.
                let has_met = |other: usize| {
                    other == index
                        || self.away == Some(other)
                        || members.get(&name(other)).is_some()
                };
                if (0..count).all(has_met) {
                    members.begin_to_serve(now);
                }
                events.extend(happened.into_iter().map(|event| (index, event)));
            }
        }
        self.follow(events);
    }

    /// Brokers find that the hosts of others refuse connections. One of them is told so now and then although it is not true.
    fn refuse(&mut self) {
        let (count, mut events) = (self.brokers.len(), Vec::new());
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let is_true = self.now < self.brokers[to].refuses_until;
                let is_lie = from == 0 && self.rng.u64(..400) == 0;
                let is_tried = self.runs(from) && self.rng.u64(..10) == 0;
                if is_lie || (is_tried && is_true && self.passes(from, to) && self.passes(to, from))
                {
                    let now = self.clock(from);
                    let mut happened = Vec::new();
                    self.brokers[from].members.on_refused(
                        now,
                        &identity(to, 1).address,
                        &mut happened,
                    );
                    events.extend(happened.into_iter().map(|event| (from, event)));
                }
            }
        }
        self.follow(events);
    }

    fn follow(&mut self, events: Vec<(usize, Event)>) {
        for (broker, event) in events {
            let members = &self.brokers[broker].members;
            let has_rules = members.quorum_until(self.clock(broker)) != ALWAYS;
            if let Event::Down(name) = &event
                && has_rules
            {
                let life = self.brokers[broker].members.get(name).map(|it| it.identity.incarnation);
                let (life, ended) = (life.expect("it is known"), BTreeSet::new());
                let given_up = name.parse().expect("a number");
                let by = (broker, self.life(broker));
                self.given_up.push(GivenUp { broker: given_up, life, by, counts: false, ended });
            }
            if let Event::Condemned(_) | Event::Isolated | Event::Estranged(_) = event {
                self.begin_anew(broker);
            }
        }
    }

    /// A broker says that it leaves.
    fn leave(&mut self, broker: usize) {
        let at = self.now + self.rng.u64(..self.slowest);
        for link in self.links.iter_mut().filter(|link| link.from.0 == broker && !link.has_ended) {
            link.forth.push_back((at, Said::Leaving));
            link.has_ended = true;
        }
    }

    /// The process of a broker ends, and another one begins.
    fn restart(&mut self, broker: usize) {
        self.lives += 1;
        for given_up in &mut self.given_up {
            given_up.ended.insert(broker);
        }
        self.links.retain(|link| (link.from.0 != broker || link.has_ended) && link.to.0 != broker);
        self.brokers[broker].members = Members::new(
            identity(broker, self.lives),
            Timing::default(),
            8,
            CommonSettings::default(),
        )
        .with_homes(names(if self.are_fixed { self.brokers.len() } else { 0 }));
        let until = self.now + self.rng.u64(..3_000);
        (self.brokers[broker].stopped_until, self.brokers[broker].refuses_until) = (until, until);
    }

    fn begin_anew(&mut self, broker: usize) {
        self.lives += 1;
        self.begun_anew += 1;
        for index in 0..self.links.len() {
            self.links[index].has_ended |= self.links[index].from.0 == broker;
        }
        self.brokers[broker].members.begin_anew(self.lives);
    }

    /// Of two brokers that serve now, each waits for the other one. Of a cluster of two, neither has to.
    fn check(&mut self, seed: u64) {
        let count = self.brokers.len();
        let serves = |index: usize| {
            let members = &self.brokers[index].members;
            self.runs(index)
                && self.clock(index) < members.serves_until(self.clock(index))
                && members.quorum_until(self.clock(index)) != ALWAYS
        };
        let serving: Vec<_> = (0..count).filter(|index| serves(*index)).collect();
        self.together += u64::from(serving.len() == count);
        let takes_clients = |(index, life): (usize, u64)| {
            life == self.life(index) && !self.brokers[index].members.is_joining()
        };
        let begun = self.given_up.iter().map(|given_up| takes_clients(given_up.by));
        let begun: Vec<_> = begun.collect();
        for (given_up, has_begun) in self.given_up.iter_mut().zip(begun) {
            given_up.counts |= has_begun;
        }
        for GivenUp { broker, life, by: (by, _), counts, ended } in &self.given_up {
            // More than half have known of it, and at least one of them is still there.
            if !counts || *life != self.life(*broker) || ended.len() * 2 > count {
                continue;
            }
            self.checked += 1;
            assert!(
                !serving.contains(broker),
                "seed {seed}, after {} ms: {by} has given up what was for {broker}, which serves",
                self.now
            );
        }
        for one in &serving {
            for other in serving.iter().filter(|other| *other != one) {
                let members = &self.brokers[*one].members;
                let known = members.get(&name(*other));
                let is_known = known.is_some_and(|it| it.identity.incarnation == self.life(*other));
                self.compared += 1;
                assert!(
                    is_known && members.is_waited_for(self.clock(*one), &name(*other)),
                    "seed {seed}, after {} ms: {one} does not wait for {other}, and both serve",
                    self.now
                );
            }
        }
    }
}

/// Until when a broker of a cluster of two has the quorum.
const ALWAYS: MonoTime = MonoTime::from_millis(u64::MAX);

const WALL: WallTime = WallTime::from_millis(1_000_000);

fn name(index: usize) -> String {
    index.to_string()
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(name)
}

fn identity(index: usize, incarnation: u64) -> Identity {
    Identity {
        cluster: "c".into(),
        name: name(index),
        incarnation,
        address: format!("{index}:1"),
        software: "0".into(),
        placement: 0,
        reference: String::new(),
    }
}

#[test]
fn of_two_brokers_that_serve_each_waits_for_the_other() {
    let number = |name| env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, histories) =
        (number("QUORUM_SEED").unwrap_or(0), number("QUORUM_HISTORIES").unwrap_or(HISTORIES));
    let (mut together, mut compared, mut begun_anew, mut checked) = (0, 0, 0, 0);
    for seed in first..first + histories {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.trouble();
            world.step(seed);
        }
        // Without trouble, all find each other again.
        world.slowest = 20;
        for _ in 0..2_400 {
            world.step(seed);
        }
        let idle = world.idle();
        assert!(idle.is_empty(), "seed {seed}: after a minute of peace {idle:?} do not serve");
        // Two processes end at the same time, and one of them stays away: the others go on if they know how many there are.
        let count = world.brokers.len();
        let (away, back) = (world.rng.usize(..count), world.rng.usize(..count));
        for ended in [away, back] {
            world.restart(ended);
        }
        let end = world.now + 2_400 * STEP;
        world.away = Some(away);
        (world.brokers[away].stopped_until, world.brokers[away].refuses_until) = (end + 1, end + 1);
        while world.now < end {
            world.step(seed);
        }
        let mut idle = world.idle();
        idle.retain(|index| *index != away);
        assert!(
            idle.is_empty() || !world.are_fixed,
            "seed {seed}: {away} is away, {back} is back, and {idle:?} do not serve"
        );
        together += world.together;
        compared += world.compared;
        begun_anew += world.begun_anew;
        checked += world.checked;
    }
    println!(
        "{histories} histories: {compared} comparisons of two, {checked} of one that was given up, {together} steps in which all \
         served, {begun_anew} new lives"
    );
    assert!(together > 0 && begun_anew > 0 && checked > 0, "these histories are idle");
}
