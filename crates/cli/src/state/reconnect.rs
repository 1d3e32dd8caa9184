//! Reconnecting with increasing pauses.

use std::time::Duration;

use super::refused::Refused;
use crate::client::Failure;

/// Pauses between attempts: each is twice as long as the one before, up to a maximum.
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

const FIRST: Duration = Duration::from_millis(500);

impl Pauses {
    pub fn up_to(longest: Duration) -> Self {
        Self { next: FIRST.min(longest), longest }
    }

    /// Returns the pause before the next attempt after this failure; `None` if another attempt is
    /// useless.
    pub fn after(&mut self, error: &anyhow::Error) -> Option<Duration> {
        let lasting = match error.downcast_ref::<Failure>() {
            Some(failure) => !failure.is_temporary(),
            None => error.downcast_ref::<Refused>().is_some_and(|refused| !refused.may_pass()),
        };
        if lasting {
            return None;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        Some(pause)
    }

    /// Starts again with the shortest pause, after a success.
    pub fn reset(&mut self) {
        self.next = FIRST.min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use mqtt_proto::{Properties, ReasonCode};
    use statestore_proto::{Command, Refusal};

    use super::*;

    #[test]
    fn longer_and_longer() {
        let mut pauses = Pauses::up_to(Duration::from_millis(1_500));
        let lost = anyhow!("the connection is lost");
        let mut next = || pauses.after(&lost).map(|pause| pause.as_millis());
        assert_eq!([next(), next(), next(), next()], [500, 1_000, 1_500, 1_500].map(Some));
        pauses.reset();
        assert_eq!(pauses.after(&lost), Some(FIRST));
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let mut pauses = Pauses::up_to(FIRST);
        let refused = |reason| Failure::refused("x", reason, Properties::EMPTY).into();
        assert!(pauses.after(&refused(ReasonCode::ServerBusy)).is_some());
        assert!(pauses.after(&Failure::Timeout("x").into()).is_some());
        assert!(pauses.after(&refused(ReasonCode::NotAuthorized)).is_none());
        assert!(pauses.after(&refused(ReasonCode::SessionTakenOver)).is_none());
        let command = Command::Get { key: b"k" };
        let refused = Refused::new(Refusal::NotAuthorized, &command);
        assert!(pauses.after(&refused.into()).is_none());
        let away = Refused::new(Refusal::QuotaExceeded, &command);
        assert!(pauses.after(&away.into()).is_some());
    }
}
