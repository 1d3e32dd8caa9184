//! Random histories, crashes included, against a model that is simple and slow: lists that are searched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Accepted, Delivery, Entity, Entry, Incoming, LockToken, Mode, Outcome, Part,
    Properties, ReceiverId, Refusal, Sent, State,
};
use barid_core::time::Timestamp;
use proptest::prelude::*;

use super::store::{Heard, Store, Told};

const LOCK: u64 = 20;
const WINDOW: u64 = 30;
const MAX_DELIVERIES: u32 = 2;
const SESSIONS: u8 = 3;
const SLOTS: u8 = 4;

/// What is done next. Receivers are known by slots, tokens and messages by how long ago they were.
#[derive(Clone, Debug)]
enum Op {
    Send {
        session: u8,
        ttl: Option<u8>,
        delay: Option<u8>,
        id: Option<u8>,
    },
    Accept {
        slot: u8,
        session: Option<u8>,
        wait: u8,
        delete: bool,
    },
    Open {
        slot: u8,
        part: Part,
        delete: bool,
    },
    Take {
        slot: u8,
        max: u8,
    },
    Settle {
        back: u8,
        how: How,
    },
    Deferred {
        slot: u8,
        part: Part,
        picks: Vec<u8>,
        delete: bool,
    },
    RenewSession {
        slot: u8,
    },
    RenewMessage {
        back: u8,
    },
    Close {
        slot: u8,
    },
    SetState {
        slot: u8,
        len: Option<u8>,
    },
    Cancel {
        picks: Vec<u8>,
    },
    DeadLetterIncoming {
        session: u8,
        transfer: bool,
    },
    Later {
        millis: u8,
    },
    OnTime,
    Purge {
        part: Part,
    },
    KeepInMemory(bool),
    /// All that was noted is durable.
    Commit,
    /// All that was noted since then is lost, and so are the locks.
    Crash,
    /// The process ends as it should.
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

/// A message, known by the number in its bytes.
#[derive(Clone, Debug)]
struct Message {
    uid: u64,
    session: u8,
    count: u32,
    state: State,
    expires_at: Option<u64>,
    in_memory: bool,
    lock: Option<Lock>,
}

/// Who has a message: under which lock, until when if that is its own.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lock {
    instance: u64,
    until: Option<u64>,
}

#[derive(Clone, Debug)]
struct Holder {
    receiver: u64,
    session: u8,
    until: u64,
    instance: u64,
    delete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    receiver: u64,
    until: u64,
    delete: bool,
}

#[derive(Clone, Copy, Debug)]
struct PlainReceiver {
    part: Part,
    delete: bool,
}

/// What survives a crash.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// The messages of each part, in the order of their numbers.
    parts: [Vec<Message>; 3],
    states: BTreeMap<u8, (u8, u64)>,
    seen: BTreeMap<u8, u64>,
}

struct Model {
    sessionful: bool,
    dead_letters_expired: bool,
    kept: Kept,
    holders: Vec<Holder>,
    waiting: Vec<Waiter>,
    plain: BTreeMap<u64, PlainReceiver>,
    instances: u64,
    /// What receivers of sessions should have been told.
    told: Vec<Told>,
    now: u64,
}

impl Model {
    fn main(&mut self) -> &mut Vec<Message> {
        &mut self.kept.parts[0]
    }

    fn position(&self, part: Part, uid: u64) -> Option<usize> {
        self.kept.parts[part as usize].iter().position(|message| message.uid == uid)
    }

    fn holder(&self, receiver: u64) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.receiver == receiver)
    }

    fn new_instance(&mut self) -> u64 {
        self.instances += 1;
        self.instances
    }

    fn dead_letter(&mut self, mut message: Message) {
        message.state = State::Active;
        message.lock = None;
        self.kept.parts[1].push(message);
    }

    fn expire(&mut self, position: usize) {
        let message = self.main().remove(position);
        if self.dead_letters_expired {
            self.dead_letter(message);
        }
    }

    fn fail(&mut self, part: Part, position: usize) {
        let message = &mut self.kept.parts[part as usize][position];
        message.count += 1;
        message.lock = None;
        if part == Part::Main && message.count >= MAX_DELIVERIES {
            let message = self.main().remove(position);
            self.dead_letter(message);
        }
    }

    fn waits(message: &Message) -> bool {
        message.state == State::Active && message.lock.is_none()
    }

    /// All that waits in a session goes if one of it has expired.
    fn expire_session(&mut self, session: u8) {
        let now = self.now;
        let waits = |message: &Message| message.session == session && Self::waits(message);
        let expired = |message: &Message| message.expires_at.is_some_and(|at| at <= now);
        if self.main().iter().any(|message| waits(message) && expired(message)) {
            while let Some(position) = self.main().iter().position(waits) {
                self.expire(position);
            }
        }
    }

    fn hold(&mut self, receiver: u64, session: u8, delete: bool) {
        let (instance, until) = (self.new_instance(), self.now + LOCK);
        self.holders.push(Holder { receiver, session, until, instance, delete });
    }

    fn next_session(&mut self) -> Option<u8> {
        loop {
            let held: Vec<_> = self.holders.iter().map(|holder| holder.session).collect();
            let is_next =
                |message: &&Message| Self::waits(message) && !held.contains(&message.session);
            let (uid, session) =
                self.kept.parts[0].iter().find(is_next).map(|one| (one.uid, one.session))?;
            self.expire_session(session);
            if self.position(Part::Main, uid).is_some() {
                return Some(session);
            }
        }
    }

    fn grant(&mut self) {
        while !self.waiting.is_empty() && self.sessionful {
            let Some(session) = self.next_session() else { return };
            let waiter = self.waiting.remove(0);
            self.hold(waiter.receiver, session, waiter.delete);
            let until = Timestamp::from_millis(self.now + LOCK);
            self.told.push(Told::Granted(ReceiverId(waiter.receiver), name(session), until));
        }
    }

    fn free(&mut self, receiver: u64, failed: bool) {
        let position = self.holders.iter().position(|holder| holder.receiver == receiver);
        let holder = self.holders.remove(position.unwrap());
        let uids: Vec<_> = self
            .main()
            .iter()
            .filter(|message| message.lock.is_some_and(|lock| lock.instance == holder.instance))
            .map(|message| message.uid)
            .collect();
        for uid in uids {
            let position = self.position(Part::Main, uid).unwrap();
            if failed {
                self.fail(Part::Main, position);
            } else {
                self.main()[position].lock = None;
            }
        }
    }

    fn end_locks(&mut self) {
        for part in Part::ALL {
            let mut ended: Vec<_> = self.kept.parts[part as usize]
                .iter()
                .enumerate()
                .filter_map(|(at, one)| Some((one.lock?.until?, at, one.uid)))
                .filter(|(until, ..)| *until <= self.now)
                .collect();
            ended.sort_unstable();
            for (_, _, uid) in ended {
                let position = self.position(part, uid).unwrap();
                self.fail(part, position);
            }
        }
        let mut ended: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| holder.until <= self.now)
            .map(|holder| (holder.until, holder.instance, holder.receiver))
            .collect();
        ended.sort_unstable();
        for (_, _, receiver) in &ended {
            self.free(*receiver, true);
            self.told.push(Told::LockLost(ReceiverId(*receiver)));
        }
        if !ended.is_empty() {
            self.grant();
        }
    }

    fn on_time(&mut self) {
        self.end_locks();
        let now = self.now;
        let mut due: Vec<_> = self
            .main()
            .iter()
            .enumerate()
            .filter_map(|(position, message)| match message.state {
                State::Scheduled { at } if at.as_millis() <= now => {
                    Some((at, position, message.uid))
                }
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (_, _, uid) in due {
            let position = self.position(Part::Main, uid).unwrap();
            let mut message = self.main().remove(position);
            message.state = State::Active;
            self.main().push(message);
        }
        self.grant();
        let mut timed_out: Vec<_> =
            self.waiting.iter().enumerate().filter(|(_, waiter)| waiter.until <= now).collect();
        timed_out.sort_by_key(|(position, waiter)| (waiter.until, *position));
        let timed_out: Vec<_> = timed_out.into_iter().map(|(_, waiter)| waiter.receiver).collect();
        for receiver in timed_out {
            self.waiting.retain(|waiter| waiter.receiver != receiver);
            self.told.push(Told::TimedOut(ReceiverId(receiver)));
        }
        if !self.sessionful {
            let mut expired: Vec<_> = self
                .main()
                .iter()
                .enumerate()
                .filter(|(_, message)| Self::waits(message))
                .filter_map(|(position, message)| {
                    Some((message.expires_at?, position, message.uid))
                })
                .filter(|(at, ..)| *at <= now)
                .collect();
            expired.sort_unstable();
            for (_, _, uid) in expired {
                let position = self.position(Part::Main, uid).unwrap();
                self.expire(position);
            }
        }
        self.kept.seen.retain(|_, until| *until > now);
    }

    /// Delivers a message: answers its count, and the lock if it is under one.
    fn deliver(&mut self, part: Part, uid: u64, delete: bool, lock: Lock) -> (u32, Option<Lock>) {
        let position = self.position(part, uid).unwrap();
        let messages = &mut self.kept.parts[part as usize];
        let count = messages[position].count;
        if delete && messages[position].in_memory {
            messages.remove(position);
            return (count, None);
        }
        assert_eq!(messages[position].lock, None, "never delivered twice at a time");
        messages[position].lock = Some(lock);
        (count, Some(lock))
    }

    fn forget_locks(&mut self) {
        for message in self.kept.parts.iter_mut().flatten() {
            message.lock = None;
            message.in_memory = false;
        }
        self.holders.clear();
        self.waiting.clear();
        self.plain.clear();
    }
}

fn name(session: u8) -> String {
    format!("s{session}")
}

fn id(session: u8) -> Arc<str> {
    Arc::from(name(session))
}

/// The entity beside the model.
struct Both {
    entity: Entity,
    fx: Heard,
    model: Model,
    slots: [Option<u64>; SLOTS as usize],
    receivers: u64,
    uids: u64,
    /// All deliveries there ever were: where, token, message, lock.
    deliveries: Vec<(Part, LockToken, u64, Option<Lock>)>,
    /// Which message ever had which number.
    numbers: BTreeMap<(Part, u64), u64>,
    durable: (Store, Kept),
    /// Receivers that took less than they wanted, until they are told that there is more.
    hungry: BTreeSet<u64>,
    /// Those that were told and have not taken yet.
    told: BTreeSet<u64>,
    processes: u64,
}

fn properties(sessionful: bool, dead_letters_expired: bool) -> Properties {
    Properties {
        requires_session: sessionful,
        lock_duration: Duration::from_millis(LOCK),
        max_delivery_count: MAX_DELIVERIES,
        default_time_to_live: Some(Duration::from_millis(200)),
        dead_lettering_on_expiration: dead_letters_expired,
        duplicate_detection: Some(Duration::from_millis(WINDOW)),
        max_messages: usize::MAX,
        max_bytes: usize::MAX,
        max_message_size: 1_000,
        max_sessions: usize::MAX,
    }
}

impl Both {
    fn new(sessionful: bool, dead_letters_expired: bool) -> Self {
        let mut entity = Entity::new(properties(sessionful, dead_letters_expired), 0);
        let mut fx = Heard::default();
        entity.start(&mut fx);
        let durable = (fx.store.clone(), Kept::default());
        Self {
            entity,
            fx,
            model: Model {
                sessionful,
                dead_letters_expired,
                kept: Kept::default(),
                holders: Vec::new(),
                waiting: Vec::new(),
                plain: BTreeMap::new(),
                instances: 0,
                told: Vec::new(),
                now: 1_000,
            },
            slots: [None; SLOTS as usize],
            receivers: 0,
            uids: 0,
            deliveries: Vec::new(),
            numbers: BTreeMap::new(),
            durable,
            hungry: BTreeSet::new(),
            told: BTreeSet::new(),
            processes: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.model.now)
    }

    fn uid_of(&self, entry: &Entry) -> u64 {
        u64::from_be_bytes((*self.fx.bytes_of(entry)).try_into().unwrap())
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

    /// A new receiver in a slot, in the place of the one before.
    fn new_receiver(&mut self, slot: u8) -> u64 {
        self.close(slot);
        self.receivers += 1;
        self.slots[usize::from(slot)] = Some(self.receivers);
        self.receivers
    }

    fn close(&mut self, slot: u8) {
        let Some(receiver) = self.slots[usize::from(slot)].take() else { return };
        self.entity.close(ReceiverId(receiver), self.now(), &mut self.fx);
        self.hungry.remove(&receiver);
        self.told.remove(&receiver);
        self.model.end_locks();
        self.model.plain.remove(&receiver);
        self.model.waiting.retain(|waiter| waiter.receiver != receiver);
        if self.model.holder(receiver).is_some() {
            self.model.free(receiver, false);
            self.model.grant();
        }
    }

    fn check_deliveries(
        &mut self,
        part: Part,
        got: &[Delivery],
        expected: Vec<(u64, (u32, Option<Lock>))>,
    ) {
        let seen: Vec<_> =
            got.iter().map(|one| (self.uid_of(&one.entry), one.entry.delivery_count)).collect();
        let should: Vec<_> = expected.iter().map(|(uid, (count, _))| (*uid, *count)).collect();
        assert_eq!(seen, should);
        for (delivery, (uid, (_, lock))) in got.iter().zip(expected) {
            if let Some(lock) = lock {
                let until = lock.until.unwrap_or_else(|| {
                    let of = |one: &&Holder| one.instance == lock.instance;
                    self.model.holders.iter().find(of).unwrap().until
                });
                assert_eq!(delivery.locked_until.as_millis(), until);
            }
            self.deliveries.push((part, delivery.token, uid, lock));
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Send { session, ttl, delay, id } => {
                self.send(*session, *ttl, *delay, *id);
            }
            Op::Accept { slot, session, wait, delete } => {
                self.accept(*slot, *session, *wait, *delete);
            }
            Op::Open { slot, part, delete } => {
                let receiver = self.new_receiver(*slot);
                let opened = self.entity.open(ReceiverId(receiver), *part, mode(*delete));
                if self.model.sessionful && *part == Part::Main {
                    assert_eq!(opened, Err(Refusal::SessionsRequired));
                } else {
                    assert_eq!(opened, Ok(()));
                    let plain = PlainReceiver { part: *part, delete: *delete };
                    self.model.plain.insert(receiver, plain);
                }
            }
            Op::Take { slot, max } => self.take(*slot, usize::from(*max)),
            Op::Settle { back, how } => self.settle(*back, *how),
            Op::Deferred { slot, part, picks, delete } => {
                self.receive_deferred(*slot, *part, picks, *delete);
            }
            Op::RenewSession { slot } => {
                let Some(receiver) = self.slots[usize::from(*slot)] else { return };
                self.model.end_locks();
                let now = self.model.now;
                let mut holders = self.model.holders.iter_mut();
                let expected = match holders.find(|holder| holder.receiver == receiver) {
                    Some(holder) => {
                        holder.until = now + LOCK;
                        Ok(Timestamp::from_millis(now + LOCK))
                    }
                    None => Err(Refusal::SessionLockLost),
                };
                let now = self.now();
                let renewed = self.entity.renew_session(ReceiverId(receiver), now, &mut self.fx);
                assert_eq!(renewed, expected);
            }
            Op::RenewMessage { back } => {
                let Some((part, token, uid, lock)) = self.delivery(*back) else { return };
                self.model.end_locks();
                let now = self.now();
                let renewed = self.entity.renew_message(part, token, now, &mut self.fx);
                let position = self.model.position(part, uid);
                let message = position.map(|at| &mut self.model.kept.parts[part as usize][at]);
                match message {
                    Some(message)
                        if lock.is_some_and(|lock| {
                            lock.until.is_some()
                                && message.lock.map(|lock| lock.instance) == Some(lock.instance)
                        }) =>
                    {
                        let until = self.model.now + LOCK;
                        message.lock.as_mut().unwrap().until = Some(until);
                        assert_eq!(renewed, Ok(Timestamp::from_millis(until)));
                    }
                    _ => assert_eq!(renewed, Err(Refusal::MessageLockLost)),
                }
            }
            Op::Close { slot } => self.close(*slot),
            Op::SetState { slot, len } => self.set_state(*slot, *len),
            Op::Cancel { picks } => self.cancel(picks),
            Op::DeadLetterIncoming { session, transfer } => {
                let (uid, message) = self.incoming(*session);
                let part = if *transfer { Part::TransferDeadLetter } else { Part::DeadLetter };
                let now = self.now();
                let kept =
                    self.entity.dead_letter_incoming(part, message, "r", "d", now, &mut self.fx);
                assert_eq!(kept, Ok(()));
                self.model.kept.parts[part as usize].push(Message {
                    uid,
                    session: *session,
                    count: 0,
                    state: State::Active,
                    expires_at: None,
                    in_memory: self.fx.keeps_in_memory,
                    lock: None,
                });
            }
            Op::Later { millis } => self.model.now += u64::from(*millis),
            Op::OnTime => {
                let now = self.now();
                self.entity.on_time(now, &mut self.fx);
                self.model.on_time();
                assert!(self.entity.due().is_none_or(|due| due > now));
            }
            Op::Purge { part } => {
                let purged = self.entity.purge(*part, &mut self.fx);
                let messages = std::mem::take(&mut self.model.kept.parts[*part as usize]);
                assert_eq!(purged, messages.len() as u64);
            }
            Op::KeepInMemory(keeps) => self.fx.keeps_in_memory = *keeps,
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
        // As the entity says: nothing is delivered before this is durable.
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
        let now = self.model.now;
        message.time_to_live = ttl.map(|ttl| Duration::from_millis(u64::from(ttl)));
        message.scheduled_at = delay.map(|delay| Timestamp::from_millis(now + u64::from(delay)));
        message.message_id = known_as.map(|id| Arc::from(format!("m{id}")));
        let sent = self.entity.send(message, self.now(), &mut self.fx).unwrap();
        if let Some(id) = known_as {
            if self.model.kept.seen.get(&id).is_some_and(|until| *until > now) {
                assert_eq!(sent, Sent::Duplicate);
                return;
            }
            self.model.kept.seen.insert(id, now + WINDOW);
        }
        let at = now + u64::from(delay.unwrap_or(0));
        let is_scheduled = at > now;
        assert!(matches!(
            (sent, is_scheduled),
            (Sent::Enqueued(_), false) | (Sent::Scheduled(_), true)
        ));
        let scheduled = State::Scheduled { at: Timestamp::from_millis(at) };
        let in_memory = self.fx.keeps_in_memory;
        self.model.main().push(Message {
            uid,
            session,
            count: 0,
            state: if is_scheduled { scheduled } else { State::Active },
            expires_at: Some(at + u64::from(ttl.unwrap_or(200).min(200))),
            in_memory,
            lock: None,
        });
        if !is_scheduled {
            self.model.grant();
        }
    }

    fn accept(&mut self, slot: u8, session: Option<u8>, wait: u8, delete: bool) {
        let receiver = self.new_receiver(slot);
        let until = self.model.now + u64::from(wait);
        let accept = match session {
            Some(session) => Accept::Session(id(session)),
            None => Accept::Next { until: Timestamp::from_millis(until) },
        };
        let now = self.now();
        let accepted =
            self.entity.accept(ReceiverId(receiver), mode(delete), accept, now, &mut self.fx);
        self.model.end_locks();
        if !self.model.sessionful {
            assert_eq!(accepted, Err(Refusal::SessionsNotSupported));
            return;
        }
        let next = match session {
            Some(session) => {
                if self.model.holders.iter().any(|holder| holder.session == session) {
                    assert_eq!(accepted, Err(Refusal::SessionCannotBeLocked));
                    return;
                }
                self.model.expire_session(session);
                Some(session)
            }
            None => self.model.next_session(),
        };
        match next {
            Some(session) => {
                self.model.hold(receiver, session, delete);
                let locked_until = Timestamp::from_millis(self.model.now + LOCK);
                assert_eq!(accepted, Ok(Accepted::Now { session: id(session), locked_until }));
            }
            None => {
                self.model.waiting.push(Waiter { receiver, until, delete });
                assert_eq!(accepted, Ok(Accepted::Waiting));
            }
        }
    }

    fn take(&mut self, slot: u8, max: usize) {
        let Some(receiver) = self.slots[usize::from(slot)] else { return };
        let mut got = Vec::new();
        let now = self.now();
        let taken = self.entity.take(ReceiverId(receiver), max, now, &mut self.fx, &mut got);
        self.model.end_locks();
        let mut expected = Vec::new();
        let part = if let Some(plain) = self.model.plain.get(&receiver).copied() {
            while expected.len() < max {
                let messages = &self.model.kept.parts[plain.part as usize];
                let Some(position) = messages.iter().position(Model::waits) else { break };
                let message = &messages[position];
                let is_expired = message.expires_at.is_some_and(|at| at <= self.model.now);
                if plain.part == Part::Main && is_expired {
                    self.model.expire(position);
                    continue;
                }
                let uid = message.uid;
                let until = Some(self.model.now + LOCK);
                let lock = Lock { instance: self.model.new_instance(), until };
                expected.push((uid, self.model.deliver(plain.part, uid, plain.delete, lock)));
            }
            plain.part
        } else if let Some(holder) = self.model.holder(receiver).cloned() {
            self.model.expire_session(holder.session);
            while expected.len() < max {
                let mut messages = self.model.kept.parts[0].iter();
                let is_next =
                    |message: &&Message| Model::waits(message) && message.session == holder.session;
                let Some(uid) = messages.find(is_next).map(|message| message.uid) else { break };
                let lock = Lock { instance: holder.instance, until: None };
                expected.push((uid, self.model.deliver(Part::Main, uid, holder.delete, lock)));
            }
            Part::Main
        } else {
            assert_eq!(taken, Err(Refusal::SessionLockLost));
            return;
        };
        assert_eq!(taken, Ok(()));
        self.told.remove(&receiver);
        self.hungry.remove(&receiver);
        if expected.len() < max {
            self.hungry.insert(receiver);
        }
        self.check_deliveries(part, &got, expected);
    }

    fn delivery(&self, back: u8) -> Option<(Part, LockToken, u64, Option<Lock>)> {
        let at = self.deliveries.len().checked_sub(1 + usize::from(back))?;
        Some(self.deliveries[at])
    }

    fn settle(&mut self, back: u8, how: How) {
        let Some((part, token, uid, lock)) = self.delivery(back) else { return };
        let outcome = match how {
            How::Complete => Outcome::Complete,
            How::Abandon => Outcome::Abandon(Vec::new()),
            How::Defer => Outcome::Defer(Vec::new()),
            How::DeadLetter => {
                Outcome::DeadLetter { reason: None, description: None, changes: Vec::new() }
            }
            How::Release => Outcome::Release,
        };
        let settled = self.entity.settle(part, token, outcome, self.now(), &mut self.fx);
        self.model.end_locks();
        let position = self.model.position(part, uid);
        let message = position.map(|at| &mut self.model.kept.parts[part as usize][at]);
        let has_it = lock.is_some_and(|lock| {
            let now = message.as_ref().and_then(|message| message.lock);
            now.map(|lock| lock.instance) == Some(lock.instance)
        });
        if !has_it {
            let in_session = self.model.sessionful && part == Part::Main;
            let holds = lock.is_some_and(|lock| {
                self.model.holders.iter().any(|holder| holder.instance == lock.instance)
            });
            let why = match in_session && !holds {
                true => Refusal::SessionLockLost,
                false => Refusal::MessageLockLost,
            };
            assert_eq!(settled, Err(why));
            return;
        }
        let position = position.unwrap();
        if part != Part::Main && matches!(how, How::DeadLetter) {
            assert_eq!(settled, Err(Refusal::DeadLetteredAlready));
            return;
        }
        assert_eq!(settled, Ok(()));
        let messages = &mut self.model.kept.parts[part as usize];
        match how {
            How::Complete => _ = messages.remove(position),
            How::Abandon => self.model.fail(part, position),
            How::Release => messages[position].lock = None,
            How::Defer => {
                messages[position].lock = None;
                messages[position].state = State::Deferred;
            }
            How::DeadLetter => {
                let message = messages.remove(position);
                self.model.dead_letter(message);
            }
        }
    }

    /// Messages, most of them such as are `wanted`, by how far they are from the end of their part: with
    /// their numbers.
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

    fn receive_deferred(&mut self, slot: u8, part: Part, picks: &[u8], delete: bool) {
        let Some(receiver) = self.slots[usize::from(slot)] else { return };
        let mut picked = self.pick(part, picks, |entry| entry.state == State::Deferred);
        let (numbers, _): (Vec<_>, Vec<_>) = picked.iter().copied().unzip();
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
        self.model.end_locks();
        let in_session = self.model.sessionful && part == Part::Main;
        let holder = self.model.holder(receiver).cloned();
        if in_session && holder.is_none() {
            assert_eq!(received, Err(Refusal::SessionLockLost));
            return;
        }
        let holder = holder.filter(|_| in_session);
        picked.sort_unstable();
        picked.dedup();
        let is_there = |(_, uid): &(u64, u64)| {
            let Some(at) = self.model.position(part, *uid) else { return false };
            let message = &self.model.kept.parts[part as usize][at];
            message.state == State::Deferred
                && message.lock.is_none()
                && holder.as_ref().is_none_or(|holder| holder.session == message.session)
        };
        if !picked.iter().all(is_there) {
            assert_eq!(received, Err(Refusal::MessageNotFound));
            assert!(got.is_empty());
            return;
        }
        assert_eq!(received, Ok(()));
        let mut expected = Vec::new();
        for (_, uid) in picked {
            let lock = match &holder {
                Some(holder) => Lock { instance: holder.instance, until: None },
                None => {
                    let until = Some(self.model.now + LOCK);
                    Lock { instance: self.model.new_instance(), until }
                }
            };
            expected.push((uid, self.model.deliver(part, uid, delete, lock)));
        }
        self.check_deliveries(part, &got, expected);
    }

    fn set_state(&mut self, slot: u8, len: Option<u8>) {
        let Some(receiver) = self.slots[usize::from(slot)] else { return };
        let state = len.map(|len| Arc::from(vec![len; usize::from(len)]));
        let now = self.now();
        let set = self.entity.set_state(ReceiverId(receiver), state, now, &mut self.fx);
        self.model.end_locks();
        let Some(session) = self.model.holder(receiver).map(|holder| holder.session) else {
            assert_eq!(set, Err(Refusal::SessionLockLost));
            return;
        };
        assert_eq!(set, Ok(()));
        match len {
            Some(len) => _ = self.model.kept.states.insert(session, (len, self.model.now)),
            None => _ = self.model.kept.states.remove(&session),
        }
    }

    fn cancel(&mut self, picks: &[u8]) {
        let picked =
            self.pick(Part::Main, picks, |one| matches!(one.state, State::Scheduled { .. }));
        let (numbers, uids): (Vec<_>, Vec<_>) = picked.into_iter().unzip();
        let cancelled = self.entity.cancel_scheduled(&numbers, &mut self.fx);
        let is_scheduled = |uid: &u64| {
            let position = self.model.position(Part::Main, *uid);
            position.is_some_and(|at| {
                matches!(self.model.kept.parts[0][at].state, State::Scheduled { .. })
            })
        };
        if uids.iter().all(is_scheduled) {
            assert_eq!(cancelled, Ok(()));
            self.model.main().retain(|message| !uids.contains(&message.uid));
        } else {
            assert_eq!(cancelled, Err(Refusal::MessageNotFound));
        }
    }

    /// What receivers were told is what they should have been told; whoever is ready is noted.
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
            // It may have lost its lock in the same moment.
            if is_here && (is_plain || holds) {
                assert!(was_hungry, "told without being hungry: {receiver:?}");
                self.told.insert(receiver.0);
            }
        }
        self.check_nobody_starves();
    }

    /// Who wants more than there was does not wait beside messages.
    fn check_nobody_starves(&self) {
        for receiver in &self.hungry {
            if let Some(holder) = self.model.holder(*receiver) {
                let waits = |one: &Message| Model::waits(one) && one.session == holder.session;
                assert!(!self.model.kept.parts[0].iter().any(waits), "{receiver} starves");
            }
            if let Some(plain) = self.model.plain.get(receiver) {
                let waits = self.model.kept.parts[plain.part as usize].iter().any(Model::waits);
                let of_part = |other: &u64| {
                    self.model.plain.get(other).is_some_and(|other| other.part == plain.part)
                };
                assert!(!waits || self.told.iter().any(of_part), "{receiver} starves");
            }
        }
    }

    /// The entity is what the model is, and so is what was stored.
    fn check(&mut self) {
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
            let should: Vec<_> = self.model.kept.parts[part as usize]
                .iter()
                .map(|one| (one.uid, Some(id(one.session)), one.count, one.state))
                .collect();
            assert_eq!(seen, should, "{part:?}");
            for entry in entries {
                let uid = self.uid_of(&entry);
                let had = *self.numbers.entry((part, entry.number)).or_insert(uid);
                assert_eq!(had, uid, "number {} of {part:?} was given twice", entry.number);
                let body = barid_core::entity::Body { bytes: None, ..entry.body.clone() };
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

    fn check_counts(&self) {
        let counts = self.entity.counts();
        let main = &self.model.kept.parts[0];
        let count = |of: &dyn Fn(&Message) -> bool| main.iter().filter(|one| of(one)).count();
        assert_eq!(counts.active, count(&Model::waits));
        let is_locked = |one: &Message| one.state == State::Active && one.lock.is_some();
        assert_eq!(counts.locked, count(&is_locked));
        assert_eq!(counts.deferred, count(&|one| one.state == State::Deferred));
        let is_scheduled = |one: &Message| matches!(one.state, State::Scheduled { .. });
        assert_eq!(counts.scheduled, count(&is_scheduled));
        assert_eq!(counts.dead_lettered, self.model.kept.parts[1].len());
        assert_eq!(counts.transfer_dead_lettered, self.model.kept.parts[2].len());
        let all = self.model.kept.parts.iter().flatten();
        let states: usize = self.model.kept.states.values().map(|(len, _)| usize::from(*len)).sum();
        assert_eq!(counts.bytes, 8 * all.clone().count() + states);
        assert_eq!(self.fx.memory, 8 * all.filter(|one| one.in_memory).count() + states);
        assert_eq!(self.fx.memory, self.entity.bytes_in_memory());
    }

    fn check_sessions(&self) {
        let (mut exist, mut listed) = (0, BTreeSet::new());
        for session in 0..SESSIONS {
            let main = || self.model.kept.parts[0].iter().filter(|one| one.session == session);
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
            assert_eq!(details.active, main().filter(|one| Model::waits(one)).count());
            assert_eq!(details.locked, main().filter(|one| one.lock.is_some()).count());
            let is_aside = |one: &&Message| one.state != State::Active;
            assert_eq!(details.set_aside, main().filter(is_aside).count());
            let until = holder.map(|holder| Timestamp::from_millis(holder.until));
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
        let listed = self.entity.sessions(Some(Timestamp::from_millis(0)), 0, usize::MAX);
        assert_eq!(listed.iter().map(|id| id.to_string()).collect::<Vec<_>>(), updated);
    }
}

fn mode(delete: bool) -> Mode {
    if delete { Mode::ReceiveAndDelete } else { Mode::PeekLock }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![5 => Just(Part::Main), 3 => Just(Part::DeadLetter), 1 => Just(Part::TransferDeadLetter)]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let session = || 0..SESSIONS;
    let delete = || prop::bool::weighted(0.15);
    let picks = || prop::collection::vec(0u8..15, 1..3);
    let how = prop_oneof![
        4 => Just(How::Complete),
        3 => Just(How::Abandon),
        3 => Just(How::Defer),
        1 => Just(How::DeadLetter),
        2 => Just(How::Release),
    ];
    prop_oneof![
        30 => (
            session(),
            prop::option::weighted(0.3, 0u8..60),
            prop::option::weighted(0.2, 0u8..30),
            prop::option::weighted(0.2, 0u8..4),
        )
            .prop_map(|(session, ttl, delay, id)| Op::Send { session, ttl, delay, id }),
        14 => (slot(), prop::option::of(session()), 0u8..40, delete())
            .prop_map(|(slot, session, wait, delete)| Op::Accept { slot, session, wait, delete }),
        6 => (slot(), part(), delete()).prop_map(|(slot, part, delete)| Op::Open { slot, part, delete }),
        24 => (slot(), 0u8..4).prop_map(|(slot, max)| Op::Take { slot, max }),
        32 => (0u8..5, how).prop_map(|(back, how)| Op::Settle { back, how }),
        16 => (slot(), part(), picks(), delete())
            .prop_map(|(slot, part, picks, delete)| Op::Deferred { slot, part, picks, delete }),
        4 => slot().prop_map(|slot| Op::RenewSession { slot }),
        3 => (0u8..6).prop_map(|back| Op::RenewMessage { back }),
        4 => slot().prop_map(|slot| Op::Close { slot }),
        4 => (slot(), prop::option::of(0u8..9)).prop_map(|(slot, len)| Op::SetState { slot, len }),
        3 => picks().prop_map(|picks| Op::Cancel { picks }),
        2 => (session(), any::<bool>())
            .prop_map(|(session, transfer)| Op::DeadLetterIncoming { session, transfer }),
        10 => (1u8..12).prop_map(|millis| Op::Later { millis }),
        8 => Just(Op::OnTime),
        1 => part().prop_map(|part| Op::Purge { part }),
        1 => any::<bool>().prop_map(Op::KeepInMemory),
        3 => Just(Op::Commit),
        1 => Just(Op::Crash),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entity_is_what_the_model_is(
        sessionful in prop::bool::weighted(0.7),
        dead_letters_expired: bool,
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut both = Both::new(sessionful, dead_letters_expired);
        for op in &ops {
            both.run(op);
            both.check();
        }
    }
}
