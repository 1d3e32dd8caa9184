//! The records of keys, and of requests that were answered.

use std::sync::Arc;

use statestore_proto::Version;

use super::{FencingToken, Verdict};
use crate::time::WallTime;

/// A key's value, and what comes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// The value.
    pub value: Arc<[u8]>,
    /// The version that the SET was answered with.
    pub version: Version,
    /// What protects the key: nobody changes it with a lower one.
    pub fencing_token: Option<FencingToken>,
    /// When the key goes by itself, if ever.
    pub expires_at: Option<WallTime>,
}

/// What became of a request that its client may send again, and has then to be told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredRecord {
    /// A fingerprint of the Correlation Data: packet identifiers are used again.
    pub correlation: u128,
    /// What the client was told.
    pub verdict: Verdict,
    /// The version that it was told.
    pub version: Option<Version>,
    /// The last version of the tenant at that moment: which of two answers is older.
    pub answered_at: Version,
}
