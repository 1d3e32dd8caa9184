//! What comes with a command.

use std::num::NonZeroU64;

use statestore_proto::Condition;

use super::{Clock, Limits, Usage};
use crate::ids::{PacketId, SessionNumber};
use crate::time::WallTime;

/// Whose store it is, and when.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The tenant's clock.
    pub clock: &'a Clock,
    /// What the tenant uses.
    pub usage: &'a Usage,
    /// How much that may be.
    pub limits: &'a Limits,
    /// What the clock on the wall says.
    pub now: WallTime,
}

/// What a request that changes a key has beside its command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// `__ts`, as it was sent.
    pub timestamp: Option<&'a str>,
    /// `__ft`, as it was sent.
    pub fencing_token: Option<&'a str>,
    /// The key is to be stored.
    pub stored: bool,
    /// The store takes nothing new.
    pub refuses: bool,
    /// By what it can be known when it comes again; none: it cannot come again.
    pub origin: Option<Origin>,
}

/// A PUBLISH that its client sends again if it has lost its connection before PUBACK came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session of the client.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// A fingerprint of the Correlation Data, which must stay the same in all versions of the broker.
    pub correlation: u128,
    /// The session is stored: it goes on after a crash.
    pub stored: bool,
    /// What it was answered before this has been acknowledged long ago, and does not come again.
    pub settled: WallTime,
}

/// SET, without what is the same in all requests.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its new value.
    pub value: &'a [u8],
    /// When it may be set.
    pub condition: Condition,
    /// Milliseconds after which it goes by itself; none: never.
    pub ttl: Option<NonZeroU64>,
}
