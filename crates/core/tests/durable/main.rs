//! The durable plane over a store in memory: what is written is read again, and nothing else is.

mod keys;
mod records;
mod recovery;
mod samples;
