//! The locks of `shuttle` with the interface of `parking_lot`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync;

/// A mutual exclusion lock.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Exclusive access to the value of a [`Mutex`].
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

/// A reader-writer lock.
#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

/// Shared access to the value of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;

/// A condition variable.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

/// The result of [`Condvar::wait_for`].
pub struct WaitTimeoutResult(bool);

const POISONED: &str = "a thread has panicked";

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks the mutex; waits until it is free.
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
    /// Creates a lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Locks it for reading; waits until no writer holds it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(POISONED)
    }

    /// Locks it for writing; waits until nobody holds it.
    pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISONED)
    }

    /// Whether a reader or a writer holds it.
    pub fn is_locked(&self) -> bool {
        self.0.try_write().is_err()
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notification. Time does not pass under `shuttle`: with a `patience` of zero the wait ends
    /// at once, with any other it ends only when notified.
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

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    /// Whether the wait ended without a notification.
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
