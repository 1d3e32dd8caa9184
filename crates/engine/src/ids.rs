//! Numbers that are given in the life of a broker.

/// A connection: unique in the life of the broker, whichever thread owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// No connection ever has it.
    pub const NONE: Self = Self(u64::MAX);
}
