//! The verification of password hashes, which takes milliseconds by design.

use std::sync::Arc;

use crate::asker::Asker;
use crate::gate::Gate;
use crate::password;

/// Maximum number of logins that wait for one thread. Beyond it, a client is told that the server is busy;
/// otherwise it would wait for longer than its connection may take to open.
const WAITING_PER_THREAD: usize = 256;

/// Verifies passwords on a bounded number of threads.
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
        let permit = self.gate.enter(client).await?;
        let password = password.to_vec();
        let verifying = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            password::verify(&hash, &password)
        });
        Some(verifying.await.unwrap_or(false))
    }
}
