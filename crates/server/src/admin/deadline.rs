//! How long a connection to the admin address may stay.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a connection may stay, whatever is asked on it, since it began or last took a part of a
/// backup.
const PATIENCE: Duration = Duration::from_secs(60);

/// When a connection has to be gone. Clones are of the same one.
#[derive(Clone, Debug)]
pub struct Deadline(Arc<Mutex<Instant>>);

impl Default for Deadline {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + PATIENCE)))
    }
}

impl Deadline {
    /// The client has taken a part of something long: it has time again.
    pub fn postpone(&self) {
        *self.0.lock() = Instant::now() + PATIENCE;
    }

    /// Lets `connection` go on until the deadline. `None`: it was cut off.
    pub async fn bound<F: Future>(&self, connection: F) -> Option<F::Output> {
        let mut connection = std::pin::pin!(connection);
        loop {
            let deadline = *self.0.lock();
            if let Ok(ended) = tokio::time::timeout_at(deadline, &mut connection).await {
                return Some(ended);
            }
            if *self.0.lock() <= Instant::now() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_with_what_is_taken_and_then_cuts_off() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::time::pause();
            let deadline = Deadline::default();
            let started = Instant::now();
            let taking = deadline.clone();
            let connection = async move {
                for _ in 0..3 {
                    tokio::time::sleep(PATIENCE / 2).await;
                    taking.postpone();
                }
                std::future::pending::<()>().await;
            };
            assert_eq!(deadline.bound(connection).await, None);
            assert_eq!(started.elapsed().as_secs(), (PATIENCE * 5 / 2).as_secs());
            assert_eq!(Deadline::default().bound(async { 1 }).await, Some(1));
        });
    }
}
