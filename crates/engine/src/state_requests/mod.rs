//! What follows from requests to the state store for clients: responses, notifications, keys that expire.
//!
//! Responses are published like any other message, notifications go to the sessions of those who watch; both are
//! written at once and leave when what they tell is durable ([`Messages::after`](crate::run::Messages::after)).

mod expiry;
mod notifications;
mod responses;
mod stamp;

pub use expiry::watch_expiries;
pub use responses::{Asking, Responses};
