//! Who is down, and when what waits for it is given up.
//!
//! A broker that is held down because it was silent may be there all the same. It must hear of that before it serves again. So
//! nothing is given up before more than half of the brokers know that it is down: it cannot have the quorum without one of them.

use barid_core::time::MonoTime;

use super::{Event, Member, Members, State};
use crate::heartbeat::{Seen, Verdict};

impl Members {
    /// Finds those that are down.
    pub(super) fn conclude(&mut self, now: MonoTime, events: &mut Vec<Event>) {
        let brokers = self.brokers(now);
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
                // One that holds it down has its reasons.
                is_held_down |= *verdict == Verdict::Down;
            }
            let is_missed = brokers > 2 && missing * 2 > brokers;
            let has_ended = has_begun_anew || gone >= self.counted().count().min(2);
            if has_ended || is_held_down || is_missed {
                down.push((name.clone(), has_ended));
            }
        }
        for (name, has_ended) in down {
            self.is_down(now, &name, has_ended, events);
        }
    }

    /// A broker is down. `has_ended`: it cannot go on in this life.
    pub(super) fn is_down(
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
        let (brokers, needs_quorum) = (self.brokers(now), self.needs_quorum(now));
        let is_known = |(name, member): &(&String, &Member)| {
            let Some(from) = member.held_down_from else { return false };
            let knows = |(_, witness): &(&String, &Member)| {
                let is_it = |seen: &Seen| seen.is(member.identity.incarnation, Verdict::Down);
                let says_so = witness.seen.get(*name).is_some_and(is_it);
                witness.counts && (says_so || witness.contact.has_heard_number >= from)
            };
            // This broker is one of them.
            let knowing = self.counted().filter(knows).count() + 1;
            !needs_quorum || knowing * 2 > brokers
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
