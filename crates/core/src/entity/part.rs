//! The three streams of messages that an entity has.

/// A stream of messages within an entity. Each has its own sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    /// Messages that were sent to the entity.
    Main = 0,
    /// The dead-letter sub-queue: it has no sessions, messages in it do not expire, and deliveries
    /// are not counted.
    DeadLetter = 1,
    /// Messages that could not be forwarded to another entity; otherwise like the dead-letter
    /// sub-queue.
    TransferDeadLetter = 2,
}

impl Part {
    /// All parts, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Main, Self::DeadLetter, Self::TransferDeadLetter];
}
