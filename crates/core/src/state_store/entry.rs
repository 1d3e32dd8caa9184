//! What a partition has of one key.

use std::sync::Arc;

use statestore_proto::{Hlc, Version};

use super::{Answer, FencingToken, Verdict, fencing};
use crate::state_store::StateRecord;
use crate::time::WallTime;

/// What a key costs beside its bytes, value and fencing token, and what it costs to watch one beside its
/// bytes, in bytes of the tenant's quota; about what it takes in memory.
pub const ENTRY_BYTES: u64 = 128;

/// A key that is there.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: StateRecord,
    /// It is in the store, and stays there until it is deleted.
    pub stored: bool,
    /// The batch that whoever is told of it has to wait for.
    pub batch: Option<u64>,
}

/// A key that is there, to look at.
#[derive(Clone, Copy, Debug)]
pub struct EntryView<'a> {
    /// The key.
    pub key: &'a Arc<[u8]>,
    /// Its value.
    pub value: &'a Arc<[u8]>,
    /// Its version.
    pub version: Version,
    /// What protects it.
    pub fencing_token: Option<&'a FencingToken>,
    /// When it goes by itself, if ever.
    pub expires_at: Option<WallTime>,
    /// Whether it is stored.
    pub stored: bool,
    /// The batch that whoever is told of it has to wait for.
    pub after: Option<u64>,
}

impl Entry {
    /// Bytes of its tenant's quota that it takes.
    pub fn size(&self, key: &[u8]) -> u64 {
        size(key, &self.record.value, self.record.fencing_token.as_ref())
    }

    pub fn is_expired(&self, now: WallTime) -> bool {
        self.record.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether a request with this token may change it.
    pub fn admit(&self, token: Option<Hlc<'_>>) -> Result<(), Answer> {
        let refused = |refusal| Answer { after: self.batch, ..Answer::from(refusal) };
        fencing::admit(token, self.record.fencing_token.as_ref()).map_err(refused)
    }

    /// What is answered when it stays as it is.
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

/// Bytes of its tenant's quota that a key takes.
pub(super) fn size(key: &[u8], value: &[u8], token: Option<&FencingToken>) -> u64 {
    let token = token.map_or(0, |token| token.as_hlc().node.len());
    ENTRY_BYTES + (key.len() + value.len() + token) as u64
}
