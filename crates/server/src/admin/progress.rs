//! Progress of a connection to the admin address: how long it may stay, and which connection is closed when
//! there are too many.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum duration of a connection, no matter what it asks for, from its start or from the last part of a
/// backup that its client has taken.
const PATIENCE: Duration = Duration::from_secs(60);

/// The progress of a connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Whether a request has arrived completely, and is being answered.
    is_answering: bool,
    /// Time of the last step.
    since: Instant,
    /// Time at which the connection is closed.
    deadline: Instant,
    /// [`PATIENCE`], except in tests.
    patience: Duration,
}

/// The order in which connections are closed when there are too many: first those that wait for their client,
/// and of these the one that has waited longest.
pub type Rank = (bool, Instant);

impl Progress {
    /// Creates the progress of a connection that begins now.
    pub fn new() -> Self {
        Self::with(PATIENCE)
    }

    fn with(patience: Duration) -> Self {
        let since = Instant::now();
        let deadline = since + patience;
        Self(Arc::new(Mutex::new(State { is_answering: false, since, deadline, patience })))
    }

    /// Notes that a request has arrived completely.
    pub fn answers(&self) {
        self.step(true);
    }

    /// Notes that the answer is being sent, and that the broker waits for the client.
    pub fn waits(&self) {
        self.step(false);
    }

    fn step(&self, is_answering: bool) {
        let mut state = self.0.lock();
        (state.is_answering, state.since) = (is_answering, Instant::now());
    }

    /// Moves the deadline, because the client has taken a part of a long answer.
    pub fn postpone(&self) {
        let mut state = self.0.lock();
        state.since = Instant::now();
        state.deadline = state.since + state.patience;
    }

    /// Returns the connection's place in the order. The lowest is closed first.
    pub fn rank(&self) -> Rank {
        let state = self.0.lock();
        (state.is_answering, state.since)
    }

    /// Runs `connection` until the deadline. Returns `None` if the deadline cut it off.
    pub async fn bound<F: Future>(&self, connection: F) -> Option<F::Output> {
        let mut connection = std::pin::pin!(connection);
        loop {
            let deadline = self.0.lock().deadline;
            if let Ok(ended) = tokio::time::timeout_at(deadline, &mut connection).await {
                return Some(ended);
            }
            if self.0.lock().deadline <= Instant::now() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for a thread that has to wait for a processor.
    const PATIENCE: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn the_deadline_moves_with_what_is_taken_and_then_cuts_off() {
        let progress = Progress::with(PATIENCE);
        let started = Instant::now();
        let taking = progress.clone();
        let connection = async move {
            for _ in 0..3 {
                tokio::time::sleep(PATIENCE / 2).await;
                taking.postpone();
            }
            std::future::pending::<()>().await;
        };
        assert_eq!(progress.bound(connection).await, None);
        assert!(started.elapsed() >= PATIENCE * 5 / 2);
        assert_eq!(Progress::new().bound(async { 1 }).await, Some(1));
    }

    #[tokio::test]
    async fn whoever_keeps_the_broker_waiting_longest_goes_first() {
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(Progress::new());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        all[0].answers();
        all[1].waits();
        all[2].postpone();
        let mut order: Vec<usize> = (0..4).collect();
        order.sort_by_key(|index| all[*index].rank());
        assert_eq!(order[0], 3, "it has not come further since it began");
        assert_eq!(order[3], 0, "it waits for the broker");
    }
}
