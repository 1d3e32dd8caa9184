//! Why a store refuses.

use std::{io, path::Path};

/// A refusal of a store, as a sentence for whoever runs the broker.
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

    /// What is on disk is not what was written. The sentence says where, and what to do.
    #[error("{0}")]
    Corrupt(String),

    /// The directory is not one that this version can use: of another broker that runs, of another
    /// version, or not a data directory. The sentence says what to do.
    #[error("{0}")]
    Unusable(String),

    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// What the operating system says.
        source: io::Error,
    },
}

impl StoreError {
    /// An IO error while `doing` something with `path`.
    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { what: format!("cannot {doing} {}", path.display()), source }
    }

    /// Damage that only a backup heals, or the will to lose something.
    pub(crate) fn damaged(path: &Path, what: &str) -> StoreError {
        StoreError::Corrupt(format!("{} is damaged: {what}{ADVICE}", path.display()))
    }

    /// The sentence without advice, for whoever gives better advice.
    pub(crate) fn finding(&self) -> String {
        let text = self.to_string();
        text.strip_suffix(ADVICE).unwrap_or(&text).to_owned()
    }
}

/// What is advised where somebody meets damage.
const ADVICE: &str = ". Restore a backup, or see what can be saved with `barid doctor`";
