//! Change counters: how a route knows that it is still current.
//!
//! Every filter belongs to one slot, by its leading literal levels; every change of a filter's subscribers advances its
//! slot. A topic can be matched by filters of four slots only, so a route remembers four values, and is current as long
//! as none has advanced. Two filters may share a slot; the only harm is that a route is rebuilt without need.
//!
//! **Why no stale route is taken for current.** A reader first loads its four values, then takes the locks and matches.
//! A writer changes the subscribers and advances the slot within one critical section of the lock that guards them.
//!
//! 1. If the reader's answer lacks a change, the reader's critical section came before the writer's.
//!    Therefore its load happened before the advance, and by coherence it saw an older value. Values never
//!    return (64 bits), so the route is not current from the moment at which the advance is visible; and the
//!    advance is visible to everyone who knows that `subscribe` has returned.
//! 2. A reader may skip the trie, without taking its lock, because it saw `wildcards == 0`. If it had already
//!    loaded the value after the advance for a first wildcard filter, it would also have seen the count, which
//!    is stored earlier (release on the slot, acquire by the reader). So its value is older.
//! 3. The table of slots grows once. Routes from before have the old size and are refused as soon as the new
//!    table is visible. A writer loads the table *after* its change, inside its critical section. A reader
//!    that loaded from the new table and lacks a change had its critical section before the writer's, so the
//!    writer sees the new table, too. A reader that skipped the trie (2) had no such section; therefore the
//!    table is installed under the trie's write lock: a writer that did not see the table had stored its
//!    count before the table was installed, and that reader would have seen the count.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of slots of a small index. A power of two.
const FEW: usize = 64;
/// Number of slots after [`Epochs::grow`]: 64 KiB. A power of two.
const MANY: usize = 8192;

/// The change counters of one index.
pub(super) struct Epochs {
    /// The counter of filters whose first level is a wildcard.
    global: AtomicU64,
    few: [AtomicU64; FEW],
    many: OnceLock<Box<[AtomicU64]>>,
}

/// Determines the slot of a filter.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// The first level is a wildcard.
    Global,
    /// The slot is chosen by the hash of the topic, or of the leading literal levels, up to two.
    Prefix(u64),
}

/// The values of the slots of one topic at one moment.
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

    /// Loads the values of the slots with these hashes. Must be called before matching.
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

    /// Returns whether no slot of `stamp` has advanced.
    pub(super) fn is_current(&self, stamp: &Stamp) -> bool {
        let (grown, table) = self.table();
        let unmoved =
            |(&slot, &value): (&u32, &u64)| table[slot as usize].load(Ordering::Acquire) == value;
        grown == stamp.grown
            && self.global.load(Ordering::Acquire) == stamp.global
            && stamp.slots.iter().zip(&stamp.values).all(unmoved)
    }

    /// Advances a slot. Must be called after the change, and under the lock of the changed subscribers.
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

    /// Switches to the large table of slots, so that a change leaves most routes current. Must be called under the
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
    // Uses the bits in the middle, which no hash table uses; at most 13 of them.
    (hash >> 32) as u32 & (table.len() as u32 - 1)
}
