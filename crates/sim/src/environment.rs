//! What the engine is told of the time, and the random numbers that it gets: both are the history's.

use std::cell::{Cell, RefCell};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use barid_engine::clock::TimeSource;
use barid_engine::random::Random;
use fastrand::Rng;

thread_local! {
    /// Milliseconds.
    static NOW: Cell<u64> = const { Cell::new(0) };
    static RNG: RefCell<Rng> = const { RefCell::new(Rng::with_seed(0)) };
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of the history that runs on this thread.
pub const TIME: TimeSource = TimeSource {
    ticks: || *EPOCH + Duration::from_millis(NOW.get()),
    unix: || Duration::from_millis(NOW.get()),
};

/// Its random numbers.
pub const RANDOM: Random = Random(|bytes| RNG.with_borrow_mut(|rng| rng.fill(bytes)));

/// A history begins on this thread.
pub fn begin(seed: u64) {
    // The first hasher of the process takes a seed for all, whichever history comes first.
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let _ = RANDOM.hasher();
    });
    RNG.with_borrow_mut(|rng| *rng = Rng::with_seed(seed));
}

/// It is so many milliseconds.
pub fn set_time(now: u64) {
    NOW.set(now);
}
