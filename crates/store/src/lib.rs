//! Ordered keys and values that survive a crash.
//!
//! [`Store`] is the port: get, scan, commit a [`Batch`] that is durable on return, take a [`Snapshot`]. Three engines
//! implement it: [`memory`], for tests and simulations; [`lsm`], an embedded log-structured merge tree; and [`log`], an
//! ordered log with its keys in memory. [`DataDir`] is the directory of a broker: several shards, each of them a store
//! with a journal of its own. A [`changelog`] is what batches pass through on their way to a store. This crate does not
//! interpret keys or values.

pub mod backup;
pub mod changelog;
pub mod log;
pub mod lsm;
pub mod memory;
pub mod private;

mod batch;
mod checksum;
mod damaged;
mod data_dir;
mod error;
mod port;
mod salvage;
mod space;
mod verify;

pub use batch::{Batch, Change};
pub use damaged::{Damaged, LostRecord};
pub use data_dir::{DataDir, Engine, Options};
pub use error::StoreError;
pub use port::{Keyspace, Snapshot, Store, Visit};
pub use salvage::salvage;
pub use space::free_bytes;
pub use verify::{Check, Contents, Loss, Progress, Report, verify};
