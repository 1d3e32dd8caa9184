//! The broker's clock: the one place that asks the operating system for the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barid_core::time::{MonoTime, WallTime};

/// Wall time at the start plus monotonic time since: never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_unix: Duration,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            start_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// The time.
    pub fn now(&self) -> MonoTime {
        self.at(Instant::now())
    }

    /// The time at an instant that was just taken.
    pub fn at(&self, instant: Instant) -> MonoTime {
        MonoTime::from_millis(0).after(self.start_unix + (instant - self.start))
    }

    /// What the operating system's clock says. It follows all corrections, also backwards, and goes on while
    /// the machine sleeps: for what others compare with their own clocks.
    pub fn wall(&self) -> WallTime {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime::from_millis(0).after(since_epoch)
    }

    /// When this clock will say that the operating system's is at `wall`, if nobody corrects that.
    pub fn when(&self, wall: WallTime) -> MonoTime {
        self.now().after(wall.since(self.wall()))
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }
}
