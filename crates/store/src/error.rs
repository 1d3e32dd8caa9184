//! The errors of a store.

use std::{io, path::Path};

/// An error of a store, as a sentence for the operator of the broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk has less free space than the reserve. Nothing was written.
    #[error(
        "the disk is full: {} MiB are free, {} MiB are kept in reserve; make room, or add space",
        free >> 20, reserve >> 20
    )]
    Full {
        /// Bytes that are free.
        free: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },

    /// The data on disk differs from what was written. The sentence says where, and what to do.
    #[error("{0}")]
    Corrupt(String),

    /// This broker cannot use the directory: another running broker uses it, it is of another
    /// version, or it is not a data directory. The sentence says what to do.
    #[error("{0}")]
    Unusable(String),

    /// The operating system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed, with the path.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl StoreError {
    /// An I/O error that occurred while `doing` something with `path`.
    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { what: format!("cannot {doing} {}", path.display()), source }
    }

    /// Damage that can be repaired only from a backup, or by accepting a loss.
    pub(crate) fn damaged(path: &Path, what: &str) -> StoreError {
        StoreError::Corrupt(format!("{} is damaged: {what}{ADVICE}", path.display()))
    }

    /// Returns the sentence without the standard advice, for a caller that gives more specific
    /// advice.
    pub(crate) fn finding(&self) -> String {
        let text = self.to_string();
        text.strip_suffix(ADVICE).unwrap_or(&text).to_owned()
    }
}

/// The standard advice in an error about damage.
const ADVICE: &str = ". Restore a backup, or see what can be saved with `barid doctor`";
