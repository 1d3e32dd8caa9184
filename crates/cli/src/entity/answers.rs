//! Answers of the admin address about entities: `docs/operating/admin-api.md`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::Moment;

/// A queue, a topic or a subscription.
#[derive(Debug, Deserialize)]
pub struct Described {
    pub name: String,
    pub properties: Map<String, Value>,
    /// `None` for a topic, which holds no messages.
    pub counts: Option<Counts>,
    /// Subscriptions of a topic.
    #[serde(default)]
    pub subscriptions: Vec<String>,
    /// Rules of a subscription.
    #[serde(default)]
    pub rules: Vec<Value>,
}

/// Contents of a queue or subscription.
#[derive(Debug, Deserialize)]
pub struct Counts {
    pub active: u64,
    pub locked: u64,
    pub deferred: u64,
    pub scheduled: u64,
    pub dead_lettered: u64,
    pub transfer_dead_lettered: u64,
    pub sessions: u64,
    pub bytes: u64,
    pub oldest_enqueued_at: Option<Moment>,
}

impl Counts {
    /// Returns the number of all messages.
    pub fn messages(&self) -> u64 {
        self.active
            + self.locked
            + self.deferred
            + self.scheduled
            + self.dead_lettered
            + self.transfer_dead_lettered
    }
}
