//! Readings of hybrid logical clocks: a wall-clock time, a counter that keeps the clock going forward, and the name of
//! the node that read the clock.

use std::fmt;

use crate::Refusal;

/// Maximum lead of a request over the store's clock, in milliseconds. A lead of exactly this value is accepted.
pub const DRIFT_MAX_MS: u64 = 60_000;

/// The node name in every reading of the store. Clients ignore readings of their own node, so no client should have
/// this name.
pub const NODE: &str = "StateStore";

/// Upper bound (exclusive) of the counters that the store issues, because clients read them as signed 32-bit numbers.
const COUNTER_END: u32 = i32::MAX as u32;

/// A reading of a hybrid logical clock, written `wall:counter:node`.
///
/// Readings are ordered by wall clock, counter, and the bytes of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc<'a> {
    /// Milliseconds since the Unix epoch, at most 2^63 - 1.
    pub wall: u64,
    /// Distinguishes readings of the same millisecond.
    pub counter: u32,
    /// The name of the node that read the clock. It is not empty and has no colon.
    pub node: &'a str,
}

impl<'a> Hlc<'a> {
    /// Parses the text form, with or without leading zeros.
    pub fn parse(text: &'a str) -> Result<Self, Refusal> {
        let parse = || {
            let (wall, rest) = text.split_once(':')?;
            let (counter, node) = rest.split_once(':')?;
            let wall = decimal(wall).filter(|wall| *wall <= i64::MAX as u64)?;
            let counter = u32::try_from(decimal(counter)?).ok()?;
            let valid = !node.is_empty() && !node.contains(':');
            valid.then_some(Self { wall, counter, node })
        };
        parse().ok_or(Refusal::MalformedTimestamp)
    }

    /// Returns whether the reading is too far ahead of `now_ms` to be accepted.
    pub fn is_in_future(&self, now_ms: u64) -> bool {
        self.wall > now_ms.saturating_add(DRIFT_MAX_MS)
    }
}

impl fmt::Display for Hlc<'_> {
    /// Writes leading zeros as clients do: at least 15 digits for the wall clock, and 5 for the counter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}:{:05}:{}", self.wall, self.counter, self.node)
    }
}

/// A reading of the store's own clock. Every change of a key is numbered with a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Milliseconds since the Unix epoch.
    pub wall: u64,
    /// Less than 2^31 - 1 in every version that [`Version::next`] returns.
    pub counter: u32,
}

impl Version {
    /// Returns the version that follows this one, which was the last: greater than this version and than the `received`
    /// reading, and not before `now_ms`.
    ///
    /// The caller must have refused a received reading that [is in the future](Hlc::is_in_future), since it would move
    /// the clock ahead. If the counter of the received reading is exhausted, the next version is a millisecond further
    /// ahead; the one after that is not.
    #[must_use]
    pub fn next(self, now_ms: u64, received: Option<Hlc<'_>>) -> Self {
        let received = received.map(|hlc| Self { wall: hlc.wall, counter: hlc.counter });
        let latest = received.map_or(self, |received| received.max(self));
        if now_ms > latest.wall {
            return Self { wall: now_ms, counter: 0 };
        }
        match latest.counter.saturating_add(1) {
            counter if counter < COUNTER_END => Self { wall: latest.wall, counter },
            _ => Self { wall: latest.wall.saturating_add(1), counter: 0 },
        }
    }

    /// Returns the version as a reading of the node [`NODE`].
    pub fn as_hlc(self) -> Hlc<'static> {
        Hlc { wall: self.wall, counter: self.counter, node: NODE }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_hlc().fmt(f)
    }
}

/// Parses decimal digits. A sign is not accepted, unlike in [`u64::from_str`](std::str::FromStr).
fn decimal(digits: &str) -> Option<u64> {
    crate::resp::parse_decimal(digits.as_bytes())
}
