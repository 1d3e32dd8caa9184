//! The users of a tenant to whom sessions, retained messages and keys belong.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use barid_core::holder::Holder;
use hashbrown::HashSet;

use crate::sync::Mutex;

/// Number of users up to which those who hold nothing are left to [`Holders::sweep`]. Beyond, a user is added only
/// after a sweep, so the memory stays in proportion to the users to whom something belongs.
const SWEPT_FROM: usize = 1_024;

/// The users of a tenant to whom something belongs, or who are connected.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_name: HashSet<Named>,
    /// Number of users from which the next one is added only after a sweep.
    sweep_at: usize,
}

/// A user, found by its name.
#[derive(Debug)]
struct Named(Arc<Holder>);

impl Holders {
    /// Returns the user of this name.
    pub fn of(&self, name: &str) -> Arc<Holder> {
        let mut state = self.0.lock();
        if let Some(Named(known)) = state.by_name.get(name) {
            return Arc::clone(known);
        }
        if state.by_name.len() >= state.sweep_at.max(SWEPT_FROM) {
            state.sweep();
        }
        let holder = Arc::new(Holder::new(name));
        state.by_name.insert(Named(Arc::clone(&holder)));
        holder
    }

    /// Returns the user of this name, if it is known.
    pub fn get(&self, name: &str) -> Option<Arc<Holder>> {
        self.0.lock().by_name.get(name).map(|Named(holder)| Arc::clone(holder))
    }

    /// Forgets users to whom nothing belongs and who are not connected.
    pub fn sweep(&self) {
        self.0.lock().sweep();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().by_name.len()
    }
}

impl State {
    fn sweep(&mut self) {
        // Whatever belongs to a user refers to it.
        self.by_name.retain(|Named(holder)| Arc::strong_count(holder) > 1);
        self.by_name.shrink_to(2 * self.by_name.len());
        self.sweep_at = 2 * self.by_name.len();
    }
}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Named {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_as_long_as_something_belongs_to_it() {
        let holders = Holders::default();
        let ada = holders.of("acme/ada");
        assert!(Arc::ptr_eq(&ada, &holders.of("acme/ada")));
        holders.of("acme/bob");
        holders.sweep();
        assert_eq!(holders.len(), 1);
        drop(ada);
        for number in 0..100_000 {
            holders.of(&number.to_string());
        }
        assert!(holders.len() <= SWEPT_FROM, "{} users", holders.len());
    }
}
