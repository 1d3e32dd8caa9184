//! The broker's clock.

use std::time::{Duration, Instant};

use barid_core::time::{MonoTime, WallTime};

/// A source of time: the operating system, or a simulation. Nothing else in the engine reads a clock.
#[derive(Clone, Copy, Debug)]
pub struct TimeSource {
    /// Monotonic clock.
    pub ticks: fn() -> Instant,
    /// Wall clock: time since the Unix epoch.
    pub unix: fn() -> Duration,
}

/// The broker's clock: the wall time at its start plus the monotonic time since. It never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: TimeSource,
    start: Instant,
    start_unix: Duration,
}

impl Clock {
    /// Starts a clock now.
    pub fn start(source: TimeSource) -> Self {
        Self { source, start: (source.ticks)(), start_unix: (source.unix)() }
    }

    /// Returns the current instant, for measuring durations.
    pub fn instant(&self) -> Instant {
        (self.source.ticks)()
    }

    /// Returns the current time.
    pub fn now(&self) -> MonoTime {
        self.at(self.instant())
    }

    /// Returns the time at an instant that was just read.
    pub fn at(&self, instant: Instant) -> MonoTime {
        MonoTime::from_millis(0).after(self.start_unix + (instant - self.start))
    }

    /// Returns the wall time. The wall clock follows all corrections, also backwards, and continues while the
    /// machine sleeps. It is for times that clients compare with their own clocks.
    pub fn wall(&self) -> WallTime {
        WallTime::from_millis(0).after((self.source.unix)())
    }

    /// Returns the wall time in microseconds since the Unix epoch, to compare moments on several machines.
    pub fn wall_micros(&self) -> u64 {
        u64::try_from((self.source.unix)().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the time of this clock at which the wall clock will show `wall`, if the wall clock is not
    /// corrected until then.
    pub fn when(&self, wall: WallTime) -> MonoTime {
        self.now().after(wall.since(self.wall()))
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.instant() - self.start
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;

    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Returns a clock whose sources both stand still. The wall time is the Unix epoch.
    pub fn stopped() -> Clock {
        Clock::start(TimeSource { ticks: || *EPOCH, unix: || Duration::ZERO })
    }
}
