//! What the operating system tells: the time, and numbers that nobody can foresee.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barid_engine::clock::TimeSource;
use barid_engine::random::Random;
use ring::rand::{SecureRandom, SystemRandom};

/// Its clocks. One on the wall that stands before 1970 stands at its beginning.
pub const TIME: TimeSource = TimeSource {
    ticks: Instant::now,
    unix: || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
};

/// Its random numbers.
pub const RANDOM: Random = Random(|bytes| {
    SystemRandom::new().fill(bytes).expect("the operating system gives random bytes");
});
