//! Locks, condition variables, and the atomics on which the order of threads depends.
//!
//! With the feature `shuttle`, they belong to a scheduler that explores many interleavings of threads. Only
//! tests use that feature: a broker uses the locks of `parking_lot`.

#[cfg(feature = "shuttle")]
mod explored;

#[cfg(feature = "shuttle")]
pub use explored::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;
