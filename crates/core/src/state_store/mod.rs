//! The state store: keys and values that clients set, lock and watch.
//!
//! The keys of a tenant are distributed over the shards of the data directory. Those in one shard are a [`Partition`],
//! in memory. All partitions of a tenant share one [`Clock`] and one [`Usage`]. Every change of a key gets a version of
//! that clock, greater than any version before, of whatever key: therefore a version can serve as the fencing token for
//! other keys.
//!
//! A partition only changes keys. It passes the consequences of a change to [`Effects`], whose batch numbers say when
//! the [`Answer`] may be sent. *Nobody is told what a crash could take back*: an answer with a value, or that there is
//! none, waits until that is durable. Answers about keys that are not stored wait for nothing, except for a version
//! that is ahead of the wall clock, which another process might assign again.
//!
//! | module | contents |
//! | --- | --- |
//! | `partition` | execution of the commands |
//! | `entries`, `entry` | the keys, and the entry of each |
//! | `request`, `answer` | the parameters of a command, and the answer to its client |
//! | `effects` | consequences of a command: changes of the store, and notifications |
//! | `fencing` | tokens that keep out clients that have lost a lock |
//! | `clock` | the versions of one tenant |
//! | `usage` | how much of its quota a tenant has used |
//! | `holding` | how much of it belongs to each user |
//! | `expiries` | expiry times, and the timer for the next one |
//! | `watchers` | connections that are told of changes |
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
mod holding;
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
pub use request::{Origin, Request, Requesting, Scope, Set};
pub use scan::{STEPS_PER_KEY, ScanLimits, Scanned};
pub use usage::{Exceeded, Limits, Usage};
pub use watchers::Watcher;
