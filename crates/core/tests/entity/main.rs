//! Queues and subscriptions: tests of each rule of their semantics, and random histories compared with a simple model.

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
