//! Objects of a broker, as it tells them to the other brokers: each has the name of a tenant and a name of its own.
//!
//! Each change has a *version*. A broker that joins gets a snapshot in parts, and then the changes since the snapshot began.
//! An object may be told twice, in the snapshot and after it: the last word on it counts, and it is the right one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Number of changes that are kept for brokers that have not been told yet. One that is further behind gets a snapshot.
pub(crate) const KEPT: usize = 100_000;

/// A tenant, and the name of one of its objects.
type Key = (Arc<str>, Arc<str>);

/// Objects that are told to other brokers.
#[derive(Debug)]
pub struct Announced<T> {
    objects: BTreeMap<Key, T>,
    /// Number of changes so far, which is the version of the last one.
    version: u64,
    /// The objects that have changed last; the last one of them with [`Self::version`].
    changes: VecDeque<Key>,
}

/// How far one other broker has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Nothing yet: a snapshot is to begin.
    #[default]
    Nothing,
    /// A snapshot that has begun at this version, up to this object.
    Snapshot(u64, Option<(Arc<str>, Arc<str>)>),
    /// All changes up to this version.
    Changes(u64),
}

impl<T> Announced<T> {
    /// Adds an object, or replaces it. Returns the version of the change.
    pub fn set(&mut self, tenant: &Arc<str>, name: &str, object: impl FnOnce(u64) -> T) -> u64 {
        let key: Key = (Arc::clone(tenant), name.into());
        self.change(key.clone());
        self.objects.insert(key, object(self.version));
        self.version
    }

    /// Removes an object if it is a certain one. Returns whether it was.
    pub fn remove(
        &mut self,
        tenant: &Arc<str>,
        name: &str,
        is_it: impl FnOnce(&mut T) -> bool,
    ) -> bool {
        let key: Key = (Arc::clone(tenant), name.into());
        if !self.objects.get_mut(&key).is_some_and(is_it) {
            return false;
        }
        self.objects.remove(&key);
        self.change(key);
        true
    }

    /// Returns an object. Changing it is not told.
    pub fn get_mut(&mut self, tenant: &Arc<str>, name: &str) -> Option<&mut T> {
        self.objects.get_mut(&(Arc::clone(tenant), name.into()))
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Gives another broker, which has been told up to `told`, the next part of what it does not know: at most `most`
    /// objects. `tell` is called for each, with its tenant and name; `None`: there is none of that name any more.
    /// Returns whether something is left. A part that begins with [`Part::Nothing`] is the first of a snapshot.
    pub fn tell(
        &self,
        told: &mut Part,
        most: usize,
        mut tell: impl FnMut(&str, &str, Option<&T>),
    ) -> bool {
        match told {
            Part::Nothing => {
                *told = Part::Snapshot(self.version, None);
                self.tell(told, most, tell)
            }
            Part::Snapshot(began, last) => {
                let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let (began, mut end) = (*began, None);
                for (key, object) in self.objects.range((from, Bound::Unbounded)).take(most) {
                    tell(&key.0, &key.1, Some(object));
                    end = Some(key.clone());
                }
                if end.is_some() {
                    *last = end;
                    return true;
                }
                *told = Part::Changes(began);
                began != self.version
            }
            Part::Changes(version) => {
                let untold = usize::try_from(self.version - *version).unwrap_or(usize::MAX);
                let Some(first) = self.changes.len().checked_sub(untold) else {
                    *told = Part::Nothing;
                    return true;
                };
                for key in self.changes.range(first..).take(most) {
                    tell(&key.0, &key.1, self.objects.get(key));
                    *version += 1;
                }
                *version != self.version
            }
        }
    }

    fn change(&mut self, key: Key) {
        self.version += 1;
        if self.changes.len() == KEPT {
            self.changes.pop_front();
        }
        self.changes.push_back(key);
    }
}

impl<T> Default for Announced<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), version: 0, changes: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whoever_is_too_far_behind_gets_a_snapshot() {
        let mut announced = Announced::default();
        let acme: Arc<str> = "acme".into();
        let mut told = Part::Changes(0);
        announced.set(&acme, "b", |_| 0);
        for number in 0..KEPT {
            announced.set(&acme, "a", |_| number);
        }
        assert!(announced.tell(&mut told, 512, |_, _, _| panic!("a snapshot is to begin")));
        assert_eq!(told, Part::Nothing);
        let mut heard = vec![];
        let hear = |_: &str, name: &str, object: Option<&usize>| {
            heard.push((name.to_owned(), object.copied()));
        };
        assert!(announced.tell(&mut told, 512, hear));
        assert!(matches!(told, Part::Snapshot(..)));
        assert_eq!(heard, [("a".to_owned(), Some(KEPT - 1)), ("b".to_owned(), Some(0))]);
        assert!(!announced.tell(&mut told, 512, |_, _, _| panic!("that was all")));
        assert_eq!(told, Part::Changes(announced.version()));
    }

    proptest! {
        /// Another broker that is told in parts, at any moments, knows the objects in the end.
        #[test]
        fn what_is_told_in_parts_is_the_whole(
            steps in proptest::collection::vec((0..3_u8, 0..1_500_u32), 0..3_000),
        ) {
            let mut announced = Announced::default();
            let acme: Arc<str> = "acme".into();
            for number in 0..1_000_u32 {
                announced.set(&acme, &format!("{number:04}"), |_| number);
            }
            let mut told = Part::Nothing;
            let mut known = BTreeMap::new();
            let mut hear = |announced: &Announced<u32>| {
                announced.tell(&mut told, 512, |_, name, object| {
                    match object {
                        Some(object) => known.insert(name.to_owned(), *object),
                        None => known.remove(name),
                    };
                })
            };
            for (number, (what, name)) in (1_000..).zip(steps) {
                let name = format!("{name:04}");
                match what {
                    0 => { announced.set(&acme, &name, |_| number); }
                    1 => { announced.remove(&acme, &name, |_| true); }
                    _ => { hear(&announced); }
                }
            }
            while hear(&announced) {}
            let expected: BTreeMap<_, _> =
                announced.objects.iter().map(|((_, name), object)| (name.to_string(), *object)).collect();
            prop_assert_eq!(known, expected);
        }
    }
}
