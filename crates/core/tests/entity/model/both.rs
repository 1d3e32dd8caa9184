//! The entity beside the model: each command is given to both, and both must answer the same.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Delivery, Entity, Entry, Incoming, LockToken, Mode, Part, Properties, ReceiverId,
    Refusal, Sent, State,
};
use barid_core::time::WallTime;

use super::op::{Back, How, Op, Slot};
use super::reference::{Delivered, Kept, Model};
use super::{LOCK, MAX_DELIVERIES, SLOTS, TIME_TO_LIVE, WINDOW, id};
use crate::store::{Heard, Store};

pub struct Both {
    entity: Entity,
    fx: Heard,
    model: Model,
    slots: [Option<u64>; SLOTS as usize],
    receivers: u64,
    uids: u64,
    /// All deliveries of the history.
    deliveries: Vec<(LockToken, Delivered)>,
    /// The message that has or had each number.
    numbers: BTreeMap<(Part, u64), u64>,
    durable: (Store, Kept),
    /// Receivers that took less than they wanted, until they are told that there are more messages.
    hungry: BTreeSet<u64>,
    /// Receivers that were told and have not taken yet.
    told: BTreeSet<u64>,
    processes: u64,
}

impl Both {
    pub fn new(sessionful: bool, dead_letters_expired: bool) -> Self {
        let mut entity = Entity::new(properties(sessionful, dead_letters_expired), 0);
        let mut fx = Heard::default();
        entity.start(&mut fx);
        Self {
            durable: (fx.store.clone(), Kept::default()),
            entity,
            fx,
            model: Model::new(sessionful, dead_letters_expired),
            slots: [None; SLOTS as usize],
            receivers: 0,
            uids: 0,
            deliveries: Vec::new(),
            numbers: BTreeMap::new(),
            hungry: BTreeSet::new(),
            told: BTreeSet::new(),
            processes: 0,
        }
    }

    pub fn run(&mut self, op: Op) {
        match op {
            Op::Send { session, ttl, delay, id } => self.send(session, ttl, delay, id),
            Op::Accept { slot, session, wait, delete } => self.accept(slot, session, wait, delete),
            Op::Open { slot, part, delete } => self.open(slot, part, delete),
            Op::Take(slot, max) => self.take(slot, max),
            Op::Settle(back, how) => self.settle(back, how),
            Op::Deferred { slot, part, picks, delete } => {
                self.receive_deferred(slot, part, &picks, delete);
            }
            Op::RenewSession(slot) => self.renew_session(slot),
            Op::RenewMessage(back) => self.renew_message(back),
            Op::Close(slot) => self.close(slot),
            Op::SetState(slot, len) => self.set_state(slot, len),
            Op::Cancel(picks) => self.cancel(&picks),
            Op::DeadLetterIncoming(session, part) => self.dead_letter_incoming(session, part),
            Op::Resubmit(part, picks) => self.resubmit(part, &picks),
            Op::Later(millis) => self.model.now += millis,
            Op::OnTime => self.on_time(),
            Op::Purge(part) => {
                let purged = self.entity.purge(part, &mut self.fx);
                assert_eq!(purged, self.model.purge(part) as u64);
            }
            Op::KeepInMemory(keeps) => self.fx.keeps_in_memory = keeps,
            Op::Commit => self.durable = (self.fx.store.clone(), self.model.kept.clone()),
            Op::Crash => {
                (self.fx.store, self.model.kept) = self.durable.clone();
                self.start();
            }
            Op::Restart => {
                self.entity.note_numbers(&mut self.fx);
                self.start();
            }
        }
    }

    fn start(&mut self) {
        self.processes += 1;
        let properties = self.entity.properties().clone();
        self.entity = self.fx.recover(properties, self.processes << 32);
        // As `Entity::start` requires, nothing is delivered before this is durable.
        self.model.forget_locks();
        self.durable = (self.fx.store.clone(), self.model.kept.clone());
        self.slots = [None; SLOTS as usize];
        self.fx.told.clear();
        self.model.told.clear();
        self.hungry.clear();
        self.told.clear();
    }

    fn send(&mut self, session: u8, ttl: Option<u8>, delay: Option<u8>, known_as: Option<u8>) {
        let (uid, mut message) = self.incoming(session);
        message.time_to_live = ttl.map(|ttl| Duration::from_millis(u64::from(ttl)));
        message.scheduled_at = delay.map(|delay| self.after(delay));
        message.message_id = known_as.map(|id| Arc::from(format!("m{id}")));
        let sent = self.entity.send(message, self.now(), &mut self.fx).unwrap();
        let in_memory = self.fx.keeps_in_memory;
        let state = self.model.send((uid, session), ttl, delay, known_as, in_memory);
        assert!(matches!(
            (sent, state),
            (Sent::Duplicate, None)
                | (Sent::Enqueued(_), Some(State::Active))
                | (Sent::Scheduled(_), Some(State::Scheduled { .. }))
        ));
    }

    fn dead_letter_incoming(&mut self, session: u8, part: Part) {
        let (uid, message) = self.incoming(session);
        let now = self.now();
        let kept = self.entity.dead_letter_incoming(part, message, "r", "d", now, &mut self.fx);
        assert_eq!(kept, Ok(()));
        self.model.dead_letter_incoming(part, uid, session, self.fx.keeps_in_memory);
    }

    fn accept(&mut self, slot: Slot, session: Option<u8>, wait: u8, delete: bool) {
        let receiver = self.new_receiver(slot);
        let until = self.after(wait);
        let next = Accept::Next { until };
        let accept = session.map_or(next, |session| Accept::Session(id(session)));
        let now = self.now();
        let accepted =
            self.entity.accept(ReceiverId(receiver), mode(delete), accept, now, &mut self.fx);
        assert_eq!(accepted, self.model.accept(receiver, session, until, delete));
    }

    fn open(&mut self, slot: Slot, part: Part, delete: bool) {
        let receiver = self.new_receiver(slot);
        let opened = self.entity.open(ReceiverId(receiver), part, mode(delete));
        assert_eq!(opened, self.model.open(receiver, part, delete));
    }

    fn take(&mut self, slot: Slot, max: usize) {
        let Some(receiver) = self.in_slot(slot) else { return };
        let mut got = Vec::new();
        let now = self.now();
        let taken = self.entity.take(ReceiverId(receiver), max, now, &mut self.fx, &mut got);
        let expected = self.model.take(receiver, max);
        if expected.is_ok() {
            self.told.remove(&receiver);
            self.hungry.remove(&receiver);
            if got.len() < max {
                self.hungry.insert(receiver);
            }
        }
        self.check_deliveries(taken, &got, expected);
    }

    fn receive_deferred(&mut self, slot: Slot, part: Part, picks: &[u8], delete: bool) {
        let Some(receiver) = self.in_slot(slot) else { return };
        let mut picked = self.pick(part, picks, |entry| entry.state == State::Deferred);
        let numbers: Vec<_> = picked.iter().map(|(number, _)| *number).collect();
        let mut got = Vec::new();
        let now = self.now();
        let received = self.entity.receive_deferred(
            part,
            Some(ReceiverId(receiver)),
            &numbers,
            mode(delete),
            now,
            &mut self.fx,
            &mut got,
        );
        picked.sort_unstable();
        picked.dedup();
        let uids: Vec<_> = picked.into_iter().map(|(_, uid)| uid).collect();
        let expected = self.model.receive_deferred(receiver, part, &uids, delete);
        self.check_deliveries(received, &got, expected);
    }

    fn check_deliveries(
        &mut self,
        answer: Result<(), Refusal>,
        got: &[Delivery],
        expected: Result<Vec<Delivered>, Refusal>,
    ) {
        assert_eq!(answer, expected.as_ref().map(|_| ()).map_err(Clone::clone));
        let expected = expected.unwrap_or_default();
        let seen: Vec<_> =
            got.iter().map(|one| (self.uid_of(&one.entry), one.entry.delivery_count)).collect();
        let should: Vec<_> = expected.iter().map(|one| (one.uid, one.count)).collect();
        assert_eq!(seen, should);
        for (delivery, expected) in got.iter().zip(expected) {
            if let Some(lock) = expected.lock {
                assert_eq!(delivery.locked_until.as_millis(), self.model.locked_until(lock));
            }
            self.deliveries.push((delivery.token, expected));
        }
    }

    fn settle(&mut self, back: Back, how: How) {
        let Some((token, delivered)) = self.delivery(back) else { return };
        let now = self.now();
        let settled = self.entity.settle(delivered.part, token, how.outcome(), now, &mut self.fx);
        assert_eq!(settled, self.model.settle(delivered, how));
    }

    fn renew_session(&mut self, slot: Slot) {
        let Some(receiver) = self.in_slot(slot) else { return };
        let now = self.now();
        let renewed = self.entity.renew_session(ReceiverId(receiver), now, &mut self.fx);
        assert_eq!(renewed, self.model.renew_session(receiver));
    }

    fn renew_message(&mut self, back: Back) {
        let Some((token, delivered)) = self.delivery(back) else { return };
        let now = self.now();
        let renewed = self.entity.renew_message(delivered.part, token, now, &mut self.fx);
        assert_eq!(renewed, self.model.renew_message(delivered));
    }

    fn close(&mut self, slot: Slot) {
        let Some(receiver) = self.slots[usize::from(slot)].take() else { return };
        self.entity.close(ReceiverId(receiver), self.now(), &mut self.fx);
        self.hungry.remove(&receiver);
        self.told.remove(&receiver);
        self.model.close(receiver);
    }

    fn set_state(&mut self, slot: Slot, len: Option<u8>) {
        let Some(receiver) = self.in_slot(slot) else { return };
        let state = len.map(|len| Arc::from(vec![len; usize::from(len)]));
        let now = self.now();
        let set = self.entity.set_state(ReceiverId(receiver), state, now, &mut self.fx);
        assert_eq!(set, self.model.set_state(receiver, len));
    }

    fn cancel(&mut self, picks: &[u8]) {
        let is_scheduled = |one: &Entry| matches!(one.state, State::Scheduled { .. });
        let picked = self.pick(Part::Main, picks, is_scheduled);
        let (numbers, uids): (Vec<_>, Vec<_>) = picked.into_iter().unzip();
        let cancelled = self.entity.cancel_scheduled(&numbers, &mut self.fx);
        assert_eq!(cancelled, self.model.cancel(&uids));
    }

    fn resubmit(&mut self, part: Part, picks: &[u8]) {
        // One after the other: a message that has expired is a dead letter again at once, with another number.
        for pick in picks {
            let picked = self.pick(part, &[*pick], |_| true);
            let Some((number, uid)) = picked.into_iter().next() else { continue };
            let now = self.now();
            let resubmitted = self.entity.resubmit(part, number, now, &mut self.fx).map(drop);
            assert_eq!(resubmitted, self.model.resubmit(part, uid));
        }
    }

    fn on_time(&mut self) {
        let now = self.now();
        self.entity.on_time(now, &mut self.fx);
        self.model.on_time();
        assert!(self.entity.due().is_none_or(|due| due > now));
    }

    fn now(&self) -> WallTime {
        self.after(0)
    }

    fn after(&self, millis: u8) -> WallTime {
        WallTime::from_millis(self.model.now + u64::from(millis))
    }

    fn incoming(&mut self, session: u8) -> (u64, Incoming) {
        self.uids += 1;
        let message = Incoming {
            session: Some(id(session)),
            message_id: None,
            time_to_live: None,
            scheduled_at: None,
            bytes: Arc::from(self.uids.to_be_bytes()),
            overlay: None,
        };
        (self.uids, message)
    }

    fn uid_of(&self, entry: &Entry) -> u64 {
        u64::from_be_bytes((*self.fx.bytes_of(entry)).try_into().unwrap())
    }

    /// Creates a receiver in a slot, in place of the one before.
    fn new_receiver(&mut self, slot: Slot) -> u64 {
        self.close(slot);
        self.receivers += 1;
        self.slots[usize::from(slot)] = Some(self.receivers);
        self.receivers
    }

    fn in_slot(&self, slot: Slot) -> Option<u64> {
        self.slots[usize::from(slot)]
    }

    fn delivery(&self, back: Back) -> Option<(LockToken, Delivered)> {
        self.deliveries.iter().rev().nth(usize::from(back)).copied()
    }

    /// Chooses messages with their numbers, most of them among those that are `wanted`.
    fn pick(&self, part: Part, picks: &[u8], wanted: impl Fn(&Entry) -> bool) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        self.entity.peek(part, 0, usize::MAX, None, |entry| {
            entries.push((entry.number, self.uid_of(entry), wanted(entry)));
            true
        });
        let at = |pick: &u8| {
            let all = pick.is_multiple_of(5);
            let mut entries = entries.iter().rev().filter(|(.., wanted)| all || *wanted);
            entries.nth(usize::from(pick / 5)).map(|(number, uid, _)| (*number, *uid))
        };
        picks.iter().map(|back| at(back).unwrap_or((u64::MAX, u64::MAX))).collect()
    }
}

fn properties(sessionful: bool, dead_letters_expired: bool) -> Properties {
    Properties {
        requires_session: sessionful,
        lock_duration: Duration::from_millis(LOCK),
        max_delivery_count: MAX_DELIVERIES,
        default_time_to_live: Some(Duration::from_millis(u64::from(TIME_TO_LIVE))),
        dead_lettering_on_expiration: dead_letters_expired,
        duplicate_detection: Some(Duration::from_millis(WINDOW)),
        max_messages: usize::MAX,
        max_bytes: usize::MAX,
        max_message_size: 1_000,
        max_sessions: usize::MAX,
    }
}

fn mode(delete: bool) -> Mode {
    if delete { Mode::ReceiveAndDelete } else { Mode::PeekLock }
}
