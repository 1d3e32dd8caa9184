//! Consequences of requests to the state store for clients: responses, notifications, and expired keys.
//!
//! Responses are published like other messages. Notifications go to the sessions of the watchers. Both are
//! queued at once, and are sent when the change that they report is durable
//! ([`Messages::after`](crate::run::Messages::after)).

mod elsewhere;
mod expiry;
mod notifications;
mod responses;
mod stamp;

pub(crate) use elsewhere::Inquiring;
pub use expiry::watch_expiries;
pub use responses::{Asking, Responses, Whom};
