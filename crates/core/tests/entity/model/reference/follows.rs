//! Effects of time, locks and delivery counts in the model.

use barid_core::entity::{Part, ReceiverId, State};
use barid_core::time::WallTime;

use super::super::{LOCK, MAX_DELIVERIES, name};
use super::{Delivered, Holder, Lock, Message, Model};
use crate::store::Told;

impl Model {
    fn new_instance(&mut self) -> u64 {
        self.instances += 1;
        self.instances
    }

    pub(super) fn new_lock(&mut self) -> Lock {
        Lock { instance: self.new_instance(), until: Some(self.now + LOCK) }
    }

    pub(super) fn deliver(&mut self, part: Part, uid: u64, delete: bool, lock: Lock) -> Delivered {
        let position = self.position(part, uid);
        let message = &mut self.part_mut(part)[position];
        let mut delivered = Delivered {
            part,
            uid,
            count: message.count,
            lock: None,
            resubmitted: message.resubmitted,
        };
        if delete && message.in_memory {
            self.part_mut(part).remove(position);
        } else {
            assert_eq!(message.lock, None, "never delivered twice at a time");
            message.lock = Some(lock);
            delivered.lock = Some(lock);
        }
        delivered
    }

    pub(super) fn fail(&mut self, part: Part, position: usize) {
        let message = &mut self.part_mut(part)[position];
        message.count += u32::from(part == Part::Main);
        message.lock = None;
        if part == Part::Main && message.count >= MAX_DELIVERIES {
            let message = self.main().remove(position);
            self.dead_letter(message);
        }
    }

    pub(super) fn dead_letter(&mut self, mut message: Message) {
        (message.state, message.lock) = (State::Active, None);
        self.part_mut(Part::DeadLetter).push(message);
    }

    pub(super) fn expire(&mut self, position: usize) {
        let message = self.main().remove(position);
        if self.dead_letters_expired {
            self.dead_letter(message);
        }
    }

    /// Expires all waiting messages of a session if one of them has expired.
    pub(super) fn expire_session(&mut self, session: u8) {
        let now = self.now;
        let waits = |message: &Message| message.session == session && message.waits();
        if self.main().iter().any(|message| waits(message) && message.is_expired(now)) {
            while let Some(position) = self.main().iter().position(waits) {
                self.expire(position);
            }
        }
    }

    /// Locks a session. Returns until when.
    pub(super) fn hold(&mut self, receiver: u64, session: u8, delete: bool) -> WallTime {
        let (instance, until) = (self.new_instance(), self.now + LOCK);
        self.holders.push(Holder { receiver, session, until, instance, delete });
        WallTime::from_millis(until)
    }

    pub(super) fn next_session(&mut self) -> Option<u8> {
        loop {
            let held = |session: u8| self.holders.iter().any(|holder| holder.session == session);
            let mut messages = self.part(Part::Main).iter();
            let next = messages.find(|one| one.waits() && !held(one.session))?;
            let (uid, session) = (next.uid, next.session);
            self.expire_session(session);
            if self.main().iter().any(|message| message.uid == uid) {
                return Some(session);
            }
        }
    }

    pub(super) fn grant(&mut self) {
        while !self.waiting.is_empty() && self.sessionful {
            let Some(session) = self.next_session() else { return };
            let waiter = self.waiting.remove(0);
            let until = self.hold(waiter.receiver, session, waiter.delete);
            self.told.push(Told::Granted(ReceiverId(waiter.receiver), name(session), until));
        }
    }

    pub(super) fn free(&mut self, receiver: u64, failed: bool) {
        let position = self.holders.iter().position(|holder| holder.receiver == receiver);
        let lock = Some(self.holders.remove(position.unwrap()).lock());
        let has_it = |message: &&Message| message.lock == lock;
        let uids: Vec<_> =
            self.main().iter().filter(|one| has_it(one)).map(|message| message.uid).collect();
        for uid in uids {
            let position = self.position(Part::Main, uid);
            match failed {
                true => self.fail(Part::Main, position),
                false => self.main()[position].lock = None,
            }
        }
    }

    pub(super) fn end_locks(&mut self) {
        for part in Part::ALL {
            for uid in self.due(part, |one| one.lock?.until) {
                let position = self.position(part, uid);
                self.fail(part, position);
            }
        }
        let mut ended: Vec<_> =
            self.holders.iter().filter(|holder| holder.until <= self.now).copied().collect();
        ended.sort_by_key(|holder| (holder.until, holder.instance));
        for holder in &ended {
            self.free(holder.receiver, true);
            self.told.push(Told::LockLost(ReceiverId(holder.receiver)));
        }
        if !ended.is_empty() {
            self.grant();
        }
    }

    pub(super) fn time_out(&mut self) {
        let now = self.now;
        let mut over: Vec<_> = self.waiting.extract_if(.., |waiter| waiter.until <= now).collect();
        over.sort_by_key(|waiter| waiter.until);
        self.told.extend(over.iter().map(|waiter| Told::TimedOut(ReceiverId(waiter.receiver))));
    }
}
