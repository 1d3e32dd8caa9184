//! The filters with wildcards, as a trie of levels.

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};

use super::hashing::Hashing;
use super::slab::{NIL, Slab};
use super::subscribers::Subscribers;
use super::symbols::Symbols;
use super::{Matching, Subscriber};

const ROOT: u32 = 0;

/// All children of all nodes are in one table, and a node is 16 bytes: a million filters are a
/// few large allocations, and a step of the walk is one probe.
///
/// A walk never recurses and visits no node twice. Its depth is the number of levels of the topic
/// or filter, which the caller bounds.
pub(super) struct Trie<S> {
    hashing: Hashing,
    nodes: Slab<Node>,
    /// Literal children.
    edges: HashTable<Edge>,
    symbols: Symbols,
    subscribers: Slab<Subscribers<S>>,
    filters: usize,
}

/// One level of one or more filters. Ids are [`NIL`] for what is absent.
#[derive(Clone, Copy)]
struct Node {
    /// How many edges begin here.
    literals: u32,
    /// The child node of level `+`.
    plus: u32,
    /// The subscribers of the filter that ends here.
    here: u32,
    /// The subscribers of the filter that ends with `#` below here.
    below: u32,
}

struct Edge {
    parent: u32,
    symbol: u32,
    child: u32,
}

/// How a walk left a node.
#[derive(Clone, Copy)]
enum Step {
    Plus,
    Literal { symbol: u32 },
}

/// Which of a node's two sets of subscribers a filter means.
#[derive(Clone, Copy)]
enum End {
    Here,
    Below,
}

impl<S: Subscriber> Trie<S> {
    pub(super) fn new(hashing: Hashing) -> Self {
        let mut nodes = Slab::default();
        nodes.insert(Node::default());
        Self {
            hashing,
            nodes,
            edges: HashTable::new(),
            symbols: Symbols::new(hashing),
            subscribers: Slab::default(),
            filters: 0,
        }
    }

    /// The number of distinct filters.
    pub(super) fn filters(&self) -> usize {
        self.filters
    }

    /// Adds to `found` the subscribers of every filter that matches `topic` (MQTT 5 §4.7.1).
    pub(super) fn matching<'a>(&'a self, topic: &str, found: &mut Matching<'a, S>) {
        let mut frontier: SmallVec<[u32; 16]> = smallvec![ROOT];
        let mut next: SmallVec<[u32; 16]> = SmallVec::new();
        // §4.7.2: a wildcard in the first level does not match a topic that begins with `$`.
        let mut wildcards = !topic.starts_with('$');
        for level in topic.split('/') {
            let symbol = self.symbols.find(level);
            for id in frontier.drain(..) {
                let node = self.nodes[id];
                if wildcards {
                    found.extend(self.set(node.below));
                    next.extend((node.plus != NIL).then_some(node.plus));
                }
                if let Some(symbol) = symbol
                    && node.literals > 0
                {
                    next.extend(self.child(id, symbol));
                }
            }
            std::mem::swap(&mut frontier, &mut next);
            if frontier.is_empty() {
                return;
            }
            wildcards = true;
        }
        for id in frontier {
            found.extend(self.set(self.nodes[id].here));
            found.extend(self.set(self.nodes[id].below));
        }
    }

    /// Lets `change` change the subscribers of `filter`, which is created for it if need be.
    pub(super) fn insert<T>(
        &mut self,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> T {
        let (id, end) = self.create(filter);
        if *self.nodes[id].end(end) == NIL {
            *self.nodes[id].end(end) = self.subscribers.insert(Subscribers::None);
            self.filters += 1;
        }
        change(&mut self.subscribers[*self.nodes[id].end(end)])
    }

    /// Lets `change` change the subscribers of `filter` and forgets the filter when none are
    /// left; `None` if there is no such filter.
    pub(super) fn remove<T>(
        &mut self,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> Option<T> {
        let mut path = SmallVec::new();
        let (id, end) = self.find(filter, &mut path)?;
        let set = *self.nodes[id].end(end);
        if set == NIL {
            return None;
        }
        let answer = change(&mut self.subscribers[set]);
        if self.subscribers[set].is_empty() {
            self.subscribers.take(set);
            *self.nodes[id].end(end) = NIL;
            self.filters -= 1;
            self.prune(id, &path);
        }
        if self.filters == 0 {
            *self = Self::new(self.hashing);
        }
        Some(answer)
    }

    fn set(&self, id: u32) -> Option<&Subscribers<S>> {
        (id != NIL).then(|| &self.subscribers[id])
    }

    fn child(&self, parent: u32, symbol: u32) -> Option<u32> {
        let same = |edge: &Edge| edge.parent == parent && edge.symbol == symbol;
        self.edges.find(self.hashing.pair(parent, symbol), same).map(|edge| edge.child)
    }

    /// The node of `filter`, made with all nodes above it that are missing.
    fn create(&mut self, filter: &str) -> (u32, End) {
        let mut id = ROOT;
        for level in filter.split('/') {
            id = match level {
                "#" => return (id, End::Below),
                "+" => self.plus_child(id),
                _ => self.literal_child(id, level),
            };
        }
        (id, End::Here)
    }

    fn plus_child(&mut self, parent: u32) -> u32 {
        if self.nodes[parent].plus == NIL {
            self.nodes[parent].plus = self.nodes.insert(Node::default());
        }
        self.nodes[parent].plus
    }

    fn literal_child(&mut self, parent: u32, level: &str) -> u32 {
        if let Some(symbol) = self.symbols.find(level)
            && let Some(child) = self.child(parent, symbol)
        {
            return child;
        }
        let symbol = self.symbols.acquire(level);
        let child = self.nodes.insert(Node::default());
        self.nodes[parent].literals += 1;
        let hashing = self.hashing;
        self.edges.insert_unique(
            hashing.pair(parent, symbol),
            Edge { parent, symbol, child },
            |edge| hashing.pair(edge.parent, edge.symbol),
        );
        child
    }

    /// The node of `filter`, and in `path` the way to it from the root.
    fn find(&self, filter: &str, path: &mut SmallVec<[(u32, Step); 16]>) -> Option<(u32, End)> {
        let mut id = ROOT;
        for level in filter.split('/') {
            let (step, child) = match level {
                "#" => return Some((id, End::Below)),
                "+" => (Step::Plus, self.nodes[id].plus),
                _ => {
                    let symbol = self.symbols.find(level)?;
                    (Step::Literal { symbol }, self.child(id, symbol)?)
                }
            };
            if child == NIL {
                return None;
            }
            path.push((id, step));
            id = child;
        }
        Some((id, End::Here))
    }

    /// Removes the node `id` and those on the `path` to it, from the leaf up, as long as nothing
    /// hangs on them.
    fn prune(&mut self, mut id: u32, path: &[(u32, Step)]) {
        for &(parent, step) in path.iter().rev() {
            if !self.nodes[id].is_bare() {
                break;
            }
            self.nodes.take(id);
            match step {
                Step::Plus => self.nodes[parent].plus = NIL,
                Step::Literal { symbol } => self.remove_edge(parent, symbol),
            }
            id = parent;
        }
    }

    fn remove_edge(&mut self, parent: u32, symbol: u32) {
        let hashing = self.hashing;
        let same = |edge: &Edge| edge.parent == parent && edge.symbol == symbol;
        if let Ok(entry) = self.edges.find_entry(hashing.pair(parent, symbol), same) {
            entry.remove();
        }
        self.nodes[parent].literals -= 1;
        self.symbols.release(symbol);
        if self.edges.len() < self.edges.capacity() / 8 {
            self.edges
                .shrink_to(2 * self.edges.len(), |edge| hashing.pair(edge.parent, edge.symbol));
        }
    }
}

impl Node {
    fn end(&mut self, end: End) -> &mut u32 {
        match end {
            End::Here => &mut self.here,
            End::Below => &mut self.below,
        }
    }

    fn is_bare(&self) -> bool {
        self.literals == 0 && self.plus == NIL && self.here == NIL && self.below == NIL
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { literals: 0, plus: NIL, here: NIL, below: NIL }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use mqtt_proto::QoS;

    use super::super::{Member, SubscribeOptions};
    use super::*;

    #[derive(Clone)]
    struct Session(u64);

    impl Subscriber for Session {
        fn key(&self) -> u64 {
            self.0
        }
    }

    fn subscribe(trie: &mut Trie<Session>, filter: &str, key: u64) {
        let options = SubscribeOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: NonZeroU32::new(1),
        };
        trie.insert(filter, |set| set.insert(Member { subscriber: Session(key), options }));
    }

    fn unsubscribe(trie: &mut Trie<Session>, filter: &str, key: u64) -> bool {
        trie.remove(filter, |set| set.remove(key)).is_some_and(|change| change.counts)
    }

    /// What is in use: nodes, edges, symbols, sets of subscribers.
    fn in_use(trie: &Trie<Session>) -> [usize; 4] {
        [trie.nodes.len(), trie.edges.len(), trie.symbols.len(), trie.subscribers.len()]
    }

    #[test]
    fn the_usual_sizes_are_small() {
        assert_eq!(size_of::<Node>(), 16);
        assert_eq!(size_of::<Edge>(), 12);
        assert_eq!(size_of::<Subscribers<Session>>(), 16);
    }

    #[test]
    fn a_removed_filter_leaves_what_others_need_and_nothing_else() {
        let mut trie = Trie::new(Hashing::with_seed(1));
        subscribe(&mut trie, "a/+/c", 1);
        let before = in_use(&trie);
        subscribe(&mut trie, "a/+/c/d/#", 1);
        subscribe(&mut trie, "a/+/c", 2);
        subscribe(&mut trie, "+/a/a", 1);
        assert!(!unsubscribe(&mut trie, "a/+", 1), "a node, but not a filter");
        assert!(!unsubscribe(&mut trie, "a/+/c/#", 1));
        assert!(!unsubscribe(&mut trie, "a/+/c", 3));
        assert!(unsubscribe(&mut trie, "a/+/c/d/#", 1));
        assert!(unsubscribe(&mut trie, "a/+/c", 2));
        assert!(unsubscribe(&mut trie, "+/a/a", 1));
        assert_eq!(in_use(&trie), before);
        assert_eq!(before, [4, 2, 2, 1]);
    }

    #[test]
    fn churn_reuses_memory_and_removing_all_gives_it_back() {
        let mut trie = Trie::new(Hashing::with_seed(1));
        subscribe(&mut trie, "kept/#", 0);
        let mut after_first_round = None;
        for _ in 0..3 {
            for device in 0..1000 {
                subscribe(&mut trie, &format!("fleet/+/{device}/telemetry"), device);
            }
            let full = (in_use(&trie), trie.edges.capacity());
            assert_eq!(*after_first_round.get_or_insert(full), full);
            for device in 0..1000 {
                assert!(unsubscribe(&mut trie, &format!("fleet/+/{device}/telemetry"), device));
            }
            assert_eq!(in_use(&trie), [2, 1, 1, 1]);
            assert!(trie.edges.capacity() < 100);
        }
        assert!(unsubscribe(&mut trie, "kept/#", 0));
        assert_eq!(in_use(&trie), [1, 0, 0, 0]);
        assert_eq!(trie.edges.capacity(), 0);
    }
}
