//! The threads for work that takes long: the verification of password hashes, which takes milliseconds by design, and of
//! signatures.

use std::sync::Arc;

use crate::asker::Asker;
use crate::gate::Gate;
use crate::password;

/// Maximum number of logins that wait for one thread. Beyond it, a client is told that the server is busy;
/// otherwise it would wait for longer than its connection may take to open.
const WAITING_PER_THREAD: usize = 256;

/// Verifies passwords and signatures on a bounded number of threads.
#[derive(Clone, Debug)]
pub struct Hashing {
    gate: Arc<Gate>,
}

impl Hashing {
    /// Uses at most `threads` threads at a time.
    pub fn new(threads: usize) -> Self {
        Self { gate: Gate::new(threads, WAITING_PER_THREAD * threads) }
    }

    /// Returns the number of logins that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    /// Verifies a password for a client, on a thread for blocking work. `None`: too many logins wait.
    pub async fn verify(&self, client: Asker<'_>, hash: String, password: &[u8]) -> Option<bool> {
        let password = password.to_vec();
        self.run(client, move || password::verify(&hash, &password)).await
    }

    /// Does `work` for a client on a thread for blocking work. `None`: too many logins wait, or the broker stops.
    pub async fn run<T: Send + 'static>(
        &self,
        client: Asker<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.gate.enter(client).await?;
        let working = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        working.await.ok()
    }
}
