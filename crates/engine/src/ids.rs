//! Numbers that are unique during the life of a broker.

/// The number of a connection: unique during the life of the broker, whichever thread owns the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// A number that no connection ever has.
    pub const NONE: Self = Self(u64::MAX);
}
