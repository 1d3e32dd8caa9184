//! Readings of hybrid logical clocks: a wall clock that a counter keeps going forward, and the
//! name of who read it.

use std::fmt;

use crate::Refusal;

/// How far ahead of the store's clock, in milliseconds, a request may be. Exactly this far is
/// accepted.
pub const DRIFT_MAX_MS: u64 = 60_000;

/// The node of every reading that the store gives. Clients ignore readings of their own node, so none
/// should have this name.
pub const NODE: &str = "StateStore";

/// The counters that the store gives are below this, because clients read them as 32 bits with a
/// sign.
const COUNTER_END: u32 = i32::MAX as u32;

/// A reading of somebody's clock, written `wall:counter:node`.
///
/// They are ordered by wall clock, counter, and the bytes of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc<'a> {
    /// Milliseconds since the Unix epoch, at most 2^63 - 1.
    pub wall: u64,
    /// Tells readings of one millisecond apart.
    pub counter: u32,
    /// Who read it; neither empty nor with a colon.
    pub node: &'a str,
}

impl<'a> Hlc<'a> {
    /// Reads the text form, with or without leading zeros.
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

    /// Whether it is too far ahead of `now_ms` to be believed.
    pub fn is_in_future(&self, now_ms: u64) -> bool {
        self.wall > now_ms.saturating_add(DRIFT_MAX_MS)
    }
}

impl fmt::Display for Hlc<'_> {
    /// With leading zeros, as clients write it: 15 digits and 5, or as many as it takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}:{:05}:{}", self.wall, self.counter, self.node)
    }
}

/// A reading of the store's own clock, and what every change of a key is numbered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Milliseconds since the Unix epoch.
    pub wall: u64,
    /// Below 2^31 - 1 in every version that [`Version::next`] gives.
    pub counter: u32,
}

impl Version {
    /// The next version if this one was the last: greater than it and than what was `received`,
    /// and not before `now_ms`.
    ///
    /// The caller has refused a received reading that [is in the future](Hlc::is_in_future), or
    /// the clock would be carried away by it. If what was received has no counter left, the next
    /// version is a millisecond further ahead; the one after that is not.
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

    /// As a reading of the node [`NODE`].
    pub fn as_hlc(self) -> Hlc<'static> {
        Hlc { wall: self.wall, counter: self.counter, node: NODE }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_hlc().fmt(f)
    }
}

/// Digits alone: no sign, as [`u64::from_str`](std::str::FromStr) would allow one.
fn decimal(digits: &str) -> Option<u64> {
    crate::resp::parse_decimal(digits.as_bytes())
}
