//! How a route knows that it still holds.
//!
//! Every filter belongs to one slot, by its leading literal levels; every change of a filter's
//! subscribers advances its slot. A topic can be matched by filters of four slots only, so a route
//! remembers four values, and holds as long as none has moved. Two filters may share a slot; the
//! only harm is a route made anew without need.
//!
//! **Why no stale route passes.** A reader first loads its four values, then takes the locks and
//! matches. A writer changes the subscribers and advances the slot within one critical section of
//! the lock that guards them.
//!
//! 1. If the reader's answer lacks a change, its critical section came before the writer's. So
//!    its load happened before the advance, and by coherence it saw an older value. Values never
//!    return (64 bits), so from the moment the advance is visible the route is not current; and to
//!    whoever learns that `subscribe` returned, it is visible.
//! 2. A reader may skip the trie, without its lock, because it saw `wildcards == 0`. Had it before
//!    seen the advance that goes with a first wildcard filter, it would also have seen the count,
//!    which is stored earlier (release on the slot, acquire by the reader). So its value is older.
//! 3. The table of slots grows once. Routes from before hold the old size and are refused as soon as
//!    the new table is seen. A writer asks for the table *after* its change, inside its critical
//!    section. A reader that loaded from the new table and lacks a change came before the writer's
//!    section, so the writer sees the new table too. A reader that skipped the trie (2) had no
//!    such section; therefore the table is installed under the trie's write lock: a writer that
//!    did not see it had stored its count before it was installed, and that reader would have seen it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of a small index. A power of two.
const FEW: usize = 64;
/// Slots after [`Epochs::grow`]: 64 KiB. A power of two.
const MANY: usize = 8192;

/// The change counters of one index.
pub(super) struct Epochs {
    /// Of filters whose first level is a wildcard.
    global: AtomicU64,
    few: [AtomicU64; FEW],
    many: OnceLock<Box<[AtomicU64]>>,
}

/// The slot of a filter.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// The first level is a wildcard.
    Global,
    /// By the hash of the topic, or of the leading literal levels, up to two.
    Prefix(u64),
}

/// What the slots of one topic held.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    grown: bool,
    slots: [u32; 3],
    values: [u64; 3],
    global: u64,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Self {
            global: AtomicU64::new(0),
            few: std::array::from_fn(|_| AtomicU64::new(0)),
            many: OnceLock::new(),
        }
    }

    /// The values of the slots with these hashes, to be taken before matching.
    pub(super) fn stamp(&self, hashes: [u64; 3]) -> Stamp {
        let (grown, table) = self.table();
        let slots = hashes.map(|hash| slot(table, hash));
        Stamp {
            grown,
            slots,
            values: slots.map(|slot| table[slot as usize].load(Ordering::Acquire)),
            global: self.global.load(Ordering::Acquire),
        }
    }

    /// Whether no slot of `stamp` has advanced.
    pub(super) fn is_current(&self, stamp: &Stamp) -> bool {
        let (grown, table) = self.table();
        let unmoved =
            |(&slot, &value): (&u32, &u64)| table[slot as usize].load(Ordering::Acquire) == value;
        grown == stamp.grown
            && self.global.load(Ordering::Acquire) == stamp.global
            && stamp.slots.iter().zip(&stamp.values).all(unmoved)
    }

    /// Advances a slot, to be called after the change and under the lock of what changed.
    pub(super) fn advance(&self, scope: Scope) {
        let counter = match scope {
            Scope::Global => &self.global,
            Scope::Prefix(hash) => {
                let (_, table) = self.table();
                &table[slot(table, hash) as usize]
            }
        };
        counter.fetch_add(1, Ordering::AcqRel);
    }

    /// Goes on with many slots, so that a change leaves most routes alone. To be called under the
    /// trie's write lock.
    pub(super) fn grow(&self) {
        self.many.get_or_init(|| (0..MANY).map(|_| AtomicU64::new(0)).collect());
    }

    fn table(&self) -> (bool, &[AtomicU64]) {
        match self.many.get() {
            Some(many) => (true, many),
            None => (false, &self.few),
        }
    }
}

fn slot(table: &[AtomicU64], hash: u64) -> u32 {
    // The bits in the middle, which no hash table uses; at most 13 of them.
    (hash >> 32) as u32 & (table.len() as u32 - 1)
}
