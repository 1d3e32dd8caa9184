//! Counts of logins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::backend::Answer;

/// Counts of the answers of each back end.
#[derive(Debug, Default)]
pub struct Counts(RwLock<HashMap<Box<str>, Arc<[AtomicU64; Verdict::ALL.len()]>>>);

/// What became of a login at one back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted by the back end.
    Accepted,
    /// Accepted without asking the back end, because it had accepted the same password a short while ago.
    Remembered,
    /// Accepted from memory, because the back end could not tell.
    InGrace,
    /// Refused: the password is wrong, or the user is disabled.
    Refused,
    /// The back end does not have the user.
    Unknown,
    /// The back end could not tell.
    Unavailable,
    /// Too many logins waited.
    Busy,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Remembered,
        Self::InGrace,
        Self::Refused,
        Self::Unknown,
        Self::Unavailable,
        Self::Busy,
    ];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Remembered => "remembered",
            Self::InGrace => "in_grace",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
        }
    }

    pub(crate) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Accepted(_) => Self::Accepted,
            Answer::Refused(_) => Self::Refused,
            Answer::Unknown => Self::Unknown,
            Answer::Unavailable(_) => Self::Unavailable,
            Answer::Busy => Self::Busy,
        }
    }
}

impl Counts {
    pub(crate) fn add(&self, backend: &str, verdict: Verdict) {
        let known = self.0.read().get(backend).cloned();
        let counts = known.unwrap_or_else(|| {
            let mut all = self.0.write();
            Arc::clone(all.entry(backend.into()).or_default())
        });
        counts[verdict as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of each back end that was asked, in no order.
    pub fn all(&self) -> Vec<(Box<str>, Verdict, u64)> {
        let all = self.0.read();
        let counts = all.iter().flat_map(|(name, counts)| {
            Verdict::ALL.map(|verdict| {
                (name.clone(), verdict, counts[verdict as usize].load(Ordering::Relaxed))
            })
        });
        counts.collect()
    }
}
