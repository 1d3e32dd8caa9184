//! The time and the random numbers that the engine gets. Both belong to the history.

use std::cell::{Cell, RefCell};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use barid_engine::clock::TimeSource;
use barid_engine::random::Random;
use fastrand::Rng;

thread_local! {
    /// Time of the history, in milliseconds.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// Milliseconds by which the wall clock is ahead of it.
    static AHEAD: Cell<i64> = const { Cell::new(0) };
    static RNG: RefCell<Rng> = const { RefCell::new(Rng::with_seed(0)) };
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time source of the history that runs on this thread.
pub const TIME: TimeSource = TimeSource {
    ticks: || *EPOCH + Duration::from_millis(NOW.get()),
    unix: || Duration::from_millis(NOW.get().saturating_add_signed(AHEAD.get())),
};

/// Random numbers of the history that runs on this thread.
pub const RANDOM: Random = Random(|bytes| RNG.with_borrow_mut(|rng| rng.fill(bytes)));

/// Begins a history on this thread.
pub fn begin(seed: u64) {
    // The first hasher of a process draws a seed for all hashers. It is created before the random numbers of
    // this history are seeded, so that the draw does not change the first history.
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let _ = RANDOM.hasher();
    });
    RNG.with_borrow_mut(|rng| *rng = Rng::with_seed(seed));
}

/// Sets the time of the history, in milliseconds.
pub fn set_time(now: u64) {
    set_clocks(now, 0);
}

/// Sets the time of the history, in milliseconds, and by how much the wall clock is ahead of it.
pub fn set_clocks(now: u64, ahead: i64) {
    NOW.set(now);
    AHEAD.set(ahead);
}
