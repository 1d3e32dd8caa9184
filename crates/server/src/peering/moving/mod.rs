//! Move links: slots that change their broker.
//!
//! ```text
//!  the broker that has the slot          the one that gets it        the others
//!    disconnects the clients
//!    Hold                        ──►     ──────────────────────►
//!                                ◄──     ◄──────────────────────    Held
//!    Part …, Stage               ──►     writes a file
//!                                ◄──     Staged
//!    stores where the slot is
//!    Activate                    ──►     adopts the contents
//!                                ◄──     Active
//!    forgets the contents
//!    (closes the links)                  publishes again            publishes again
//! ```
//!
//! While all brokers hold, no message is under way, so none misses the sessions of the slot, and none reaches them twice.
//! The stored line is the decision. Before it, the slot stays whatever fails; after it, the slot is at the other broker, and
//! its file has the contents, whoever crashes.
//!
//! | file | what is there |
//! | --- | --- |
//! | `giving.rs` | the side of the broker that has the slot |
//! | `taking.rs` | the side of the others |
//! | `settling.rs` | slots whose files are here, and what is left of slots that were moved away |

mod giving;
mod settling;
mod taking;

pub use giving::move_slots;
pub use settling::{settle, settle_slots};
pub use taking::take_slots;

use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_engine::cluster::Slots;
use barid_engine::engine::Engine;
use barid_peers::{FrameError, HOLD_MS, HandshakeError};

use super::greeting::NoLink;
use crate::cluster::Clustering;
use crate::shared::Shared;

/// Maximum length of a frame, in bytes: a part with what precedes it.
const FRAME_MAX: usize = PART + 1024;

/// Length of a part, in bytes.
const PART: usize = 256 * 1024;

/// Maximum size of the records of a slot, in bytes.
const RECORDS_MAX: usize = 1 << 30;

/// Time in which all brokers must hold.
const HELD_WITHIN: Duration = Duration::from_secs(2);

/// Time in which all brokers must have heard where a slot is.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Time after which a hold is renewed, and the time for which one that was asked for counts: less than it lasts, since
/// clocks have different rates.
const RENEWED_EVERY: Duration = Duration::from_millis(750);
const COUNTS_FOR: Duration = Duration::from_millis(HOLD_MS - 500);

/// Time for which a move lets nobody publish at most. A disk that does not answer must not stop the cluster.
const HELD_AT_MOST: Duration = Duration::from_secs(30);

/// Time between two looks at something that is waited for.
const AGAIN: Duration = Duration::from_millis(2);

/// Time for which a broker holds.
const HOLD: Duration = Duration::from_millis(HOLD_MS);

/// The cluster of a broker, and the map of its slots, if it has one.
fn of(shared: &Shared) -> Option<(&Arc<Clustering>, &Arc<Slots>)> {
    let clustering = shared.cluster.as_ref()?;
    Some((clustering, clustering.slots()?))
}

/// Waits until all this is durable, or heard.
fn wait_until_durable(engine: &Engine, commits: &Commits) {
    while !engine.shards.sources().are_done(commits) {
        std::thread::sleep(AGAIN);
    }
}

/// Holds this broker: nothing is published when this returns, and nothing is under way. Returns false if something still
/// is after a while.
fn drain(engine: &Engine) -> bool {
    engine.wait_for_rounds();
    let Some(cluster) = &engine.cluster else { return true };
    let (sent, until) = (cluster.sent(), std::time::Instant::now() + HELD_WITHIN);
    while !cluster.are_done(&sent) {
        if std::time::Instant::now() > until {
            return false;
        }
        std::thread::sleep(AGAIN);
    }
    true
}

fn broken(error: FrameError) -> NoLink {
    HandshakeError::from(error).into()
}
