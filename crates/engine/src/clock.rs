//! The broker's clock.

use std::time::{Duration, Instant};

use barid_core::time::{MonoTime, WallTime};

/// A source of time: the operating system, or a simulation. Nothing else in the engine reads a clock.
#[derive(Clone, Copy, Debug)]
pub struct TimeSource {
    /// A clock that never goes back.
    pub ticks: fn() -> Instant,
    /// Wall clock: time since the Unix epoch.
    pub unix: fn() -> Duration,
}

/// Wall time at the start plus monotonic time since: never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: TimeSource,
    start: Instant,
    start_unix: Duration,
}

impl Clock {
    /// A clock that starts now.
    pub fn start(source: TimeSource) -> Self {
        Self { source, start: (source.ticks)(), start_unix: (source.unix)() }
    }

    /// The present, for measuring how long something takes.
    pub fn instant(&self) -> Instant {
        (self.source.ticks)()
    }

    /// The time.
    pub fn now(&self) -> MonoTime {
        self.at(self.instant())
    }

    /// The time at an instant that was just taken.
    pub fn at(&self, instant: Instant) -> MonoTime {
        MonoTime::from_millis(0).after(self.start_unix + (instant - self.start))
    }

    /// What the operating system's clock says. It follows all corrections, also backwards, and goes on while
    /// the machine sleeps: for what others compare with their own clocks.
    pub fn wall(&self) -> WallTime {
        WallTime::from_millis(0).after((self.source.unix)())
    }

    /// When this clock will say that the operating system's is at `wall`, if nobody corrects that.
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

    /// Both clocks stand still at the Unix epoch.
    pub fn stopped() -> Clock {
        Clock::start(TimeSource { ticks: || *EPOCH, unix: || Duration::ZERO })
    }
}
