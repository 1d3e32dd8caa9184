//! Listing of keys by pattern.

use std::sync::Arc;

use statestore_proto::{Glob, Refusal};

use super::{EntryView, Partition};
use crate::time::WallTime;

/// Cost of moving to the next key, expressed as the number of bytes that could be compared in that time.
pub const STEPS_PER_KEY: usize = 64;

/// Limits of one search.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Maximum number of bytes to compare, with [`STEPS_PER_KEY`] added for each key that is visited.
    pub steps: usize,
    /// Maximum number of bytes of the keys found. The first key is returned whatever its length.
    pub bytes: usize,
}

/// The end of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The key after which to continue; `None`: there are no more keys.
    pub next: Option<Arc<[u8]>>,
    /// The batch that must be durable before anybody is told of the keys found.
    pub after: Option<u64>,
}

impl<W> Partition<W> {
    /// Visits the keys that match `pattern` and come after `after`, in the order of their bytes; an empty `after` comes
    /// before all keys. A pattern that cannot be compared to the first key within the limits is refused as
    /// [`Syntax`](Refusal::Syntax).
    pub fn scan<'a>(
        &'a self,
        now: WallTime,
        after: &[u8],
        pattern: &Glob,
        limits: ScanLimits,
        mut visit: impl FnMut(&'a Arc<[u8]>),
    ) -> Result<Scanned, Refusal> {
        let (mut found, mut steps, mut last) = (0_usize, 0_usize, None::<&Arc<[u8]>>);
        let told = self.changed();
        for (key, entry) in self.all().range(pattern.literal_prefix(), after) {
            steps = steps.saturating_add(STEPS_PER_KEY + pattern.steps_max(key.len()));
            if steps > limits.steps {
                let next = Some(last.cloned().ok_or(Refusal::Syntax)?);
                return Ok(Scanned { next, after: told });
            }
            let matches = !entry.is_expired(now) && pattern.matches(key);
            let more = if matches { found.saturating_add(key.len()) } else { found };
            if found > 0 && more > limits.bytes {
                return Ok(Scanned { next: last.cloned(), after: told });
            }
            if matches {
                visit(key);
            }
            (found, last) = (more, Some(key));
        }
        Ok(Scanned { next: None, after: told })
    }

    /// Views of the keys that begin with `prefix` and come after `after`.
    pub fn entries<'a>(
        &'a self,
        now: WallTime,
        prefix: &'a [u8],
        after: &[u8],
    ) -> impl Iterator<Item = EntryView<'a>> {
        self.all()
            .range(prefix, after)
            .filter(move |(_, entry)| !entry.is_expired(now))
            .map(|(key, entry)| entry.view(key))
    }
}
