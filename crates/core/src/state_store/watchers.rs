//! The watchers of keys, which are told of changes.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{Exceeded, Limits, Usage};

/// A connection that is told of changes. When the connection ends, all its watches end.
pub trait Watcher: Clone {
    /// Identifies the connection during the life of the process.
    fn id(&self) -> u64;
}

/// The watchers of each key. The key need not exist.
#[derive(Debug)]
pub(super) struct Watchers<W> {
    /// The watchers of each key, ascending by [`Watcher::id`] so that they can be searched: a whole
    /// fleet may watch one key.
    by_key: HashMap<Box<[u8]>, SmallVec<[W; 1]>>,
}

impl<W> Default for Watchers<W> {
    fn default() -> Self {
        Self { by_key: HashMap::new() }
    }
}

impl<W: Watcher> Watchers<W> {
    /// Begins to watch a key. Does nothing for a watcher that watches it already.
    pub fn watch(
        &mut self,
        key: &[u8],
        watcher: W,
        usage: &Usage,
        limits: &Limits,
    ) -> Result<(), Exceeded> {
        let known = self.of(key);
        let Err(at) = known.binary_search_by_key(&watcher.id(), W::id) else { return Ok(()) };
        usage.add_watcher(key.len(), 1 + known.len() as u64, limits)?;
        self.by_key.entry(key.into()).or_default().insert(at, watcher);
        Ok(())
    }

    /// Ends the watch of a key. Returns false if the watcher did not watch it.
    pub fn unwatch(&mut self, key: &[u8], id: u64, usage: &Usage) -> bool {
        let Some(watchers) = self.by_key.get_mut(key) else { return false };
        let Ok(at) = watchers.binary_search_by_key(&id, W::id) else { return false };
        watchers.remove(at);
        if watchers.is_empty() {
            self.by_key.remove(key);
        }
        usage.remove_watcher(key.len());
        true
    }

    /// All watches: the keys, each with its watchers.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], &[W])> {
        self.by_key.iter().map(|(key, watchers)| (&**key, watchers.as_slice()))
    }

    /// Ends all watches.
    pub fn clear(&mut self, usage: &Usage) {
        for (key, watchers) in self.by_key.drain() {
            watchers.iter().for_each(|_| usage.remove_watcher(key.len()));
        }
    }

    /// The watchers of a key.
    pub fn of(&self, key: &[u8]) -> &[W] {
        self.by_key.get(key).map_or(&[], SmallVec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Connection(u64);

    impl Watcher for Connection {
        fn id(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn who_comes_in_any_order_is_told_once() {
        let (mut watchers, usage) = (Watchers::default(), Usage::default());
        for id in [5, 2, 9, 2, 5, 1] {
            watchers.watch(b"k", Connection(id), &usage, &Limits::UNBOUNDED).unwrap();
        }
        let ids: Vec<_> = watchers.of(b"k").iter().map(Watcher::id).collect();
        assert_eq!(ids, [1, 2, 5, 9]);
        assert_eq!((usage.watchers(), usage.most_watchers()), (4, 4));
        for id in ids {
            assert!(watchers.unwatch(b"k", id, &usage));
        }
        assert_eq!((usage.watchers(), usage.most_watchers()), (0, 0));
    }

    #[test]
    fn a_key_that_nobody_watches_takes_no_memory() {
        let (mut watchers, usage) = (Watchers::default(), Usage::default());
        for id in [7, 8] {
            watchers.watch(b"k", Connection(id), &usage, &Limits::UNBOUNDED).unwrap();
        }
        assert!(watchers.unwatch(b"k", 7, &usage));
        assert!(!watchers.unwatch(b"k", 7, &usage));
        assert_eq!(watchers.of(b"k").len(), 1);
        assert!(watchers.unwatch(b"k", 8, &usage));
        assert!(watchers.by_key.is_empty());
        assert_eq!((usage.watchers(), usage.bytes()), (0, 0));
    }
}
