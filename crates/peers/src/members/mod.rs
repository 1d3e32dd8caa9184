//! The brokers of a cluster, and which of them can be reached.
//!
//! Each broker sends each other one a heartbeat several times a second, with what it knows of all the others. From these
//! every broker comes to its own conclusions; there is no vote and no master.
//!
//! - A broker whose heartbeats have not arrived for [`Timing::silence`] is *unreachable* to the one that misses them.
//! - It is *down* when more than half of the brokers miss them, or when its process has certainly ended. Of two brokers,
//!   none is ever down by silence: each would hold the other for the dead one.
//! - Down is for good. Messages that waited for the broker are given up, so it must not go on as if nothing had happened.
//!   When it hears that it is held down, it ends what others rely on, and joins again with a new *incarnation*. The messages
//!   are given up when more than half of the brokers know that it is down, so that one of these is left to tell it.
//! - A broker takes messages from publishers only while it has the *quorum*: more than half of the brokers have heard it a
//!   moment ago, so they do not hold it down. A subscription that the others would miss waits until each broker that may
//!   have the quorum has heard of it.
//! - A broker that has not had the quorum for [`Timing::patience`] is *isolated*, and one that cannot reach another one for so
//!   long, while others can, is *estranged*. Both give up their place and join again.
//!
//! | file | what is there |
//! | --- | --- |
//! | `clock.rs` | by how much the wall clock of another broker is ahead |
//! | `contact.rs` | whether another broker and this one hear each other |
//! | `down.rs` | brokers that are down, and when what waits for them is given up |
//! | `quorum.rs` | whether this broker may serve |

mod clock;
mod contact;
mod down;
mod quorum;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use barid_core::time::{MonoTime, WallTime};

use crate::common::CommonSettings;
use crate::error::Refusal;
use crate::heartbeat::{Heartbeat, Seen, Support, Verdict};
use crate::identity::Identity;
use clock::Ahead;
use contact::Contact;

/// How long a broker that is down or has left is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The times after which silence means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a broker is unreachable.
    pub silence: Duration,
    /// Time without quorum, or without contact to another broker, after which a broker gives up its place.
    pub patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            silence: Duration::from_secs(1),
            patience: Duration::from_secs(5),
        }
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

impl State {
    /// Whether the broker is not down, and has not left.
    pub fn is_in_cluster(self) -> bool {
        !matches!(self, Self::Down | Self::Left)
    }
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
    /// A broker is out of the cluster, and what waits for it is to be given up.
    Down(String),
    /// A broker has left.
    Left(String),
    /// Another broker, of this name, holds this broker to be down, or knows that somebody else may.
    Condemned(String),
    /// This broker has not had the quorum for a while.
    Isolated,
    /// This broker and another one, of this name, have not heard each other for a while, and others hear both. Of the two,
    /// the one with the greater name gives up its place.
    Estranged(String),
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
    /// By how much its wall clock is ahead, without the time that heartbeats are under way.
    clock: Ahead,
    /// Its settings, as of its last heartbeat; `None`: there was none yet.
    pub settings: Option<CommonSettings>,
    /// Whether it has said that it hears this broker.
    pub hears_us: bool,
    /// Whether it has said hello. Otherwise others have named it.
    is_met: bool,
    /// What the two know of each other.
    contact: Contact,
    /// When its last heartbeat arrived, and its number.
    heard: (MonoTime, u64),
    /// Whether its host refuses connections.
    is_refused: bool,
    /// The number of the first heartbeat that says that it is down, if what waits for it is not given up yet.
    held_down_from: Option<u64>,
    /// Whether it serves.
    serves: bool,
    /// Whether a broker of this name has served, or may have: it counts for a quorum until it leaves by itself.
    counts: bool,
    /// The number of brokers that count, as far as it knows.
    brokers: usize,
    /// What it thinks of the others, by name.
    seen: BTreeMap<String, Seen>,
}

/// All brokers of a cluster, as one of them sees them.
#[derive(Clone, Debug)]
pub struct Members {
    me: Identity,
    timing: Timing,
    settings: CommonSettings,
    others: BTreeMap<String, Member>,
    /// Maximum number of other brokers.
    most: usize,
    /// Addresses of brokers that others have named and that have not said hello here.
    named: BTreeMap<String, String>,
    /// Number of heartbeats sent, and when the last ones were.
    sent: u64,
    sent_at: VecDeque<(u64, MonoTime)>,
    /// Whether the broker does not serve yet in its present life.
    is_joining: bool,
    /// Whether it was allowed to serve only with the quorum when that was looked at last.
    needed_quorum: bool,
    /// Whether it has had the quorum since it first had it, in its present life; `None`: it never had.
    is_unbroken: Option<bool>,
    /// Since when it has served without having the quorum.
    without_quorum_since: Option<MonoTime>,
    /// Whether it serves without the quorum.
    always_serves: bool,
    /// The names of brokers that count for a quorum, whether or not they have been met.
    homes: BTreeSet<String>,
}

impl Members {
    /// Begins alone. `most` is the maximum number of other brokers; `settings` are those that all brokers should have in
    /// common.
    pub fn new(me: Identity, timing: Timing, most: usize, settings: CommonSettings) -> Self {
        Self {
            me,
            timing,
            settings,
            others: BTreeMap::new(),
            most,
            named: BTreeMap::new(),
            sent: 0,
            sent_at: VecDeque::new(),
            is_joining: true,
            needed_quorum: false,
            is_unbroken: None,
            without_quorum_since: None,
            always_serves: false,
            homes: BTreeSet::new(),
        }
    }

    /// Names brokers that the cluster has: they all count for a quorum, whether or not they have been met.
    #[must_use]
    pub fn with_homes(self, homes: impl IntoIterator<Item = String>) -> Self {
        Self { homes: homes.into_iter().collect(), ..self }
    }

    /// Lets this broker serve also without the quorum.
    #[must_use]
    pub fn always_serving(self) -> Self {
        Self { always_serves: true, ..self }
    }

    /// This broker.
    pub fn me(&self) -> &Identity {
        &self.me
    }

    /// The settings of this broker have changed.
    pub fn set_settings(&mut self, settings: CommonSettings) {
        self.settings = settings;
    }

    /// Returns the names of the settings that all brokers should have in common and that another one has otherwise.
    pub fn other_settings(&self, member: &Member) -> Vec<&'static str> {
        let theirs = member.settings.as_ref();
        theirs.map(|theirs| self.settings.differing(theirs).collect()).unwrap_or_default()
    }

    /// The number of milliseconds by which the fastest wall clock of the cluster is ahead of that of this broker, as far as
    /// heartbeats tell. Those of brokers that are down count: what they have told may still be on its way.
    pub fn behind(&self) -> u64 {
        self.others.values().map(|member| member.clock.millis()).max().unwrap_or_default()
    }

    /// The other brokers, by name.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.others.values()
    }

    /// Another broker.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.others.get(name)
    }

    /// The brokers that keep wills of this one's clients: the two that follow it in the order of their names, of those that are
    /// in the cluster.
    pub fn keepers(&self) -> impl Iterator<Item = &str> {
        let me = self.me.name.as_str();
        let behind = self.others.range::<str, _>((Bound::Excluded(me), Bound::Unbounded));
        let before = self.others.range::<str, _>((Bound::Unbounded, Bound::Excluded(me)));
        let in_order = behind.chain(before).filter(|(_, member)| member.state.is_in_cluster());
        in_order.map(|(name, _)| name.as_str()).take(2)
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
        let is_full = self.counted().count() >= self.most;
        if is_full && !self.others.contains_key(&peer.name) {
            return Err(Refusal::Full((self.most + 1).to_string()));
        }
        let Some(known) = self.others.get(&peer.name) else { return Ok(()) };
        let is_over = !known.state.is_in_cluster();
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
                known.is_met = true;
                return;
            }
            // The new life does not know whom the former one has held down.
            self.hold_down(now, &peer.name, true, events);
        }
        let former = self.others.get(&peer.name);
        let counts = former.is_some_and(|it| it.counts && it.state != State::Left);
        let (ahead, clock) = former.map(|it| (it.ahead, it.clock)).unwrap_or_default();
        let member =
            Member { ahead, clock, counts, is_met: true, ..Member::new(now, peer.clone()) };
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
        // Before it is supported for longer.
        self.note_quorum(now);
        let support = self.timing.support();
        let is_unbroken = self.is_unbroken == Some(true);
        let sent_at = &self.sent_at;
        let sent = |number| sent_at.iter().find(|(of, _)| *of == number).map(|(_, at)| *at);
        let Some(member) = self.others.get_mut(name) else { return };
        if member.identity.incarnation != incarnation || !member.state.is_in_cluster() {
            return;
        }
        member.ahead = heartbeat.wall.cast_signed().wrapping_sub(wall.as_millis().cast_signed());
        member.clock.note(member.ahead);
        member.settings = Some(heartbeat.settings);
        member.heard = (now, heartbeat.number);
        member.is_refused = false;
        (member.serves, member.brokers) = (heartbeat.serves, heartbeat.brokers.into());
        member.counts |= heartbeat.serves;
        if heartbeat.is_unbroken {
            member.contact.is_given_up = false;
        }
        member.seen.clear();
        member.hears_us = false;
        let mut unknown = Vec::new();
        for seen in heartbeat.seen {
            if seen.name == self.me.name {
                if seen.incarnation == self.me.incarnation {
                    member.hears_us = seen.verdict == Verdict::Up;
                    member.contact.has_heard_number = seen.heard;
                    if seen.support == Support::Yes
                        && let Some(at) = sent(seen.heard)
                    {
                        member.contact.supports(at.after(support));
                    }
                    let may_be_down = seen.support == Support::Never && !is_unbroken;
                    if seen.verdict == Verdict::Down || may_be_down {
                        events.push(Event::Condemned(name.to_owned()));
                    }
                }
                continue;
            }
            if seen.verdict == Verdict::Up && self.named.len() < self.most && seen.name != name {
                self.named.insert(seen.name.clone(), seen.address.clone());
            }
            if matches!(seen.verdict, Verdict::Unreachable | Verdict::Gone) {
                unknown.push((seen.name.clone(), seen.address.clone(), seen.incarnation));
            }
            member.seen.insert(seen.name.clone(), seen);
        }
        if matches!(member.state, State::Joining | State::Unreachable) {
            (member.state, member.since) = (State::Up, now);
            events.push(Event::Up(name.to_owned()));
        }
        for (name, address, incarnation) in unknown {
            self.note_unknown(now, (name, address, incarnation));
        }
        let others = &self.others;
        self.named.retain(|name, _| !others.contains_key(name));
        self.give_up(now, events);
        self.note_need(now);
    }

    /// Another broker counts one that this one has not met. It is missed if it stays silent: without this one's word the others
    /// could not hold it down, and would wait for it for ever. If it is not known how many brokers there are, those that were not met
    /// do not count.
    fn note_unknown(&mut self, now: MonoTime, (name, address, incarnation): (String, String, u64)) {
        let are_fixed = self.homes.len() > 1;
        if !are_fixed || self.others.contains_key(&name) || self.counted().count() >= self.most {
            return;
        }
        let (cluster, software) = (self.me.cluster.clone(), String::new());
        let (placement, reference) = (self.me.placement, String::new());
        let identity =
            Identity { cluster, name, incarnation, address, software, placement, reference };
        self.others.insert(identity.name.clone(), Member::new(now, identity));
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
            && member.state.is_in_cluster()
        {
            (member.state, member.since) = (State::Left, now);
            events.push(Event::Left(name.to_owned()));
            self.lose_witness(name);
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
            let hears_each_other = match member.state {
                State::Joining | State::Down | State::Left => true,
                State::Up => member.hears_us,
                State::Unreachable => false,
            };
            member.contact.note(now, hears_each_other);
        }
        self.conclude(now, events);
        self.give_up(now, events);
        self.note_need(now);
        self.look_at_oneself(now, events);
        self.others.retain(|_, member| {
            let is_over = !member.state.is_in_cluster();
            !(is_over && now.since(member.since) >= REMEMBERED)
        });
    }

    /// This broker begins a new life.
    pub fn begin_anew(&mut self, incarnation: u64) {
        self.me.incarnation = incarnation;
        (self.sent, self.is_joining, self.is_unbroken) = (0, true, None);
        self.sent_at.clear();
        for member in self.others.values_mut() {
            (member.hears_us, member.contact) = (false, member.contact.of_former_life());
            member.held_down_from = member.held_down_from.map(|_| 1);
        }
    }

    /// Returns the next heartbeat. From now on, subscriptions [wait](Self::is_waited_for) for each broker whose heartbeats
    /// it says are heard.
    pub fn heartbeat(&mut self, now: MonoTime, wall: WallTime) -> Heartbeat {
        self.sent += 1;
        self.sent_at.push_back((self.sent, now));
        while self.sent_at.front().is_some_and(|(_, at)| now.since(*at) >= self.timing.silence) {
            self.sent_at.pop_front();
        }
        self.support_others();
        self.note_need(now);
        self.note_quorum(now);
        let seen = |(name, member): (&String, &Member)| Seen {
            name: name.clone(),
            address: member.identity.address.clone(),
            incarnation: member.identity.incarnation,
            verdict: member.verdict(),
            heard: member.heard.1,
            support: member.contact.support(),
        };
        let seen = self.others.iter().map(seen).collect();
        Heartbeat {
            number: self.sent,
            wall: wall.as_millis(),
            settings: self.settings,
            serves: !self.is_joining,
            is_unbroken: self.is_unbroken == Some(true),
            brokers: u16::try_from(self.known_brokers(now)).expect("members are few"),
            seen,
        }
    }

    /// The other brokers that are neither down nor gone by themselves.
    fn counted(&self) -> impl Iterator<Item = (&String, &Member)> {
        let is_counted = |member: &Member| member.state.is_in_cluster();
        self.others.iter().filter(move |(_, member)| is_counted(member))
    }

    /// The other brokers whose heartbeats arrive.
    fn up(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.others.iter().filter(|(_, member)| member.state == State::Up)
    }
}

impl Member {
    /// Whether it says this of an incarnation of another broker.
    fn says(&self, name: &str, incarnation: u64, verdict: Verdict) -> bool {
        self.seen.get(name).is_some_and(|seen| seen.is(incarnation, verdict))
    }

    /// A broker that has said hello, or that another one counts.
    fn new(now: MonoTime, identity: Identity) -> Self {
        Self {
            identity,
            state: State::Joining,
            since: now,
            ahead: 0,
            clock: Ahead::default(),
            settings: None,
            hears_us: false,
            is_met: false,
            contact: Contact::default(),
            heard: (now, 0),
            is_refused: false,
            held_down_from: None,
            serves: false,
            counts: false,
            brokers: 0,
            seen: BTreeMap::new(),
        }
    }

    fn verdict(&self) -> Verdict {
        match self.state {
            State::Joining | State::Up => Verdict::Up,
            State::Unreachable if self.is_refused => Verdict::Gone,
            State::Unreachable => Verdict::Unreachable,
            State::Down | State::Left => Verdict::Down,
        }
    }
}
