//! Answers of the admin address, as far as the tools need them: `docs/operating/admin-api.md`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Moment;

/// Answer to `/v1/tenants`.
#[derive(Debug, Deserialize)]
pub struct Tenants {
    pub tenants: Vec<Tenant>,
}

#[derive(Debug, Deserialize)]
pub struct Tenant {
    pub name: String,
}

/// A session. `S` is the number of its subscriptions, or a list of them.
#[derive(Debug, Deserialize)]
pub struct Session<S> {
    pub client: String,
    pub connected: bool,
    pub protocol: Option<String>,
    pub user: Option<String>,
    pub durability: String,
    /// `None` if the session does not expire.
    pub expiry_seconds: Option<u32>,
    pub expires_at: Option<Moment>,
    pub subscriptions: S,
    pub queued_messages: u64,
    pub queued_bytes: u64,
    pub oldest_queued_at: Option<Moment>,
    pub in_flight: u64,
    pub unreleased: u64,
    /// The broker of the cluster that has it, in a list.
    pub broker: Option<String>,
}

/// Answer to `/v1/tenants/{tenant}/sessions/{client}`.
#[derive(Debug, Deserialize)]
pub struct Detailed {
    #[serde(flatten)]
    pub session: Session<Vec<Subscription>>,
    pub will: Option<Will>,
}

#[derive(Debug, Deserialize)]
pub struct Subscription {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub identifier: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct Will {
    pub topic: String,
    pub delay_seconds: u32,
}

/// Answer to `/v1/tenants/{tenant}/drops`.
#[derive(Debug, Deserialize)]
pub struct Drops {
    pub drops: Vec<Dropped>,
    pub totals: BTreeMap<String, u64>,
    pub remembered: u64,
}

/// Answer to `/v1/tenants/{tenant}/logins`.
#[derive(Deserialize)]
pub struct Logins {
    /// The back ends that are asked, in this order. Empty: any client may connect.
    pub back_ends: Vec<String>,
}

/// Answer to `/v1/tenants/{tenant}/denials`.
#[derive(Debug, Default, Deserialize)]
pub struct Denials {
    pub denials: Vec<Denied>,
}

#[derive(Debug, Deserialize)]
pub struct Denied {
    pub at: Moment,
    pub action: String,
    pub count: u64,
    pub user: Option<String>,
    pub client: String,
    pub address: String,
    pub object: Option<String>,
    pub reason: String,
}

/// A connection in the answer to `/v1/tenants/{tenant}/amqp-connections`.
#[derive(Debug, Deserialize)]
pub struct AmqpConnection {
    pub id: u64,
    pub container: String,
    pub key: Option<String>,
    pub user: Option<String>,
    pub address: String,
    pub connected_at: Moment,
}

#[derive(Debug, Deserialize)]
pub struct Dropped {
    pub at: Moment,
    pub topic: Option<String>,
    pub reason: String,
    pub explanation: String,
}
