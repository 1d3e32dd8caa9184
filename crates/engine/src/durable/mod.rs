//! The durable plane: what of sessions and retained messages survives the end of the process.
//!
//! What is in memory leads. Each change that must survive is noted in the write set of its shard, under
//! the lock of what it changes ([`DurableShard::change`], [`SessionJournal`]). The committer of each shard
//! appends what has accumulated to the shard's log as one batch, again and again. Who has to know that something is durable
//! remembers the number of the batch ([`Commits`]) and is woken when it is ([`progress`](crate::progress)).
//!
//! | file | what is there |
//! | --- | --- |
//! | `shard.rs` | one shard: its write set, and what of it is on its way to the log |
//! | `committing.rs` | the committer, which appends to the log |
//! | `finding.rs` | messages and bodies, wherever they are |
//! | `shards.rs` | all of them; which one an entity belongs to |
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

/// How long the disk is left alone after it could not be read.
pub const READ_RETRY: Duration = Duration::from_millis(500);
