//! The durable plane over a store in memory: what is written is read again, and nothing else is.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod keys;
mod queues;
mod records;
mod recovery;
mod samples;
