//! What senders and receivers may rely on.

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

/// All that was sent and told.
#[derive(Default)]
pub struct Promises {
    fates: BTreeMap<MessageNumber, Fate>,
    locks: Locks,
    streams: Streams,
    states: States,
    /// Whether no message becomes a dead letter by itself: then it is known which one is next.
    patient: bool,
    /// Whether messages are deleted when they are received. What is then on its way when a connection breaks is lost.
    lossy: bool,
    violation: Option<String>,
}

/// What is known of a message.
struct Fate {
    of: (EntityId, SessionId),
    /// It was accepted.
    accepted: bool,
    /// Somebody wanted it to go for good …
    may_be_gone: bool,
    /// … and was told that it has.
    gone: bool,
    /// A receiver was told that it is a dead letter, or deferred.
    dead: bool,
    deferred: bool,
    /// How often a receiver was told that its delivery was in vain.
    failed: u32,
}

/// A receiver, and what it receives from.
#[derive(Clone, Copy)]
pub struct From {
    pub handle: Handle,
    pub entity: EntityId,
    /// None: it has no sessions, or these are the dead letters.
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
    /// Nothing was sent yet. `patient`: no message becomes a dead letter by itself. `lossy`: some are deleted when they are
    /// received.
    pub fn new(patient: bool, lossy: bool) -> Self {
        Self { patient, lossy, ..Self::default() }
    }

    /// A message is sent, for the first time or again.
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

    /// Its sender is told that it is accepted, and whether it is in the stream now.
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

    /// Its sender wants a scheduled message to go.
    pub fn cancels(&mut self, message: MessageNumber) {
        self.fate(message).may_be_gone = true;
    }

    /// It is told that it has gone.
    pub fn cancelled(&mut self, message: MessageNumber) {
        self.fate(message).gone = true;
    }

    /// A receiver has a session.
    pub fn granted(&mut self, from: From, until: u64, now: u64) {
        let session = from.session.expect("it is one's");
        self.check(|it| it.locks.granted(from.entity, session, (from.handle, until), now));
    }

    /// It has it for longer.
    pub fn renewed(&mut self, handle: Handle, until: u64, now: u64) {
        self.locks.renewed(handle, until, now);
    }

    /// A receiver has gone.
    pub fn ended(&mut self, handle: Handle) {
        self.locks.ended(handle);
        self.states.forget(handle);
    }

    /// A message comes to a receiver.
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
            // Who has lost the lock hears of what was.
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

    /// A receiver settles a message.
    pub fn settles(&mut self, from: From, transfer: Transfer, how: How) {
        if how == How::Complete {
            self.fate(transfer.message).may_be_gone = true;
        }
        match from.session {
            // It has left the stream before.
            Some(_) if transfer.deferred => {}
            Some(session) => {
                self.streams.settles((from.entity, session), transfer.number, from.handle);
            }
            None => self.locks.gave_up(transfer.message),
        }
    }

    /// It is told what became of that.
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

    /// A receiver asks for the state of its session, or for another one.
    pub fn asks_state(&mut self, from: From, set: Option<Option<Note>>) {
        let session = from.session.expect("it has one");
        self.states.ask(from.handle, (from.entity, session), set);
    }

    /// It is told that it is set, or is not.
    pub fn state_set(&mut self, handle: Handle, done: bool) {
        self.states.set(handle, done);
    }

    /// It is told the state. Who has lost the session hears of what was.
    pub fn state_told(&mut self, from: From, note: Option<Note>, now: u64) {
        let session = from.session.expect("it has one");
        if self.locks.holds(from.entity, session, from.handle, now) {
            self.check(|it| it.states.told(from.handle, note));
        } else {
            self.states.forget(from.handle);
        }
    }

    /// Every message is where it may be.
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
