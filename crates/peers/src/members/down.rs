//! Brokers that are down, and when what waits for them is given up.
//!
//! A broker that is held down because it was silent may still run, and must hear of that before it serves again. So what waits
//! for it is not given up before more than half of the brokers know that it is down: without one of these it has no quorum.

use barid_core::time::MonoTime;

use super::{Event, Member, Members, State};
use crate::heartbeat::{Seen, Verdict};

impl Members {
    /// Finds those that are down.
    pub(super) fn conclude(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        let (brokers, needs_quorum) = (self.brokers(now), self.needs_quorum(now));
        let mut down = Vec::new();
        let is_in_question =
            |member: &Member| member.state == State::Unreachable || member.held_down_from.is_some();
        for (name, member) in self.others.iter().filter(|(_, member)| is_in_question(member)) {
            let mut missing = 1;
            let mut gone = usize::from(member.is_refused);
            let (mut is_held_down, mut has_begun_anew) = (false, false);
            for (_, witness) in self.up() {
                let seen = witness.seen.get(name);
                let Some(Seen { incarnation, verdict, .. }) = seen else { continue };
                // Its former life has ended before the next one began.
                has_begun_anew |= *incarnation > member.identity.incarnation;
                if *incarnation != member.identity.incarnation {
                    continue;
                }
                missing += usize::from(witness.counts && *verdict != Verdict::Up);
                gone += usize::from(*verdict == Verdict::Gone);
                // Down is for good.
                is_held_down |= *verdict == Verdict::Down;
            }
            let is_missed = brokers > 2 && missing * 2 > brokers;
            let others = self.counted().filter(|(other, _)| *other != name).count();
            // With the quorum there is always a second one that can say so.
            let has_ended = has_begun_anew || gone > if needs_quorum { 1 } else { others.min(1) };
            if has_ended || is_held_down || is_missed {
                down.push((name.clone(), has_ended));
            }
        }
        for (name, has_ended) in down {
            self.hold_down(now, &name, has_ended, events);
        }
    }

    /// Holds a broker to be down. `has_ended`: its process has ended, or has begun a new life.
    pub(super) fn hold_down(
        &mut self,
        now: MonoTime,
        name: &str,
        has_ended: bool,
        events: &mut Vec<Event>,
    ) {
        let next = self.sent + 1;
        let Some(member) = self.others.get_mut(name) else { return };
        if member.state.is_in_cluster() {
            (member.state, member.since) = (State::Down, now);
            member.held_down_from = Some(next);
            self.lose_witness(name);
        }
        if has_ended {
            self.give_up_one(name, events);
        }
    }

    /// Gives up what waits for those of whom enough others know that they are down.
    pub(super) fn give_up(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        let brokers = self.brokers(now);
        let is_known = |(name, member): &(&String, &Member)| {
            let Some(from) = member.held_down_from else { return false };
            let knows = |(_, witness): &(&String, &Member)| {
                // A broker that has not met it in this life would not remember.
                let seen = witness.seen.get(*name);
                let seen = seen.filter(|seen| seen.incarnation == member.identity.incarnation);
                let has_heard = witness.contact.has_heard_number >= from;
                witness.counts && seen.is_some_and(|it| it.verdict == Verdict::Down || has_heard)
            };
            // This broker is one of them. Of two, the other one has to begin a new life first.
            let knowing = self.counted().filter(knows).count() + 1;
            knowing * 2 > brokers
        };
        let known: Vec<_> =
            self.others.iter().filter(is_known).map(|(name, _)| name.clone()).collect();
        for name in known {
            self.give_up_one(&name, events);
        }
    }

    fn give_up_one(&mut self, name: &str, events: &mut Vec<Event>) {
        let member = self.others.get_mut(name);
        if member.is_some_and(|member| member.held_down_from.take().is_some()) {
            events.push(Event::Down(name.to_owned()));
        }
    }
}
