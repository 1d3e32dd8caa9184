//! Keys by pattern.

use std::sync::Arc;

use statestore_proto::{Glob, Refusal};

use super::{EntryView, Partition};
use crate::time::WallTime;

/// What it costs to come to the next key, in bytes that could be compared meanwhile.
pub const STEPS_PER_KEY: usize = 64;

/// How far one search goes.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Bytes that may have to be compared, counting [`STEPS_PER_KEY`] more for each key that is looked at.
    pub steps: usize,
    /// Bytes of the keys found. The first is found whatever its length.
    pub bytes: usize,
}

/// How far a search went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The key to go on after; none: there are no more.
    pub next: Option<Arc<[u8]>>,
    /// The batch that has to be durable before anybody is told of what was found.
    pub after: Option<u64>,
}

impl<W> Partition<W> {
    /// Keys that match `pattern`, in the order of their bytes, from the first behind `after` on; an
    /// empty `after` is before all. A pattern that cannot be compared to the first of them within the
    /// limits is refused as [`Syntax`](Refusal::Syntax).
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

    /// Keys that begin with `prefix`, from the first behind `after` on, to look at.
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
