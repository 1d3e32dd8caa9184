//! Counts of the spans that were sent to the collector or given up, and of failed requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start of the broker.
#[derive(Debug, Default)]
pub struct TelemetryCounts {
    sent: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

impl TelemetryCounts {
    /// Counts spans that the collector has accepted.
    pub fn sent(&self, spans: usize) {
        self.sent.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Counts spans that were given up because the collector cannot be reached or refuses them.
    pub fn lose(&self, spans: usize) {
        self.lost.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Counts a request that has failed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the spans that were sent, those that were given up, and the requests that have failed.
    pub fn all(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.sent), read(&self.lost), read(&self.failed))
    }
}
