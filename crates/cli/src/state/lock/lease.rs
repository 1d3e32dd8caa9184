//! The lease of the lock, shared by the thread that renews it and the thread that supervises the
//! command.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A lease, which is extended in time or lost for good.
pub struct Lease {
    state: Mutex<State>,
    /// Notified when the command has ended.
    ended: Condvar,
}

struct State {
    until: Instant,
    /// Reason why the lease was lost.
    lost: Option<String>,
    /// The command has ended: the lease is no longer needed.
    ended: bool,
}

impl Lease {
    pub fn until(until: Instant) -> Self {
        let state = State { until, lost: None, ended: false };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Extends the lease after a renewal. This has no effect on a lost lease.
    pub fn extend(&self, until: Instant) {
        let mut state = self.state();
        state.look(Instant::now());
        if state.lost.is_none() {
            state.until = until;
        }
    }

    /// Marks the lease as lost: somebody else has the lock, or nobody.
    pub fn lose(&self, why: impl Into<String>) {
        let mut state = self.state();
        if state.lost.is_none() && !state.ended {
            state.lost = Some(why.into());
        }
    }

    /// Returns the reason why the lease was lost, if it was.
    pub fn lost(&self, now: Instant) -> Option<String> {
        let mut state = self.state();
        state.look(now);
        state.lost.clone()
    }

    pub fn is_lost(&self) -> bool {
        self.state().lost.is_some()
    }

    /// Notes that the command has ended.
    pub fn end(&self) {
        self.state().ended = true;
        self.ended.notify_all();
    }

    /// Whether the lease is still needed and not lost.
    pub fn is_kept(&self) -> bool {
        let mut state = self.state();
        state.look(Instant::now());
        state.lost.is_none() && !state.ended
    }

    /// Sleeps, until the end of the command at the latest.
    pub fn sleep(&self, pause: Duration) {
        let state = self.state();
        let wait = self.ended.wait_timeout_while(state, pause, |state| !state.ended);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, now: Instant) {
        if now >= self.until && self.lost.is_none() && !self.ended {
            self.lost = Some("it could not be renewed in time".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn renewed_in_time() {
        let now = Instant::now();
        let lease = Lease::until(now + SECOND);
        assert!(lease.is_kept());
        assert_eq!(lease.lost(now), None);
        lease.extend(now + 10 * SECOND);
        assert_eq!(lease.lost(now + 2 * SECOND), None);
        assert_eq!(
            lease.lost(now + 10 * SECOND).as_deref(),
            Some("it could not be renewed in time")
        );
        assert!(lease.is_lost() && !lease.is_kept());
    }

    #[test]
    fn what_is_lost_does_not_come_back() {
        let now = Instant::now();
        let lease = Lease::until(now + SECOND);
        lease.lose("it was deleted");
        lease.lose("something else");
        lease.extend(now + 10 * SECOND);
        assert_eq!(lease.lost(now).as_deref(), Some("it was deleted"));
        let late = Lease::until(now);
        late.extend(now + 10 * SECOND);
        assert!(late.is_lost(), "the renewal came after its end");
    }

    #[test]
    fn nothing_is_lost_once_the_command_has_ended() {
        let now = Instant::now();
        let lease = Lease::until(now + SECOND);
        lease.end();
        lease.lose("it was deleted");
        assert_eq!(lease.lost(now + 2 * SECOND), None);
        assert!(!lease.is_lost() && !lease.is_kept());
        lease.sleep(Duration::from_secs(3_600));
    }
}
