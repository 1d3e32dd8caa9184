//! The topic filters of another broker, as they arrive.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::frame::Change;

/// What one other broker has told of its topic filters.
#[derive(Debug)]
pub struct Heard<S> {
    /// The filters of each tenant, with the snapshot in which each was last told.
    filters: HashMap<Arc<str>, HashMap<Arc<str>, u32, S>, S>,
    snapshot: u32,
    is_in_snapshot: bool,
    /// Whether a snapshot has arrived as a whole.
    is_complete: bool,
    hasher: S,
}

impl<S: BuildHasher + Clone> Heard<S> {
    /// Begins without filters. What the hasher is seeded with should be secret, because clients choose the filters.
    pub fn new(hasher: S) -> Self {
        let filters = HashMap::with_hasher(hasher.clone());
        Self { filters, snapshot: 0, is_in_snapshot: false, is_complete: false, hasher }
    }

    /// A snapshot begins.
    pub fn begin(&mut self) {
        self.snapshot = self.snapshot.wrapping_add(1);
        self.is_in_snapshot = true;
    }

    /// A filter was told. Returns whether that changes anything.
    pub fn change(&mut self, change: Change<'_>) -> bool {
        if change.is_added {
            let filters = match self.filters.get_mut(change.tenant) {
                Some(filters) => filters,
                None => {
                    let new = || HashMap::with_hasher(self.hasher.clone());
                    self.filters.entry(change.tenant.into()).or_insert_with(new)
                }
            };
            return match filters.get_mut(change.filter) {
                Some(snapshot) => {
                    *snapshot = self.snapshot;
                    false
                }
                None => filters.insert(change.filter.into(), self.snapshot).is_none(),
            };
        }
        let Some(filters) = self.filters.get_mut(change.tenant) else { return false };
        let is_known = filters.remove(change.filter).is_some();
        if filters.is_empty() {
            self.filters.remove(change.tenant);
        }
        is_known
    }

    /// Everything has been told that there was. If that ends a snapshot, `forget` is called for each filter that was not
    /// in it, with its tenant.
    pub fn told(&mut self, mut forget: impl FnMut(&str, &str)) {
        self.is_complete = true;
        if !std::mem::take(&mut self.is_in_snapshot) {
            return;
        }
        let snapshot = self.snapshot;
        self.filters.retain(|tenant, filters| {
            filters.retain(|filter, last| {
                let is_kept = *last == snapshot;
                if !is_kept {
                    forget(tenant, filter);
                }
                is_kept
            });
            !filters.is_empty()
        });
    }

    /// Forgets everything: the broker is down. `forget` is called for each filter, with its tenant.
    pub fn clear(&mut self, mut forget: impl FnMut(&str, &str)) {
        for (tenant, filters) in self.filters.drain() {
            filters.keys().for_each(|filter| forget(&tenant, filter));
        }
        (self.is_in_snapshot, self.is_complete) = (false, false);
    }

    /// Number of filters.
    pub fn len(&self) -> usize {
        self.filters.values().map(HashMap::len).sum()
    }

    /// Whether there are no filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Whether all filters have been told once.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn a_snapshot_replaces_what_was_told_before() {
        let mut heard = Heard::new(RandomState::new());
        let add = |filter| Change { is_added: true, tenant: "acme", filter };
        heard.begin();
        assert!(heard.change(add("a")));
        assert!(heard.change(add("b")));
        assert!(!heard.is_complete());
        heard.told(|_, _| panic!("it was empty"));
        assert!(heard.change(Change { is_added: false, ..add("a") }));
        assert!(!heard.change(Change { is_added: false, ..add("a") }));
        assert!(heard.change(add("c")));
        heard.told(|_, _| panic!("no snapshot has begun"));
        heard.begin();
        assert!(!heard.change(add("b")), "it stays in the meantime");
        assert!(heard.change(add("d")));
        let mut forgotten = vec![];
        heard.told(|tenant, filter| forgotten.push(format!("{tenant} {filter}")));
        assert_eq!((forgotten, heard.len()), (vec!["acme c".to_owned()], 2));
        let mut count = 0;
        heard.clear(|_, _| count += 1);
        assert_eq!((count, heard.is_empty()), (2, true));
    }
}
