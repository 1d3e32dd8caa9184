//! The durable plane: the state that survives the end of the process.
//!
//! Memory leads, the store follows. Each change that must survive is noted in the write set of its shard, under
//! the lock of the object that changes ([`DurableShard::change`], [`SessionJournal`]). The committer of each shard
//! appends the accumulated changes to the shard's log, one batch after the other. Code that must know when a
//! change is durable keeps the number of its batch ([`Commits`]), and is woken when the batch is durable
//! (`progress`).
//!
//! | file | contents |
//! | --- | --- |
//! | `shard.rs` | one shard: its write set, and its batches on their way to the log |
//! | `committing.rs` | the committer, which appends to the log |
//! | `finding.rs` | lookup of messages and bodies, wherever they are |
//! | `shards.rs` | all shards, and the choice of the shard of an entity |
//! | `journal.rs` | the changes of one session |
//! | `fetching.rs` | the loader, which reads back from a store |

mod committing;
mod fetching;
mod finding;
mod journal;
mod shard;
mod shards;

use std::time::Duration;

pub use barid_core::commits::Commits;
pub use committing::Committing;
pub use fetching::{Fetch, Reading};
pub use journal::{Durable, SessionJournal};
pub use shard::{ChangeGuard, DurableShard, commit_by_rounds};
pub use shards::{Shards, Storage};

/// Delay before a failed read from the disk is tried again.
pub(crate) const READ_RETRY: Duration = Duration::from_millis(500);
