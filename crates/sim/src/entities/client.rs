//! Clients of entities: senders and receivers.

use std::collections::{BTreeMap, VecDeque};

use super::promises::From;
use crate::packets::entities::{
    EntityId, Handle, How, MessageNumber, SessionId, Source, Token, Transfer,
};

/// A client: a sender, and at most one receiver at a time.
#[derive(Default)]
pub struct Client {
    /// Messages that were sent and not accepted yet: entity, session, and the time to enqueue it, if scheduled.
    pub unaccepted: BTreeMap<MessageNumber, (EntityId, SessionId, Option<u64>)>,
    /// The current receiver.
    pub receiver: Option<Receiver>,
    /// Messages that earlier receivers had not settled when they ended. The client may settle them later, by
    /// another receiver.
    pub stale: Vec<(From, Transfer)>,
}

/// A receiver.
pub struct Receiver {
    pub handle: Handle,
    pub entity: EntityId,
    pub source: Source,
    /// Whether the link is attached.
    pub attached: bool,
    /// The session that the receiver has locked.
    pub session: Option<SessionId>,
    /// Credit: number of messages that the receiver takes and has not got yet.
    pub credit: usize,
    /// Messages received and not settled yet.
    pub unsettled: BTreeMap<Token, Transfer>,
    /// Messages settled, without an answer yet. Some were received by an earlier receiver.
    pub settled: VecDeque<(From, Transfer, How)>,
    /// Whether the receiver has set the state or renewed its lock, and waits for the answer.
    pub asks: bool,
    /// Whether the receiver has asked for the state, and waits for the answer.
    pub reads: bool,
    /// Whether the receiver has been told the state.
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
    /// Ends the receiver, and remembers the messages that it had not settled.
    pub fn end_receiver(&mut self) {
        let Some(from) = self.from() else { return };
        let receiver = self.receiver.take().expect("it was just there");
        if !from.dead {
            self.stale.extend(receiver.unsettled.into_values().map(|transfer| (from, transfer)));
        }
    }

    /// Returns the current receiver, with its source.
    pub fn from(&self) -> Option<From> {
        let Receiver { handle, entity, session, source, .. } = *self.receiver.as_ref()?;
        Some(From { handle, entity, session, dead: source == Source::DeadLetters })
    }

    /// Returns the current receiver, if it has this handle.
    pub fn receiver(&mut self, handle: Handle) -> Option<&mut Receiver> {
        self.receiver.as_mut().filter(|receiver| receiver.handle == handle)
    }
}
