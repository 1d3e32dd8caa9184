//! Queues and subscriptions: what each statement of their semantics means, and random histories against a
//! simple model.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod accepting;
mod browsing;
mod dead_letters;
mod deferring;
mod delivery_count;
mod expiring;
mod locking;
mod model;
mod ordering;
mod plain;
mod recovering;
mod scheduling;
mod sending;
mod state;
mod store;
mod world;
