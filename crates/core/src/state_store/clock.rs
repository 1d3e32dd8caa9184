//! The hybrid logical clock that assigns the versions of one tenant.

use parking_lot::Mutex;
use statestore_proto::{Hlc, Version};

use crate::time::WallTime;

/// A tenant's hybrid logical clock. It never goes back: not when the wall clock does, and not over a restart if it is
/// [raised](Self::raise) to the latest version that was stored.
///
/// Its lock is held only while the clock is read or raised.
#[derive(Debug, Default)]
pub struct Clock {
    latest: Mutex<Version>,
}

impl Clock {
    /// Returns a new version, greater than all before and than `received`, which must not be [in the
    /// future](Hlc::is_in_future).
    pub fn tick(&self, now: WallTime, received: Option<Hlc<'_>>) -> Version {
        let mut latest = self.latest.lock();
        *latest = latest.next(now.as_millis(), received);
        *latest
    }

    /// The last version that was assigned.
    pub fn latest(&self) -> Version {
        *self.latest.lock()
    }

    /// Ensures that no version up to `stored` is assigned from now on.
    pub fn raise(&self, stored: Version) {
        let mut latest = self.latest.lock();
        *latest = stored.max(*latest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_also_when_the_clock_on_the_wall_goes_back() {
        let clock = Clock::default();
        let at = |millis| WallTime::from_millis(millis);
        let version = |wall, counter| Version { wall, counter };
        assert_eq!(clock.tick(at(10), None), version(10, 0));
        assert_eq!(clock.tick(at(9), None), version(10, 1));
        let fast = Hlc { wall: 30, counter: 4, node: "c" };
        assert_eq!(clock.tick(at(11), Some(fast)), version(30, 5));
        clock.raise(version(20, 9));
        assert_eq!(clock.latest(), version(30, 5));
        clock.raise(version(40, 1));
        assert_eq!(clock.tick(at(12), None), version(40, 2));
    }
}
