//! The entry of one key in a partition.

use std::sync::Arc;

use statestore_proto::{Hlc, Version};

use super::{Answer, FencingToken, Verdict, fencing};
use crate::holder::Holder;
use crate::state_store::StateRecord;
use crate::time::WallTime;

/// Overhead of a key beside its bytes, value and fencing token, and of a watch beside the bytes of its key. Counted in
/// bytes of the tenant's quota; approximately the memory that each takes.
pub const ENTRY_BYTES: u64 = 128;

/// An existing key's record and durability.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: StateRecord,
    /// Whether the key is in the store. It stays there until it is deleted.
    pub stored: bool,
    /// The batch to wait for before anybody is told of this entry.
    pub batch: Option<u64>,
}

/// A read-only view of an existing key.
#[derive(Clone, Copy, Debug)]
pub struct EntryView<'a> {
    /// The key.
    pub key: &'a Arc<[u8]>,
    /// Its value.
    pub value: &'a Arc<[u8]>,
    /// Its version.
    pub version: Version,
    /// The token that protects the key.
    pub fencing_token: Option<&'a FencingToken>,
    /// Time at which the key expires, if ever.
    pub expires_at: Option<WallTime>,
    /// Whether the key is stored.
    pub stored: bool,
    /// The batch to wait for before anybody is told of this entry.
    pub after: Option<u64>,
}

impl Entry {
    /// Bytes of the tenant's quota that the key takes.
    pub fn size(&self, key: &[u8]) -> u64 {
        let StateRecord { value, fencing_token, holder, .. } = &self.record;
        size(key, value, fencing_token.as_ref(), holder.as_deref())
    }

    pub fn is_expired(&self, now: WallTime) -> bool {
        self.record.expires_at.is_some_and(|at| at <= now)
    }

    /// Checks whether a request with this token may change the key.
    pub fn admit(&self, token: Option<Hlc<'_>>) -> Result<(), Answer> {
        let refused = |refusal| Answer { after: self.batch, ..Answer::from(refusal) };
        fencing::admit(token, self.record.fencing_token.as_ref()).map_err(refused)
    }

    /// The answer to a request that leaves the key as it is.
    pub fn not_applied(&self) -> Answer {
        let version = Some(self.record.version);
        Answer { version, after: self.batch, ..Answer::at_once(Verdict::NotApplied) }
    }

    pub fn view<'a>(&'a self, key: &'a Arc<[u8]>) -> EntryView<'a> {
        EntryView {
            key,
            value: &self.record.value,
            version: self.record.version,
            fencing_token: self.record.fencing_token.as_ref(),
            expires_at: self.record.expires_at,
            stored: self.stored,
            after: self.batch,
        }
    }
}

/// Bytes of the tenant's quota that a key takes.
pub(super) fn size(
    key: &[u8],
    value: &[u8],
    token: Option<&FencingToken>,
    holder: Option<&Holder>,
) -> u64 {
    let token = token.map_or(0, |token| token.as_hlc().node.len());
    // It is a part of each record of the user.
    let name = holder.map_or(0, |holder| holder.name().len());
    ENTRY_BYTES + (key.len() + value.len() + token + name) as u64
}
