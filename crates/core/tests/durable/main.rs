//! The durable plane on a store in memory: everything that is written is read again, and nothing
//! else.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod keys;
mod queues;
mod records;
mod recovery;
mod samples;
