//! What goes over connections, as far as it matters here.

use std::fmt;

use barid_core::entity::{Refusal, SequenceNumber};

/// Which entity, by its index in [`ENTITIES`].
pub type EntityId = usize;

/// The entities. The first two require sessions.
pub const ENTITIES: [&str; 4] = ["streams", "once", "plain", "relay"];

/// One that drops what is sent again.
pub const ONCE: EntityId = 1;

/// One without sessions.
pub const PLAIN: EntityId = 2;

/// One that drops what is sent again, and forwards the rest to [`PLAIN`]. Nobody receives from it.
pub const RELAY: EntityId = 3;

/// Which session, by its index in [`SESSIONS`].
pub type SessionId = usize;

/// The ids of sessions. Each entity that requires sessions has all of them.
pub const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

/// Which message, of all in a history; its id, and all that it says.
pub type MessageNumber = u32;

/// Which receiver of a connection: never the same twice in a history.
pub type Handle = u32;

/// A lock token.
pub type Token = u128;

/// A state. Every one that is set is another one.
pub type Note = u32;

/// What a receiver asks for.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Source {
    /// This session.
    Session(SessionId),
    /// The next one that is free, within so many milliseconds.
    Next(u64),
    /// The messages of an entity without sessions.
    Messages,
    /// The dead letters.
    DeadLetters,
}

/// How a message is settled.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum How {
    /// Done.
    Complete,
    /// In vain.
    Abandon,
    /// To be asked for by its number.
    Defer,
    /// To the dead letters.
    DeadLetter,
    /// Not looked at. Nobody is told whether it was.
    Release,
}

/// What goes over a connection.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Packet {
    /// A client opens its connection.
    Open,
    /// The broker has closed it.
    Closed,
    /// A message, to be enqueued now or at a time. Without sessions, its session is of no account.
    Send(EntityId, SessionId, MessageNumber, Option<u64>),
    /// It is taken, under this number; none: it was sent before.
    Accepted(MessageNumber, Option<SequenceNumber>),
    /// It may be taken or not: the disk fails.
    Refused(MessageNumber),
    /// A scheduled message is not wanted any more.
    Cancel(EntityId, MessageNumber, SequenceNumber),
    /// It is gone; or it was not there.
    Cancelled(MessageNumber, bool),
    /// A receiver comes. Whether messages are deleted when it receives them.
    Attach(Handle, EntityId, Source, bool),
    /// It is there; with its session, and until when that is locked, if it has one.
    Attached(Handle, Option<(SessionId, u64)>),
    /// It is not, or not any more.
    Detached(Handle),
    /// A receiver goes.
    Detach(Handle),
    /// A receiver takes so many messages more.
    Flow(Handle, usize),
    /// A receiver asks for a deferred message.
    ReceiveDeferred(Handle, SequenceNumber),
    /// A message.
    Transfer(Handle, Transfer),
    /// A message is settled.
    Settle(Handle, Token, How),
    /// It was, or why not.
    Settled(Handle, Token, Result<(), Refusal>),
    /// A receiver wants its lock for longer.
    Renew(Handle),
    /// Until when it has it now.
    Renewed(Handle, Option<u64>),
    /// The state of a receiver's session is to be this, or none.
    SetState(Handle, Option<Note>),
    /// It is; or the session was lost.
    StateSet(Handle, bool),
    /// What is the state?
    GetState(Handle),
    /// This, or none; none at all if the session was lost.
    State(Handle, Option<Option<Note>>),
}

/// A message on its way to a receiver.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Transfer {
    /// Which one.
    pub message: MessageNumber,
    /// Its number.
    pub number: SequenceNumber,
    /// With what to settle it, unless it is deleted.
    pub token: Token,
    /// How often it was delivered in vain.
    pub count: u32,
    /// Until when it is locked; 0: it is not.
    pub until: u64,
    /// It was deferred.
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

/// A lock token as its two numbers.
struct Short(Token);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {} n{}", self.0 >> 64, self.0 as u64)
    }
}
