//! The promises that senders and receivers may rely on.

use std::collections::BTreeMap;

use barid_core::entity::{Part, Refusal, SequenceNumber, State};

use super::broker::Place;
use super::locks::Locks;
use super::states::States;
use super::streams::Streams;
use crate::packets::entities::{
    EntityId, Handle, How, MessageNumber, Note, PLAIN, RELAY, SessionId, Transfer,
};
use crate::world::Checker;

/// Everything that clients have sent and been told.
#[derive(Default)]
pub struct Promises {
    fates: BTreeMap<MessageNumber, Fate>,
    locks: Locks,
    streams: Streams,
    states: States,
    /// Whether no message becomes a dead letter by itself. Only then the next message of a session is known.
    patient: bool,
    /// Whether receivers may delete messages when they receive them. Such messages are lost if they are in
    /// flight when a connection breaks.
    lossy: bool,
    violation: Option<String>,
}

/// The known facts about a message.
struct Fate {
    of: (EntityId, SessionId),
    /// Whether it was accepted.
    accepted: bool,
    /// Whether a client has asked to delete it for good.
    may_be_gone: bool,
    /// Whether a client was told that it is deleted for good.
    gone: bool,
    /// Whether a receiver was told that it is a dead letter.
    dead: bool,
    /// Whether a receiver was told that it is deferred.
    deferred: bool,
    /// Lower bound of the delivery count: abandoned and deferred deliveries whose settlement was confirmed.
    failed: u32,
}

/// A receiver, with its source.
#[derive(Clone, Copy)]
pub struct From {
    pub handle: Handle,
    pub entity: EntityId,
    /// The session; `None` if the entity has no sessions, or the source is the dead letters.
    pub session: Option<SessionId>,
    pub dead: bool,
}

impl Checker for Promises {
    fn violation(&mut self) -> &mut Option<String> {
        &mut self.violation
    }

    fn messages(&self) -> u32 {
        u32::try_from(self.fates.len()).expect("histories are short")
    }

    fn crashed(&mut self) {
        self.locks.clear();
        self.streams.crashed();
    }
}

impl Promises {
    /// Creates the checker. `patient`: no message becomes a dead letter by itself. `lossy`: some messages are
    /// deleted when they are received.
    pub fn new(patient: bool, lossy: bool) -> Self {
        Self { patient, lossy, ..Self::default() }
    }

    /// Records that a message is sent, for the first time or again.
    pub fn sent(&mut self, message: MessageNumber, of: (EntityId, SessionId)) {
        let new = || Fate {
            of,
            accepted: false,
            may_be_gone: false,
            gone: false,
            dead: false,
            deferred: false,
            failed: 0,
        };
        self.fates.entry(message).or_insert_with(new);
    }

    /// Records that the sender is told that a message is accepted. `in_stream` says that the message is in the
    /// stream now.
    pub fn accepted(
        &mut self,
        message: MessageNumber,
        number: Option<SequenceNumber>,
        in_stream: bool,
    ) {
        let fate = self.fates.get_mut(&message).expect("what is accepted was sent");
        fate.accepted = true;
        let of = fate.of;
        let Some(number) = number else { return };
        self.check(|it| it.streams.numbered((of.0, false, number), message));
        if in_stream && of.0 < PLAIN {
            self.streams.enqueued(of, number);
        }
    }

    /// Records that a client cancels a scheduled message.
    pub fn cancels(&mut self, message: MessageNumber) {
        self.fate(message).may_be_gone = true;
    }

    /// Records that the client is told that the message is cancelled.
    pub fn cancelled(&mut self, message: MessageNumber) {
        self.fate(message).gone = true;
    }

    /// Records that a receiver is told that it holds a session.
    pub fn granted(&mut self, from: From, until: u64, now: u64) {
        let session = from.session.expect("it is one's");
        self.check(|it| it.locks.granted(from.entity, session, (from.handle, until), now));
    }

    /// Records that a receiver is told that it holds its session for longer.
    pub fn renewed(&mut self, handle: Handle, until: u64, now: u64) {
        self.locks.renewed(handle, until, now);
    }

    /// Records that a receiver has ended.
    pub fn ended(&mut self, handle: Handle) {
        self.locks.ended(handle);
        self.states.forget(handle);
    }

    /// Records that a message is delivered to a receiver.
    pub fn delivered(&mut self, from: From, transfer: Transfer, now: u64) {
        let From { handle, entity, session, dead } = from;
        let Transfer { message, number, token, count, until, deferred } = transfer;
        self.check(|it| it.streams.numbered((entity, dead, number), message));
        let in_time = match session {
            _ if transfer.is_deleted() => true,
            Some(session) => self.locks.holds(entity, session, handle, now),
            None => now < until,
        };
        if !in_time {
            // A receiver that has lost the lock may still get what was sent before.
            return;
        }
        let fate = self.fate(message);
        let wrong = if fate.of.0 == RELAY {
            // After a crash a message may be forwarded twice.
            None
        } else if fate.gone {
            Some("came back")
        } else if dead {
            None
        } else if fate.dead {
            Some("came back from the dead letters")
        } else if fate.deferred && !deferred {
            Some("was deferred, and came all the same")
        } else if count < fate.failed {
            Some("has forgotten how often it was delivered")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.violate(format!("m{message} {wrong}"));
        }
        if transfer.is_deleted() {
            let fate = self.fate(message);
            (fate.may_be_gone, fate.gone) = (true, true);
            return;
        }
        match session {
            Some(session) if !deferred && self.patient && !self.lossy => {
                self.check(|it| it.streams.delivered((entity, session), number, handle));
            }
            Some(_) => {}
            None if self.fate(message).of.0 == RELAY => {}
            None => self.check(|it| it.locks.took(message, (token, until), now)),
        }
    }

    /// Records that a receiver settles a message.
    pub fn settles(&mut self, from: From, transfer: Transfer, how: How) {
        if how == How::Complete {
            self.fate(transfer.message).may_be_gone = true;
        }
        match from.session {
            // A deferred message has left the stream before.
            Some(_) if transfer.deferred => {}
            Some(session) => {
                self.streams.settles((from.entity, session), transfer.number, from.handle);
            }
            None => self.locks.gave_up(transfer.message),
        }
    }

    /// Records that a receiver is told the result of a settlement.
    pub fn settled(
        &mut self,
        from: From,
        transfer: Transfer,
        how: How,
        settled: Result<(), Refusal>,
        now: u64,
    ) {
        let Transfer { message, number, deferred, .. } = transfer;
        let From { handle, entity, session, .. } = from;
        if let (Some(session), false) = (session, deferred) {
            let of = (entity, session);
            if settled.is_ok() && how != How::Abandon {
                self.streams.left(of, number);
            } else {
                self.streams.answered(of, number, (handle, settled.is_ok()));
            }
        }
        if let Err(refusal) = settled {
            let holds = |session| self.locks.holds(entity, session, handle, now);
            if session.is_some_and(holds) {
                self.violate(format!("r{handle} has m{message}, but hears {refusal:?}"));
            }
            return;
        }
        let fate = self.fate(message);
        match how {
            How::Complete => fate.gone = true,
            How::Abandon => fate.failed += 1,
            How::Defer => {
                fate.deferred = true;
                fate.failed += 1;
            }
            How::DeadLetter => fate.dead = true,
            How::Release => unreachable!("nobody is told"),
        }
    }

    /// Records that a receiver asks for the state of its session, or sets it.
    pub fn asks_state(&mut self, from: From, set: Option<Option<Note>>) {
        let session = from.session.expect("it has one");
        self.states.ask(from.handle, (from.entity, session), set);
    }

    /// Records that a receiver is told that the state is set, or that it is not.
    pub fn state_set(&mut self, handle: Handle, done: bool) {
        self.states.set(handle, done);
    }

    /// Records that a receiver is told the state. If the receiver has lost the session, the state may be an
    /// earlier one.
    pub fn state_told(&mut self, from: From, note: Option<Note>, now: u64) {
        let session = from.session.expect("it has one");
        if self.locks.holds(from.entity, session, from.handle, now) {
            self.check(|it| it.states.told(from.handle, note));
        } else {
            self.states.forget(from.handle);
        }
    }

    /// Checks that every message is in a place where it may be.
    pub fn check_places(&mut self, places: &[Place]) {
        let mut found = BTreeMap::new();
        for place in places {
            let is_relayed = self.fate(place.message).of.0 == RELAY;
            if found.insert(place.message, *place).is_some() && !is_relayed {
                self.violate(format!("m{} is there twice", place.message));
            }
        }
        for (message, fate) in &self.fates {
            let wrong = match found.get(message) {
                None if fate.accepted && !fate.may_be_gone && !self.lossy => "is lost",
                Some(_) if fate.of.0 == RELAY => continue,
                Some(_) if fate.gone => "is back",
                Some(place) if fate.dead && place.part != Part::DeadLetter => "is not dead",
                Some(place) if fate.deferred && place.state == State::Active => {
                    if place.part == Part::DeadLetter { continue } else { "is not deferred" }
                }
                _ => continue,
            };
            let what = format!("m{message} {wrong}");
            self.violation.get_or_insert(what);
        }
    }

    fn fate(&mut self, message: MessageNumber) -> &mut Fate {
        self.fates.get_mut(&message).expect("it was sent")
    }

    fn check(&mut self, check: impl FnOnce(&mut Self) -> Result<(), String>) {
        if let Err(what) = check(self) {
            self.violate(what);
        }
    }
}
