//! A model of an entity: lists that are searched.

mod asked;
mod follows;

use std::collections::BTreeMap;

use barid_core::entity::{Part, State};

use crate::store::Told;

/// A message, identified by the number in its bytes.
#[derive(Clone, Debug)]
pub struct Message {
    pub uid: u64,
    pub session: u8,
    pub count: u32,
    pub state: State,
    pub enqueued_at: u64,
    pub expires_at: Option<u64>,
    pub in_memory: bool,
    pub lock: Option<Lock>,
    /// How often it was resubmitted. Each time it is another message, to which earlier deliveries do not belong.
    pub resubmitted: u32,
}

impl Message {
    fn new(uid: u64, session: u8, in_memory: bool, enqueued_at: u64) -> Self {
        let (state, expires_at) = (State::Active, None);
        let (count, lock, resubmitted) = (0, None, 0);
        Self { uid, session, count, state, enqueued_at, expires_at, in_memory, lock, resubmitted }
    }

    /// Whether a receiver may get the message.
    pub fn waits(&self) -> bool {
        self.state == State::Active && self.lock.is_none()
    }

    pub fn is_scheduled(&self) -> bool {
        matches!(self.state, State::Scheduled { .. })
    }

    fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// The lock on a message: its instance, and until when, if it is the message's own lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lock {
    instance: u64,
    until: Option<u64>,
}

/// A delivered message, with its lock unless the delivery has deleted the message.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    pub part: Part,
    pub uid: u64,
    pub count: u32,
    pub lock: Option<Lock>,
    resubmitted: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub receiver: u64,
    pub session: u8,
    pub until: u64,
    instance: u64,
    delete: bool,
}

impl Holder {
    fn lock(&self) -> Lock {
        Lock { instance: self.instance, until: None }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    receiver: u64,
    until: u64,
    delete: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct PlainReceiver {
    pub part: Part,
    delete: bool,
}

/// The contents that survive a crash.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The messages of each part, in the order of their numbers.
    pub parts: [Vec<Message>; 3],
    pub states: BTreeMap<u8, (u8, u64)>,
    pub seen: BTreeMap<u8, u64>,
}

#[derive(Default)]
pub struct Model {
    pub sessionful: bool,
    dead_letters_expired: bool,
    pub kept: Kept,
    pub holders: Vec<Holder>,
    waiting: Vec<Waiter>,
    pub plain: BTreeMap<u64, PlainReceiver>,
    instances: u64,
    /// Notifications that receivers of sessions should have got.
    pub told: Vec<Told>,
    pub now: u64,
}

impl Model {
    pub fn new(sessionful: bool, dead_letters_expired: bool) -> Self {
        Self { sessionful, dead_letters_expired, now: 1_000, ..Self::default() }
    }

    pub fn part(&self, part: Part) -> &[Message] {
        &self.kept.parts[part as usize]
    }

    fn part_mut(&mut self, part: Part) -> &mut Vec<Message> {
        &mut self.kept.parts[part as usize]
    }

    fn main(&mut self) -> &mut Vec<Message> {
        self.part_mut(Part::Main)
    }

    /// The position of an existing message.
    fn position(&self, part: Part, uid: u64) -> usize {
        self.part(part).iter().position(|message| message.uid == uid).unwrap()
    }

    /// The position of a message that is still under the lock with which it was delivered.
    fn under_its_lock(&self, delivered: Delivered) -> Option<usize> {
        let is_same = |lock: Lock| Some(lock.instance) == delivered.lock.map(|lock| lock.instance);
        let mut messages = self.part(delivered.part).iter();
        messages.position(|one| {
            (one.uid, one.resubmitted) == (delivered.uid, delivered.resubmitted)
                && one.lock.is_some_and(is_same)
        })
    }

    pub fn holder(&self, receiver: u64) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.receiver == receiver)
    }

    /// Returns until when a delivered message is locked: by its own lock, or else by that of its
    /// session.
    pub fn locked_until(&self, lock: Lock) -> u64 {
        let mut holders = self.holders.iter();
        let of_session = || holders.find(|holder| holder.instance == lock.instance).unwrap().until;
        lock.until.unwrap_or_else(of_session)
    }

    /// The messages whose `time` has come, ordered by that time, then by their numbers.
    fn due(&self, part: Part, time: impl Fn(&Message) -> Option<u64>) -> Vec<u64> {
        let messages = self.part(part).iter();
        let mut due: Vec<_> = messages.filter_map(|one| Some((time(one)?, one.uid))).collect();
        due.retain(|(time, _)| *time <= self.now);
        due.sort_by_key(|(time, _)| *time);
        due.into_iter().map(|(_, uid)| uid).collect()
    }
}
