//! The clocks and the random number generator of the operating system.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barid_engine::clock::TimeSource;
use barid_engine::random::Random;
use ring::rand::{SecureRandom, SystemRandom};

/// The clocks of the operating system. A wall clock before 1970 counts as 1970-01-01.
pub const TIME: TimeSource = TimeSource {
    ticks: Instant::now,
    unix: || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
};

/// The random number generator of the operating system.
pub const RANDOM: Random = Random(|bytes| {
    SystemRandom::new().fill(bytes).expect("the operating system gives random bytes");
});

/// Returns the time of the wall clock in nanoseconds since the Unix epoch, as OpenTelemetry has it.
pub fn unix_nanoseconds() -> u64 {
    u64::try_from((TIME.unix)().as_nanos()).unwrap_or(u64::MAX)
}
