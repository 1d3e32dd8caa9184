//! The locks of `shuttle`, with the interface of `parking_lot`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync;

/// A mutual exclusion lock.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// The right to use what a [`Mutex`] protects.
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

/// A lock that many may hold to read.
#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

/// The right to read what an [`RwLock`] protects.
pub type RwLockReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;

/// A condition variable.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

/// Whether a wait has ended without a notification.
pub struct WaitTimeoutResult(bool);

const POISONED: &str = "a thread has panicked";

impl<T> Mutex<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until nobody holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(POISONED)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken during a wait only")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is taken during a wait only")
    }
}

impl<T> RwLock<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until nobody holds it to write.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(POISONED)
    }

    /// Waits until nobody holds it.
    pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISONED)
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.0.try_write().is_err()
    }
}

impl Condvar {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notification. Time does not pass here: a wait with a patience of zero ends at once, others do not
    /// end by themselves.
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        patience: Duration,
    ) -> WaitTimeoutResult {
        if patience.is_zero() {
            return WaitTimeoutResult(true);
        }
        let held = guard.0.take().expect("nobody waits twice at a time");
        guard.0 = Some(self.0.wait(held).expect(POISONED));
        WaitTimeoutResult(false)
    }

    /// Wakes one of those who wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    /// Whether nobody has notified.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
