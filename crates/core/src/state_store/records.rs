//! Records of keys, and of answered requests.

use std::sync::Arc;

use statestore_proto::Version;

use super::{FencingToken, Verdict};
use crate::holder::Holder;
use crate::time::WallTime;

/// A key's value and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// The value.
    pub value: Arc<[u8]>,
    /// The version that the answer to the SET contained.
    pub version: Version,
    /// The token that protects the key: a change with a lower token is refused.
    pub fencing_token: Option<FencingToken>,
    /// Time at which the key expires, if ever.
    pub expires_at: Option<WallTime>,
    /// The user who has set the key, if it was one. A record that was just read has a holder of its own, which holds
    /// nothing.
    pub holder: Option<Arc<Holder>>,
}

/// The outcome of a request that its client may send again, and that then gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredRecord {
    /// Fingerprint of the Correlation Data. Packet identifiers are reused, so they do not identify
    /// a request alone.
    pub correlation: u128,
    /// The verdict in the answer.
    pub verdict: Verdict,
    /// The version in the answer.
    pub version: Option<Version>,
    /// The tenant's last version at that moment. Tells which of two answers is older.
    pub answered_at: Version,
}
