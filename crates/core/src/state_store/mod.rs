//! The state store: keys and values that clients set, lock and watch.
//!
//! The keys of a tenant are dealt out to the shards of the data directory; those in one shard are a
//! [`Partition`], in memory. What its tenant has in all shards together is one [`Clock`] and one
//! [`Usage`]. Every change of a key has a version of that clock, greater than any before, whatever the
//! key: so a version may serve as fencing token for other keys.
//!
//! A partition does nothing but change: what follows from a change is told to [`Effects`], whose batch
//! numbers say when the [`Answer`] may leave. *Nobody is told what a crash could take back*: who is told
//! of a value, or that there is none, waits until that is durable. Keys that are not stored wait for
//! nothing, but for a version that is ahead of the clock on the wall, which another process might give
//! again.
//!
//! | module | what is there |
//! | --- | --- |
//! | `partition` | what the commands do with keys |
//! | `entries`, `entry` | keys, and what each has |
//! | `request`, `answer` | what comes with a command, and what its client is told |
//! | `effects` | what else follows |
//! | `fencing` | tokens that keep out who has lost a lock |
//! | `clock` | the versions of one tenant |
//! | `usage` | how much of its quota a tenant has used |
//! | `expiries` | which key goes next |
//! | `watchers` | who is told of changes |
//! | `answered` | answers, for requests that are sent again |
//! | `scan` | keys by pattern |

mod answer;
mod answered;
mod clock;
mod effects;
mod entries;
mod entry;
mod expiries;
mod fencing;
mod partition;
mod records;
mod request;
mod scan;
mod usage;
mod watchers;

pub use answer::{Answer, Outcome, Verdict};
pub use answered::{ANSWERED_LEAST, ANSWERED_MAX, ANSWERED_TENANT_MAX};
pub use clock::Clock;
pub use effects::Effects;
pub use entry::{ENTRY_BYTES, EntryView};
pub use fencing::FencingToken;
pub use partition::{EXPIRED_AT_ONCE_MAX, KEY_LEN_MAX, Partition};
pub use records::{AnsweredRecord, StateRecord};
pub use request::{Origin, Request, Scope, Set};
pub use scan::{STEPS_PER_KEY, ScanLimits, Scanned};
pub use usage::{Limits, Usage};
pub use watchers::Watcher;
