//! A server that does not answer is not asked for a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time for which a server that has failed is not asked.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// Circuit breaker: after a failure nobody asks for [`PAUSE`], then one asker finds out whether the server
/// answers again. Without it, each login would wait for the timeout of a server that hangs.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The reason of the last failure, and when the server may be asked again. `None`: the server answers.
    failed: Option<(Box<str>, Instant)>,
}

impl Breaker {
    /// Returns whether the server may be asked.
    ///
    /// # Errors
    /// The reason of the last failure, if that was a moment ago, or if another asker is finding out.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Box<str>> {
        let mut state = self.0.lock();
        match &mut state.failed {
            Some((reason, until)) if now < *until => Err(reason.clone()),
            Some((_, until)) => {
                // This asker finds out. If it is given up, the next one follows after the pause.
                *until = now + PAUSE;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the reason of the last failure; `None`: the server answers.
    pub(crate) fn failure(&self) -> Option<Box<str>> {
        self.0.lock().failed.as_ref().map(|(reason, _)| reason.clone())
    }

    /// Notes that the server has answered. Returns whether it had failed before.
    pub(crate) fn answers(&self) -> bool {
        self.0.lock().failed.take().is_some()
    }

    /// Notes that the server has failed. Returns whether it had answered before.
    pub(crate) fn fails(&self, reason: &str, now: Instant) -> bool {
        let failed = &mut self.0.lock().failed;
        let is_new = failed.is_none();
        *failed = Some((reason.into(), now + PAUSE));
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asker_in_a_second_finds_out() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.check(start), Ok(()));
        assert!(!breaker.answers());
        assert!(breaker.fails("gone", start) && !breaker.fails("gone", start));
        assert_eq!(breaker.check(start), Err("gone".into()));
        assert_eq!(breaker.check(start + PAUSE), Ok(()));
        assert_eq!(breaker.check(start + PAUSE), Err("gone".into()));
        assert_eq!(breaker.check(start + PAUSE * 2), Ok(()));
        assert!(breaker.answers());
        assert_eq!(breaker.check(start + PAUSE * 2), Ok(()));
    }
}
