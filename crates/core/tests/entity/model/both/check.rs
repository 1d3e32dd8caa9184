//! Conditions that must hold for both after each step.

use std::collections::{BTreeMap, BTreeSet};

use barid_core::entity::{Body, Entry, Part, State};
use barid_core::time::WallTime;

use super::super::reference::Message;
use super::super::{SESSIONS, id, name};
use super::Both;
use crate::store::Told;

impl Both {
    /// Checks that the entity and the stored records agree with the model.
    pub fn check(&mut self) {
        self.check_told();
        let mut stored = BTreeMap::new();
        for part in Part::ALL {
            let mut entries = Vec::new();
            self.entity.peek(part, 0, usize::MAX, None, |entry| {
                entries.push(entry.clone());
                true
            });
            assert!(entries.is_sorted_by_key(|entry| entry.number));
            let seen: Vec<_> = entries
                .iter()
                .map(|one| (self.uid_of(one), one.session.clone(), one.delivery_count, one.state))
                .collect();
            let should: Vec<_> = self
                .model
                .part(part)
                .iter()
                .map(|one| (one.uid, Some(id(one.session)), one.count, one.state))
                .collect();
            assert_eq!(seen, should, "{part:?}");
            for entry in entries {
                let uid = self.uid_of(&entry);
                let had = *self.numbers.entry((part, entry.number)).or_insert(uid);
                assert_eq!(had, uid, "number {} of {part:?} was given twice", entry.number);
                let body = Body { bytes: None, ..entry.body.clone() };
                stored.insert((part, entry.number), Entry { body, ..entry });
            }
        }
        assert_eq!(stored, self.fx.store.entries);
        assert_eq!(stored.len(), self.fx.store.bodies.len());
        self.check_counts();
        if self.model.sessionful {
            self.check_sessions();
        }
        let known: BTreeMap<u8, u64> = self
            .fx
            .store
            .seen
            .iter()
            .map(|(id, until)| (id[1..].parse().unwrap(), until.as_millis()))
            .collect();
        assert_eq!(known, self.model.kept.seen);
    }

    /// Checks what receivers were told, and notes those that were told that there are messages.
    fn check_told(&mut self) {
        let told = std::mem::take(&mut self.fx.told);
        let (ready, rest): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|told| matches!(told, Told::Ready(_)));
        assert_eq!(rest, std::mem::take(&mut self.model.told));
        for told in rest {
            if let Told::TimedOut(receiver) | Told::LockLost(receiver) = told {
                self.hungry.remove(&receiver.0);
                self.told.remove(&receiver.0);
            }
        }
        for told in ready {
            let Told::Ready(receiver) = told else { unreachable!("partitioned") };
            let was_hungry = self.hungry.remove(&receiver.0);
            let is_here = self.slots.contains(&Some(receiver.0));
            let is_plain = self.model.plain.contains_key(&receiver.0);
            let holds = self.model.holder(receiver.0).is_some();
            // The receiver may have lost its lock at the same moment.
            if is_here && (is_plain || holds) {
                assert!(was_hungry, "told without being hungry: {receiver:?}");
                self.told.insert(receiver.0);
            }
        }
        self.check_nobody_starves();
    }

    /// Checks that no receiver that wants more messages is left untold while there are messages for
    /// it.
    fn check_nobody_starves(&self) {
        for receiver in &self.hungry {
            if let Some(holder) = self.model.holder(*receiver) {
                let waits = |one: &Message| one.waits() && one.session == holder.session;
                assert!(!self.model.part(Part::Main).iter().any(waits), "{receiver} starves");
            }
            if let Some(plain) = self.model.plain.get(receiver) {
                let waits = self.model.part(plain.part).iter().any(Message::waits);
                let of_part = |other: &u64| {
                    self.model.plain.get(other).is_some_and(|other| other.part == plain.part)
                };
                assert!(!waits || self.told.iter().any(of_part), "{receiver} starves");
            }
        }
    }

    fn check_counts(&self) {
        let counts = self.entity.counts();
        let main = self.model.part(Part::Main);
        let count = |of: &dyn Fn(&Message) -> bool| main.iter().filter(|one| of(one)).count();
        assert_eq!(counts.active, count(&Message::waits));
        let is_locked = |one: &Message| one.state == State::Active && one.lock.is_some();
        assert_eq!(counts.locked, count(&is_locked));
        assert_eq!(counts.deferred, count(&|one| one.state == State::Deferred));
        assert_eq!(counts.scheduled, count(&Message::is_scheduled));
        assert_eq!(counts.dead_lettered, self.model.part(Part::DeadLetter).len());
        assert_eq!(counts.transfer_dead_lettered, self.model.part(Part::TransferDeadLetter).len());
        let all = self.model.kept.parts.iter().flatten();
        let states: usize = self.model.kept.states.values().map(|(len, _)| usize::from(*len)).sum();
        assert_eq!(counts.bytes, 8 * all.clone().count() + states);
        assert_eq!(self.fx.memory, 8 * all.filter(|one| one.in_memory).count() + states);
        assert_eq!(self.fx.memory, self.entity.bytes_in_memory());
    }

    fn check_sessions(&self) {
        let (mut exist, mut listed) = (0, BTreeSet::new());
        for session in 0..SESSIONS {
            let main = || self.model.part(Part::Main).iter().filter(|one| one.session == session);
            let state = self.model.kept.states.get(&session);
            let holder = self.model.holders.iter().find(|holder| holder.session == session);
            let expected = state.map(|(len, _)| vec![*len; usize::from(*len)]);
            assert_eq!(self.entity.state(&name(session)).map(|bytes| bytes.to_vec()), expected);
            let exists = main().next().is_some() || state.is_some() || holder.is_some();
            exist += usize::from(exists);
            let is_active = |one: &Message| one.state == State::Active || one.lock.is_some();
            if state.is_some() || main().any(is_active) {
                listed.insert(name(session));
            }
            let mut peeked = Vec::new();
            self.entity.peek(Part::Main, 0, 100, Some(&name(session)), |entry| {
                peeked.push(self.uid_of(entry));
                true
            });
            assert_eq!(peeked, main().map(|message| message.uid).collect::<Vec<_>>());
            let details = self.entity.session_details(&name(session));
            assert_eq!(details.is_some(), exists);
            let Some(details) = details else { continue };
            assert_eq!(details.active, main().filter(|one| one.waits()).count());
            assert_eq!(details.locked, main().filter(|one| one.lock.is_some()).count());
            let is_aside = |one: &&Message| one.state != State::Active;
            assert_eq!(details.set_aside, main().filter(is_aside).count());
            let until = holder.map(|holder| WallTime::from_millis(holder.until));
            assert_eq!(details.locked_until, until);
        }
        assert_eq!(self.entity.counts().sessions, exist);
        let sessions = self.entity.sessions(None, 0, usize::MAX);
        let sessions: BTreeSet<_> = sessions.iter().map(|id| id.to_string()).collect();
        assert_eq!(sessions, listed);
        let mut updated: Vec<_> =
            self.model.kept.states.iter().map(|(session, (_, at))| (*at, name(*session))).collect();
        updated.sort();
        let updated: Vec<_> = updated.into_iter().map(|(_, session)| session).collect();
        let listed = self.entity.sessions(Some(WallTime::from_millis(0)), 0, usize::MAX);
        assert_eq!(listed.iter().map(|id| id.to_string()).collect::<Vec<_>>(), updated);
    }
}
