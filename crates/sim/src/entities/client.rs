//! Clients of entities: senders and receivers.

use std::collections::{BTreeMap, VecDeque};

use super::promises::From;
use crate::packets::entities::{
    EntityId, Handle, How, MessageNumber, SessionId, Source, Token, Transfer,
};

/// A client: a sender, and a receiver at a time.
#[derive(Default)]
pub struct Client {
    /// What it has sent and nobody has accepted: in which entity and session, and at what time.
    pub unaccepted: BTreeMap<MessageNumber, (EntityId, SessionId, Option<u64>)>,
    /// Its receiver.
    pub receiver: Option<Receiver>,
    /// What it had when its receivers ended. It may settle that later, by another receiver.
    pub stale: Vec<(From, Transfer)>,
}

/// A receiver.
pub struct Receiver {
    pub handle: Handle,
    pub entity: EntityId,
    pub source: Source,
    /// Whether it is attached.
    pub attached: bool,
    /// The session that it has.
    pub session: Option<SessionId>,
    /// Messages that it takes and has not got.
    pub credit: usize,
    /// What it has got and not settled.
    pub unsettled: BTreeMap<Token, Transfer>,
    /// What it has settled, and waits for the answers; some of it was another receiver's.
    pub settled: VecDeque<(From, Transfer, How)>,
    /// It wants another state, or its lock for longer, and waits for the answer.
    pub asks: bool,
    /// It has asked for the state.
    pub reads: bool,
    /// It knows the state.
    pub knows_state: bool,
}

impl Receiver {
    pub fn new(handle: Handle, entity: EntityId, source: Source) -> Self {
        Self {
            handle,
            entity,
            source,
            attached: false,
            session: None,
            credit: 0,
            unsettled: BTreeMap::new(),
            settled: VecDeque::new(),
            asks: false,
            reads: false,
            knows_state: false,
        }
    }
}

impl Client {
    /// Its receiver has ended. It remembers what that had.
    pub fn end_receiver(&mut self) {
        let Some(from) = self.from() else { return };
        let receiver = self.receiver.take().expect("it was just there");
        if !from.dead {
            self.stale.extend(receiver.unsettled.into_values().map(|transfer| (from, transfer)));
        }
    }

    /// Its receiver, and what it receives from.
    pub fn from(&self) -> Option<From> {
        let Receiver { handle, entity, session, source, .. } = *self.receiver.as_ref()?;
        Some(From { handle, entity, session, dead: source == Source::DeadLetters })
    }

    /// Its receiver, if it is this one.
    pub fn receiver(&mut self, handle: Handle) -> Option<&mut Receiver> {
        self.receiver.as_mut().filter(|receiver| receiver.handle == handle)
    }
}
