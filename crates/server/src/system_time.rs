//! The operating system's clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barid_engine::clock::TimeSource;

/// The operating system as a source of time. A clock on the wall that stands before 1970 stands at its beginning.
pub const SYSTEM_TIME: TimeSource = TimeSource {
    ticks: Instant::now,
    unix: || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
};
