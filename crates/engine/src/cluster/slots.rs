//! The map of slots: which broker has the sessions of which clients, and what belongs to which tenant as a whole.
//!
//! All brokers begin with the same [`Placement`]. A slot that was moved has another broker, and a *generation* that
//! counts its moves. Of two things that are known of a slot, the one with the greater generation holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barid_peers::Placement;

use crate::sync::RwLock;

/// The map of slots, as one broker knows it.
pub struct Slots {
    placement: Placement,
    /// The name of this broker.
    me: Box<str>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// The slots that were moved.
    moved: BTreeMap<u16, Moved>,
    /// The slots that this broker has, or is about to get, and that take nothing while they are moved.
    closed: BTreeSet<u16>,
}

/// Where a slot was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The name of the broker that has it.
    pub broker: Arc<str>,
    /// Number of times that the slot was moved.
    pub generation: u64,
}

/// The broker that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This broker.
    Here,
    /// This broker, but the slot is being moved.
    Closed,
    /// The broker with this name.
    Elsewhere(Arc<str>),
}

impl Slots {
    /// Creates the map that a cluster begins with, for the broker of this name.
    pub fn new(placement: Placement, me: &str) -> Self {
        Self { placement, me: me.into(), state: RwLock::default() }
    }

    /// The map that the cluster has begun with.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The name of this broker.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// Number of slots.
    pub fn count(&self) -> u16 {
        self.placement.slots()
    }

    /// Returns the slot of a client.
    pub fn slot(&self, tenant: &str, client_id: &str) -> u16 {
        self.placement.slot(tenant, client_id)
    }

    /// Returns the slot of what belongs to a tenant as a whole.
    pub fn slot_of_tenant(&self, tenant: &str) -> u16 {
        self.placement.slot_of_tenant(tenant)
    }

    /// Returns the broker that has a slot, and the slot's generation.
    pub fn place(&self, slot: u16) -> Moved {
        let moved = self.state.read().moved.get(&slot).cloned();
        moved
            .unwrap_or_else(|| Moved { broker: self.placement.home_of(slot).into(), generation: 0 })
    }

    /// Returns the broker that has a slot, as this one sees it.
    pub fn owner(&self, slot: u16) -> Owner {
        self.owner_in(&self.state.read(), slot)
    }

    fn owner_in(&self, state: &State, slot: u16) -> Owner {
        let broker = match state.moved.get(&slot) {
            Some(moved) if *moved.broker != *self.me => {
                return Owner::Elsewhere(Arc::clone(&moved.broker));
            }
            Some(_) => &self.me,
            None => self.placement.home_of(slot),
        };
        match (*broker == *self.me, state.closed.contains(&slot)) {
            (false, _) => Owner::Elsewhere(broker.into()),
            (true, true) => Owner::Closed,
            (true, false) => Owner::Here,
        }
    }

    /// Returns the broker that has the session of a client.
    pub fn owner_of_session(&self, tenant: &str, client_id: &str) -> Owner {
        self.owner(self.slot(tenant, client_id))
    }

    /// Returns the broker that has what belongs to a tenant as a whole.
    pub fn owner_of_tenant(&self, tenant: &str) -> Owner {
        self.owner(self.slot_of_tenant(tenant))
    }

    /// Whether this broker has slots that take clients.
    pub fn has_any(&self) -> bool {
        let state = self.state.read();
        (0..self.count()).any(|slot| self.owner_in(&state, slot) == Owner::Here)
    }

    /// Number of slots that this broker has.
    pub fn here(&self) -> usize {
        let state = self.state.read();
        let is_here = |slot: &u16| !matches!(self.owner_in(&state, *slot), Owner::Elsewhere(_));
        (0..self.count()).filter(is_here).count()
    }

    /// Lets a slot of this broker take nothing, because it is being moved. Returns false if that is so already.
    pub fn close(&self, slot: u16) -> bool {
        self.state.write().closed.insert(slot)
    }

    /// Lets a slot take clients again.
    pub fn open(&self, slot: u16) {
        self.state.write().closed.remove(&slot);
    }

    /// Notes that a slot was moved. Returns false if that is known already, or a later move is.
    pub fn note(&self, slot: u16, moved: Moved) -> bool {
        let mut state = self.state.write();
        let known = state.moved.get(&slot).map_or(0, |known| known.generation);
        let is_new = slot < self.count() && moved.generation > known;
        if is_new {
            state.moved.insert(slot, moved);
        }
        is_new
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("placement", &self.placement).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let homes = ["a", "b"].map(str::to_owned).to_vec();
        Slots::new(Placement::new(4, homes).unwrap(), "a")
    }

    fn moved(broker: &str, generation: u64) -> Moved {
        Moved { broker: broker.into(), generation }
    }

    #[test]
    fn the_last_move_of_a_slot_counts() {
        let slots = slots();
        assert_eq!((slots.owner(0), slots.owner(1)), (Owner::Here, Owner::Elsewhere("b".into())));
        assert!(slots.note(0, moved("c", 1)) && slots.note(1, moved("a", 2)));
        assert!(!slots.note(1, moved("b", 2)) && !slots.note(1, moved("b", 1)), "it is older");
        assert!(!slots.note(4, moved("b", 1)), "there is no such slot");
        assert_eq!((slots.owner(0), slots.owner(1)), (Owner::Elsewhere("c".into()), Owner::Here));
        assert_eq!((slots.place(1), slots.place(2)), (moved("a", 2), moved("a", 0)));
    }

    #[test]
    fn a_slot_that_is_being_moved_takes_nothing() {
        let slots = slots();
        assert!(slots.close(0) && !slots.close(0));
        assert_eq!(slots.owner(0), Owner::Closed);
        assert!(slots.has_any());
        assert_eq!(slots.here(), 2);
        // Closed for what is about to come, before it is known where the slot is.
        assert!(slots.close(1));
        assert_eq!(slots.owner(1), Owner::Elsewhere("b".into()));
        slots.note(1, moved("a", 1));
        assert_eq!(slots.owner(1), Owner::Closed);
        slots.open(1);
        assert_eq!(slots.owner(1), Owner::Here);
        slots.close(2);
        slots.note(1, moved("b", 2));
        assert!(!slots.has_any());
    }
}
