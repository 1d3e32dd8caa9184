//! Packets between clients and entities, reduced to what the simulation needs.

use std::fmt;

use barid_core::entity::{Refusal, SequenceNumber};

/// Index of an entity in [`ENTITIES`].
pub type EntityId = usize;

/// Names of the entities. The first two require sessions.
pub const ENTITIES: [&str; 4] = ["streams", "once", "plain", "relay"];

/// An entity with duplicate detection.
pub const ONCE: EntityId = 1;

/// An entity without sessions.
pub const PLAIN: EntityId = 2;

/// An entity with duplicate detection that forwards its messages to [`PLAIN`]. Nobody receives from it.
pub const RELAY: EntityId = 3;

/// Index of a session in [`SESSIONS`].
pub type SessionId = usize;

/// Session ids. Each entity that requires sessions has all of them.
pub const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

/// Number of a message, unique in a history. It is also the message id and the body.
pub type MessageNumber = u32;

/// Number of a receiver, unique in a history.
pub type Handle = u32;

/// A lock token.
pub type Token = u128;

/// Value of a session state. Each value is set only once.
pub type Note = u32;

/// The source that a receiver attaches to.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Source {
    /// The session with this index.
    Session(SessionId),
    /// The next free session, within this many milliseconds.
    Next(u64),
    /// The messages of an entity without sessions.
    Messages,
    /// The dead letters of an entity.
    DeadLetters,
}

/// The way in which a message is settled.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum How {
    /// The message is processed and deleted.
    Complete,
    /// The message is delivered again, and its delivery count grows.
    Abandon,
    /// The message is put aside, to be received by its sequence number.
    Defer,
    /// The message becomes a dead letter.
    DeadLetter,
    /// The message is returned as if it had not been delivered. There is no answer.
    Release,
}

/// A packet on a connection.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Packet {
    /// A client opens its connection.
    Open,
    /// The broker has closed the connection.
    Closed,
    /// A client sends a message, to be enqueued now or at a time. An entity without sessions ignores the
    /// session.
    Send(EntityId, SessionId, MessageNumber, Option<u64>),
    /// The message is accepted and has this sequence number; none if it was sent before.
    Accepted(MessageNumber, Option<SequenceNumber>),
    /// The message is refused because the disk fails. It may have been taken all the same.
    Refused(MessageNumber),
    /// A client cancels a scheduled message.
    Cancel(EntityId, MessageNumber, SequenceNumber),
    /// The cancelled message is removed (true), or did not exist (false).
    Cancelled(MessageNumber, bool),
    /// A receiver attaches. True if messages are deleted when it receives them.
    Attach(Handle, EntityId, Source, bool),
    /// The receiver is attached; with its session and the end of the session lock, if it has a session.
    Attached(Handle, Option<(SessionId, u64)>),
    /// The receiver is refused, or the broker has ended it.
    Detached(Handle),
    /// A receiver detaches.
    Detach(Handle),
    /// A receiver gives this much more credit.
    Flow(Handle, usize),
    /// A receiver asks for a deferred message.
    ReceiveDeferred(Handle, SequenceNumber),
    /// A message for a receiver.
    Transfer(Handle, Transfer),
    /// A receiver settles a message.
    Settle(Handle, Token, How),
    /// The result of a settlement.
    Settled(Handle, Token, Result<(), Refusal>),
    /// A receiver renews the lock on its session.
    Renew(Handle),
    /// The new end of the lock; none if the lock was lost.
    Renewed(Handle, Option<u64>),
    /// A receiver sets the state of its session, or removes it.
    SetState(Handle, Option<Note>),
    /// The state is set (true), or the session was lost (false).
    StateSet(Handle, bool),
    /// A receiver asks for the state of its session.
    GetState(Handle),
    /// The state, if there is one. The outer `None`: the session was lost.
    State(Handle, Option<Option<Note>>),
}

/// A message that is delivered to a receiver.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Transfer {
    /// The message.
    pub message: MessageNumber,
    /// Its sequence number.
    pub number: SequenceNumber,
    /// Lock token to settle it with, unless it is deleted.
    pub token: Token,
    /// Delivery count: how many deliveries ended without settlement.
    pub count: u32,
    /// End of its lock, in milliseconds; 0 if it is not locked.
    pub until: u64,
    /// Whether it was deferred.
    pub deferred: bool,
}

impl Transfer {
    /// Whether the message has left its entity for good.
    pub fn is_deleted(&self) -> bool {
        self.until == 0
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Closed => f.write_str("closed"),
            Self::Send(entity @ PLAIN.., _, message, at) => {
                write!(f, "m{message} to {}", ENTITIES[*entity])?;
                at.map_or(Ok(()), |at| write!(f, " at {at}"))
            }
            Self::Send(entity, session, message, at) => {
                write!(f, "m{message} to {}/{}", ENTITIES[*entity], SESSIONS[*session])?;
                at.map_or(Ok(()), |at| write!(f, " at {at}"))
            }
            Self::Accepted(message, Some(number)) => write!(f, "m{message} accepted: n{number}"),
            Self::Accepted(message, None) => write!(f, "m{message} accepted: a duplicate"),
            Self::Refused(message) => write!(f, "m{message} refused"),
            Self::Cancel(entity, message, number) => {
                write!(f, "cancel m{message} n{number} of {}", ENTITIES[*entity])
            }
            Self::Cancelled(message, done) => write!(f, "m{message} cancelled: {done}"),
            Self::Attach(handle, entity, source, deletes) => {
                let how = if *deletes { ", and deletes" } else { "" };
                write!(f, "r{handle} attach {} {source:?}{how}", ENTITIES[*entity])
            }
            Self::Attached(handle, Some((session, until))) => {
                write!(f, "r{handle} has {} until {until}", SESSIONS[*session])
            }
            Self::Attached(handle, None) => write!(f, "r{handle} attached"),
            Self::Detached(handle) => write!(f, "r{handle} is detached"),
            Self::Detach(handle) => write!(f, "r{handle} detach"),
            Self::Flow(handle, credit) => write!(f, "r{handle} credit +{credit}"),
            Self::ReceiveDeferred(handle, number) => write!(f, "r{handle} wants n{number}"),
            Self::Transfer(handle, transfer) => {
                let Transfer { message, number, count, until, .. } = transfer;
                write!(f, "r{handle} m{message} n{number} count={count} until {until}")
            }
            Self::Settle(handle, token, how) => write!(f, "r{handle} {how:?} {}", Short(*token)),
            Self::Settled(handle, token, Ok(())) => {
                write!(f, "r{handle} settled {}", Short(*token))
            }
            Self::Settled(handle, token, Err(refusal)) => {
                write!(f, "r{handle} {refusal:?} {}", Short(*token))
            }
            Self::Renew(handle) => write!(f, "r{handle} renew"),
            Self::Renewed(handle, until) => write!(f, "r{handle} renewed until {until:?}"),
            Self::SetState(handle, note) => write!(f, "r{handle} state = {note:?}"),
            Self::StateSet(handle, done) => write!(f, "r{handle} state set: {done}"),
            Self::GetState(handle) => write!(f, "r{handle} state?"),
            Self::State(handle, note) => write!(f, "r{handle} state: {note:?}"),
        }
    }
}

/// A lock token, shown as its two numbers: of the lock, and of the message.
struct Short(Token);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {} n{}", self.0 >> 64, self.0 as u64)
    }
}
