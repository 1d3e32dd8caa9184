//! Parameters of the commands.

use std::num::NonZeroU64;
use std::sync::Arc;

use statestore_proto::Condition;

use super::{Clock, Limits, Usage};
use crate::holder::Holder;
use crate::ids::{PacketId, SessionNumber};
use crate::time::WallTime;

/// The context of a command: the tenant and the time.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The tenant's clock.
    pub clock: &'a Clock,
    /// The part of its quota that the tenant uses.
    pub usage: &'a Usage,
    /// The tenant's quota.
    pub limits: &'a Limits,
    /// The wall time.
    pub now: WallTime,
}

/// The parameters, beside the command, of a request that changes a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// `__ts`, as it was sent.
    pub timestamp: Option<&'a str>,
    /// `__ft`, as it was sent.
    pub fencing_token: Option<&'a str>,
    /// Whether the key is to be stored.
    pub stored: bool,
    /// Whether the store takes nothing new at present.
    pub refuses: bool,
    /// Identifies the request if it comes again; `None` if it cannot come again.
    pub origin: Option<Origin>,
    /// The user of the client; `None`: no limit of a user applies.
    pub user: Option<Requesting<'a>>,
}

/// The user on whose behalf a key is set: the key belongs to it from then on.
#[derive(Clone, Copy, Debug)]
pub struct Requesting<'a> {
    /// The user.
    pub holder: &'a Arc<Holder>,
    /// Maximum number of keys that belong to the user; 0: there is no limit.
    pub keys: u64,
    /// Maximum number of bytes of these keys, counted as in [`Limits::bytes`]; 0: there is no limit.
    pub bytes: u64,
}

/// Identifies a PUBLISH that its client sends again if the connection is lost before PUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session of the client.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// Fingerprint of the Correlation Data. It must stay the same in all versions of the broker.
    pub correlation: u128,
    /// Whether the session is stored, so that it survives a crash.
    pub stored: bool,
    /// Answers from before this time were acknowledged long ago; their requests do not come again.
    pub settled: WallTime,
}

/// The parameters of SET that other commands do not have.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new value.
    pub value: &'a [u8],
    /// The condition under which the key is set.
    pub condition: Condition,
    /// Time to live of the key, in milliseconds; `None`: the key does not expire.
    pub ttl: Option<NonZeroU64>,
}
