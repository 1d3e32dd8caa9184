//! The three streams of messages that an entity has.

/// A stream of messages within an entity. Each has its own sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    /// What was sent to the entity.
    Main = 0,
    /// The dead-letter sub-queue: never sessionful, nothing expires in it, and no delivery counts.
    DeadLetter = 1,
    /// What could not be forwarded to another entity. As the dead-letter sub-queue.
    TransferDeadLetter = 2,
}

impl Part {
    /// All parts, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Main, Self::DeadLetter, Self::TransferDeadLetter];
}
