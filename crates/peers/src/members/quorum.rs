//! Whether this broker may serve: take clients, and acknowledge what they publish.
//!
//! A message that is acknowledged must reach everybody whose SUBACK came before it. So a broker acknowledges only while no
//! other one has stopped to wait for it, which the others do when they hold it down. Of two sets of brokers, each more than half
//! of all, one broker is in both: as long as more than half do not hold this one to be unreachable, it is not down.
//!
//! - The other side counts the silence from when a heartbeat *arrives*, and this side from when it was *sent*, a tenth less. So
//!   this broker knows first.
//! - A broker lets another one serve, at first and after it could not reach it, only when all others have heard from it that it
//!   can, and do not hold that one down: until then they may count what it has said before, perhaps in a former life.

use std::time::Duration;

use barid_core::time::MonoTime;

use super::contact::{Contact, Doubt};
use super::{Event, Member, Members, State, Timing};
use crate::heartbeat::{Seen, Verdict};

/// The end of time.
const ALWAYS: MonoTime = MonoTime::from_millis(u64::MAX);

impl Timing {
    /// Time for which a heartbeat that was heard keeps its sender from being unreachable, from when it was sent. Less than
    /// [`Self::silence`], because clocks run at different rates.
    pub(super) fn support(&self) -> Duration {
        self.silence * 9 / 10
    }
}

impl Members {
    /// The number of brokers more than half of which are a quorum.
    pub(super) fn brokers(&self, now: MonoTime) -> usize {
        // Others may know more of them.
        let of_others = self.counted().filter(|(_, member)| member.serves);
        let known = of_others.map(|(_, member)| member.brokers).max().unwrap_or_default();
        let is_missing = |home: &&String| {
            let is_counted = |member: &Member| self.counts(now, member);
            **home != self.me.name && !self.others.get(*home).is_some_and(is_counted)
        };
        let not_met = self.homes.iter().filter(is_missing).count();
        (self.known_brokers(now) + not_met).max(known)
    }

    /// The number of those that this broker has met. One that is down is one of them; who has left is none, when what it has said
    /// before is forgotten.
    pub(super) fn known_brokers(&self, now: MonoTime) -> usize {
        self.others.values().filter(|member| self.counts(now, member)).count() + 1
    }

    fn counts(&self, now: MonoTime, member: &Member) -> bool {
        match member.state {
            State::Left => member.counts && now.since(member.since) < self.timing.silence,
            // A broker that joins does not know yet which of the others serve.
            _ => member.counts || self.is_joining,
        }
    }

    /// Until when this broker has the quorum, as far as it knows now. Of two brokers each has it: none is ever down by silence.
    pub fn quorum_until(&self, now: MonoTime) -> MonoTime {
        self.heard_until(now, |member| member.serves)
    }

    /// Whether this broker may serve only with the quorum.
    pub(super) fn needs_quorum(&self, now: MonoTime) -> bool {
        !self.always_serves && self.brokers(now) > 2
    }

    /// Until when this broker and others are more than half, of those that `count`.
    fn heard_until(&self, now: MonoTime, counts: impl Fn(&Member) -> bool) -> MonoTime {
        if !self.needs_quorum(now) {
            return ALWAYS;
        }
        let brokers = self.brokers(now);
        let supporters = self.counted().filter(|(_, member)| counts(member));
        let mut supports: Vec<_> =
            supporters.filter_map(|(_, member)| member.contact.supports_until).collect();
        supports.sort_unstable_by(|one, other| other.cmp(one));
        // With this broker, so many others are more than half.
        supports.get(brokers / 2 - 1).copied().unwrap_or_default()
    }

    /// Whether this broker has the quorum now.
    pub fn has_quorum(&self, now: MonoTime) -> bool {
        now < self.quorum_until(now)
    }

    /// Until when this broker may acknowledge messages, as far as it knows now.
    pub fn serves_until(&self, now: MonoTime) -> MonoTime {
        if self.is_joining { MonoTime::default() } else { self.quorum_until(now) }
    }

    /// Whether this broker does not serve yet in its present life.
    pub fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Another broker has told all its filters.
    pub fn on_told(&mut self, name: &str, incarnation: u64) {
        if let Some(contact) = self.contact_mut(name, incarnation) {
            contact.has_told = true;
        }
    }

    /// Another broker has heard of all filters that this one had.
    pub fn on_heard(&mut self, name: &str, incarnation: u64) {
        if let Some(contact) = self.contact_mut(name, incarnation) {
            contact.has_heard = true;
        }
    }

    fn contact_mut(&mut self, name: &str, incarnation: u64) -> Option<&mut Contact> {
        let member = self.others.get_mut(name)?;
        (member.identity.incarnation == incarnation).then_some(&mut member.contact)
    }

    /// Finds out which other brokers may be told that they are heard, with the heartbeat whose number is `sent`.
    pub(super) fn support_others(&mut self) {
        let number = self.sent;
        for member in self.others.values_mut() {
            let contact = &mut member.contact;
            contact.doubt = match (member.state, contact.doubt) {
                (State::Joining | State::Up, Doubt::Present) => Doubt::Withdrawn(number),
                (State::Joining | State::Up, doubt) => doubt,
                _ => Doubt::Present,
            };
        }
        let has_been_heard = |name: &str, since: u64| {
            let mut witnesses = self.counted().filter(|(other, _)| *other != name);
            witnesses.all(|(_, witness)| witness.contact.has_heard_number >= since)
        };
        let is_held_down = |(name, member): (&String, &Member)| {
            let incarnation = member.identity.incarnation;
            self.counted().any(|(_, witness)| witness.says(name, incarnation, Verdict::Down))
        };
        let believed = |(name, member): (&String, &Member)| match member.contact.doubt {
            _ if member.contact.is_given_up || is_held_down((name, member)) => false,
            Doubt::None => true,
            Doubt::Present => false,
            Doubt::Withdrawn(since) => has_been_heard(name, since),
        };
        // A broker that begins to serve must wait for all that serve already, so it must know them.
        let knows_others = |(name, member): (&String, &Member)| {
            self.counted().filter(|(other, _)| *other != name).all(|(other, known)| {
                let seen = member.seen.get(other);
                seen.is_some_and(|seen| {
                    seen.incarnation == known.identity.incarnation && seen.verdict != Verdict::Down
                })
            })
        };
        let may_serve = |one: (&String, &Member)| {
            let contact = &one.1.contact;
            let is_known = contact.is_waited_for || (contact.has_heard && knows_others(one));
            (believed(one), is_known)
        };
        let may_serve: Vec<_> = self.others.iter().map(may_serve).collect();
        for (member, (is_believed, is_known)) in self.others.values_mut().zip(may_serve) {
            let contact = &mut member.contact;
            if is_believed {
                contact.doubt = Doubt::None;
            }
            contact.supports_it = is_known && is_believed;
            contact.is_waited_for |= contact.supports_it;
            member.counts |= member.contact.is_waited_for;
        }
    }

    /// A broker is gone. Those that it has held down begin a new life when they hear from this broker that they must: messages
    /// for them may have been given up. If this broker has not met it, that may be anybody.
    pub(super) fn lose_witness(&mut self, name: &str) {
        let Some(witness) = self.others.get(name) else { return };
        let (is_met, seen) = (witness.is_met, witness.seen.clone());
        for (other, member) in self.others.iter_mut().filter(|(other, _)| **other != *name) {
            let is_it = |seen: &Seen| seen.is(member.identity.incarnation, Verdict::Down);
            member.contact.is_given_up |= !is_met || seen.get(other).is_some_and(is_it);
        }
    }

    /// Notes whether this broker may serve only with the quorum now. If it has served without, it has not waited for brokers that
    /// it could not reach, and they may have served as well: then it has to begin once more.
    pub(super) fn note_need(&mut self, now: MonoTime) {
        let needs_quorum = self.needs_quorum(now);
        let is_late = |member: &Member| {
            member.counts && member.state != State::Left && !member.contact.is_waited_for
        };
        if needs_quorum && !self.needed_quorum && self.others.values().any(is_late) {
            (self.is_joining, self.without_quorum_since) = (true, None);
        }
        self.needed_quorum = needs_quorum;
    }

    /// Notes whether this broker has the quorum now.
    pub(super) fn note_quorum(&mut self, now: MonoTime) {
        self.is_unbroken = match (self.is_unbroken, !self.is_joining && self.has_quorum(now)) {
            (None, has_it) => has_it.then_some(true),
            (Some(was), has_it) => Some(was && has_it),
        };
    }

    /// Whether subscriptions must wait until another broker has heard of them.
    pub fn is_waited_for(&self, now: MonoTime, name: &str) -> bool {
        let Some(member) = self.others.get(name) else { return false };
        match member.state {
            State::Left => false,
            State::Down if member.held_down_from.is_none() => false,
            _ if self.needs_quorum(now) => member.contact.is_waited_for,
            state => state == State::Up && member.hears_us,
        }
    }

    /// Whether this broker may begin to serve in its present life: it knows the filters of all others, and they all wait for
    /// each other. If so, it does from now on.
    pub fn begin_to_serve(&mut self, now: MonoTime) -> bool {
        let needs_quorum = self.needs_quorum(now);
        let knows_all = self.counted().all(|(_, Member { state, contact, .. })| {
            let wait_for_each_other = contact.is_waited_for && contact.supports_until.is_some();
            match state {
                State::Up => contact.has_told && (wait_for_each_other || !needs_quorum),
                state => *state == State::Unreachable && !needs_quorum,
            }
        });
        // Others may not serve either before this broker does.
        if knows_all && now < self.heard_until(now, |_| true) {
            self.is_joining = false;
        }
        !self.is_joining
    }

    /// Finds out whether this broker should give up its place.
    pub(super) fn look_at_oneself(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        let patience = self.timing.patience;
        if self.is_joining || self.has_quorum(now) {
            self.without_quorum_since = None;
        } else if now.since(*self.without_quorum_since.get_or_insert(now)) >= patience {
            events.push(Event::Isolated);
            return;
        }
        if self.is_joining || !self.needs_quorum(now) {
            return;
        }
        let is_heard_by_others = |name: &str, incarnation: u64| {
            self.up().any(|(_, witness)| witness.says(name, incarnation, Verdict::Up))
        };
        let estranged = self.counted().find(|(name, member)| {
            let is_lost = member.contact.lost_since.is_some_and(|it| now.since(it) >= patience);
            is_lost
                && self.me.name > **name
                && is_heard_by_others(name, member.identity.incarnation)
        });
        if let Some((name, _)) = estranged {
            events.push(Event::Estranged(name.clone()));
        }
    }
}
