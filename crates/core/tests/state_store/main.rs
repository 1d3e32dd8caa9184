//! The state store from its callers' point of view: one partition, a clock that is a number, and a shard whose batches
//! are counted.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod model;
mod recovery;
mod script;
mod semantics;
