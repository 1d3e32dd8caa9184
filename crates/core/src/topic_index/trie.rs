//! The filters with wildcards, as a trie of levels.

use std::hint::black_box;

use smallvec::{SmallVec, smallvec};

use super::edges::{Child, Edges};
use super::hashing::Hashing;
use super::patterns::Patterns;
use super::slab::{NIL, Slab};
use super::subscribers::Subscribers;
use super::symbols::Symbols;
use super::{Matching, Subscriber};

const ROOT: u32 = 0;

/// A trie of filter levels. The literal children of all nodes are in one table, and a node has 16
/// bytes: a million filters are a few large tables, and a step of the walk is one probe. A filter's
/// last level needs no node; its subscribers are stored with the edge of that level.
///
/// A walk never recurses and visits no node twice. Its depth is the number of levels of the topic
/// or filter, which the caller bounds.
pub(super) struct Trie<S> {
    hashing: Hashing,
    nodes: Slab<Node>,
    edges: Edges,
    symbols: Symbols,
    sets: Slab<Subscribers<S>>,
    filters: usize,
    patterns: Patterns,
}

/// The levels that one or more filters have in common. Ids are [`NIL`] if absent.
#[derive(Clone, Copy)]
struct Node {
    /// Number of literal edges that begin here.
    literals: u32,
    /// The child under the level `+`.
    plus: Child,
    /// The subscribers of the filter that ends with `#` below this node.
    below: u32,
}

/// A level of a filter, as a step down from a node.
#[derive(Clone, Copy)]
enum Step<'a> {
    Plus,
    Literal { symbol: u32, level: &'a str },
}

/// The last level of a filter.
#[derive(Clone, Copy)]
enum End<'a> {
    Below,
    Step(Step<'a>),
}

/// The nodes from the root to the end of a filter, each with the step that leaves it.
type Path<'a> = SmallVec<[(u32, Step<'a>); 8]>;

impl<S: Subscriber> Trie<S> {
    pub(super) fn new(hashing: Hashing) -> Self {
        let mut nodes = Slab::default();
        nodes.insert(Node::default());
        Self {
            hashing,
            nodes,
            edges: Edges::new(hashing),
            symbols: Symbols::new(hashing),
            sets: Slab::default(),
            filters: 0,
            patterns: Patterns::default(),
        }
    }

    /// Number of distinct filters.
    pub(super) fn filters(&self) -> usize {
        self.filters
    }

    /// The patterns of the filters.
    pub(super) fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Adds to `found` the subscribers of every filter that matches `topic` (MQTT 5 §4.7.1).
    pub(super) fn matching<'a>(&'a self, topic: &str, found: &mut Matching<'a, S>) {
        let mut frontier: SmallVec<[u32; 16]> = smallvec![ROOT];
        let mut children: SmallVec<[Child; 16]> = SmallVec::new();
        // §4.7.2: a wildcard in the first level does not match a topic that begins with `$`.
        let mut wildcards = !topic.starts_with('$');
        let mut levels = topic.split('/').peekable();
        while let Some(level) = levels.next() {
            let is_last = levels.peek().is_none();
            let symbol = self.symbols.find(level);
            // All memory that a level needs is prefetched before the first value is used: with a
            // million filters, a match consists mostly of waiting for memory.
            if let Some(symbol) = symbol {
                frontier.iter().for_each(|&id| self.edges.touch(id, symbol));
            }
            for id in frontier.drain(..) {
                let node = self.nodes[id];
                if wildcards {
                    found.extend(self.set(node.below));
                    children.push(node.plus);
                }
                if let Some(symbol) = symbol
                    && node.literals > 0
                {
                    children.extend(self.edges.find(id, symbol));
                }
            }
            for child in children.drain(..) {
                if is_last && child.set != NIL {
                    let set = &self.sets[child.set];
                    black_box(set.is_empty());
                    found.push(set);
                }
                if child.node != NIL {
                    black_box(self.nodes[child.node].literals);
                    frontier.push(child.node);
                }
            }
            if frontier.is_empty() {
                return;
            }
            wildcards = true;
        }
        // `a/#` matches `a`.
        found.extend(frontier.into_iter().filter_map(|id| self.set(self.nodes[id].below)));
    }

    /// Calls `visit` for each filter whose subscribers are wanted, in no particular order. Nodes do not know their parents, so it needs 8 bytes for each
    /// node, and 16 for each level, as long as it runs.
    pub(super) fn each(
        &self,
        is_wanted: impl Fn(&Subscribers<S>) -> bool,
        mut visit: impl FnMut(&str, &Subscribers<S>),
    ) {
        let names = self.symbols.levels();
        let name = |symbol: u32| if symbol == NIL { "+" } else { names[symbol as usize] };
        let mut parents = vec![(NIL, NIL); self.nodes.slots()];
        let plus = || self.nodes.iter().map(|(id, node)| (id, NIL, node.plus));
        for (parent, symbol, child) in self.edges.iter().chain(plus()) {
            if child.node != NIL {
                parents[child.node as usize] = (parent, symbol);
            }
        }
        let mut filter = String::new();
        let mut visit = |mut id: u32, last: &str, set: u32| {
            let Some(subscribers) = self.set(set).filter(|set| is_wanted(set)) else { return };
            let mut levels: SmallVec<[&str; 16]> = smallvec![last];
            while id != ROOT {
                let (parent, symbol) = parents[id as usize];
                levels.push(name(symbol));
                id = parent;
            }
            filter.clear();
            for level in levels.into_iter().rev() {
                filter.push_str(level);
                filter.push('/');
            }
            filter.pop();
            visit(&filter, subscribers);
        };
        for (id, node) in self.nodes.iter() {
            visit(id, "#", node.below);
        }
        for (parent, symbol, child) in self.edges.iter().chain(plus()) {
            visit(parent, name(symbol), child.set);
        }
    }

    /// Applies `change` to the subscribers of `filter`, which is created if it does not exist.
    pub(super) fn insert<T>(
        &mut self,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> T {
        let (id, end) = self.create(filter);
        let mut set = self.end(id, end);
        if set == NIL {
            set = self.sets.insert(Subscribers::None);
            self.set_end(id, end, set);
            self.filters += 1;
            self.patterns.add(filter);
        }
        change(&mut self.sets[set])
    }

    /// Applies `change` to the subscribers of `filter`, and removes the filter if it has none left.
    /// Returns `None` if there is no such filter.
    pub(super) fn remove<T>(
        &mut self,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> Option<T> {
        let (path, id, end) = self.find(filter)?;
        let set = self.end(id, end);
        if set == NIL {
            return None;
        }
        let answer = change(&mut self.sets[set]);
        if self.sets[set].is_empty() {
            self.sets.take(set);
            self.set_end(id, end, NIL);
            self.filters -= 1;
            self.patterns.remove(filter);
            self.prune(id, &path);
        }
        if self.filters == 0 {
            *self = Self::new(self.hashing);
        }
        Some(answer)
    }

    fn set(&self, id: u32) -> Option<&Subscribers<S>> {
        (id != NIL).then(|| &self.sets[id])
    }

    /// Returns the subscribers of the filter whose last level is `end`, after the node `id`.
    fn end(&self, id: u32, end: End<'_>) -> u32 {
        match end {
            End::Below => self.nodes[id].below,
            End::Step(step) => self.child(id, step).set,
        }
    }

    fn set_end(&mut self, id: u32, end: End<'_>, set: u32) {
        match end {
            End::Below => self.nodes[id].below = set,
            End::Step(step) => {
                let child = Child { set, ..self.child(id, step) };
                self.set_child(id, step, child);
            }
        }
    }

    fn child(&self, id: u32, step: Step<'_>) -> Child {
        match step {
            Step::Plus => self.nodes[id].plus,
            Step::Literal { symbol, .. } => self.edges.find(id, symbol).unwrap_or(Child::NONE),
        }
    }

    /// Replaces an existing child; an edge that is left without child is removed.
    fn set_child(&mut self, id: u32, step: Step<'_>, child: Child) {
        match step {
            Step::Plus => self.nodes[id].plus = child,
            Step::Literal { symbol, level } if child.is_none() => {
                self.edges.remove(id, symbol);
                self.nodes[id].literals -= 1;
                self.symbols.release(level);
            }
            Step::Literal { symbol, .. } => self.edges.replace(id, symbol, child),
        }
    }

    /// Returns the end of `filter`, and creates all nodes that are missing on the way.
    fn create<'a>(&mut self, filter: &'a str) -> (u32, End<'a>) {
        let mut id = ROOT;
        let (path, last) = split_last(filter);
        for level in path {
            let step = self.create_step(id, level);
            let mut child = self.child(id, step);
            if child.node == NIL {
                child.node = self.nodes.insert(Node::default());
                self.set_child(id, step, child);
            }
            id = child.node;
        }
        match last {
            "#" => (id, End::Below),
            _ => (id, End::Step(self.create_step(id, last))),
        }
    }

    /// Returns the step from the node `id` by `level`, and creates an edge for it if necessary.
    fn create_step<'a>(&mut self, id: u32, level: &'a str) -> Step<'a> {
        if let Some(step) = self.step(level)
            && !matches!(step, Step::Literal { symbol, .. } if self.edges.find(id, symbol).is_none())
        {
            return step;
        }
        let symbol = self.symbols.acquire(level);
        self.edges.insert(id, symbol);
        self.nodes[id].literals += 1;
        Step::Literal { symbol, level }
    }

    /// Returns the step by `level`; `None` if no filter has that level.
    fn step<'a>(&self, level: &'a str) -> Option<Step<'a>> {
        match level {
            "+" => Some(Step::Plus),
            _ => self.symbols.find(level).map(|symbol| Step::Literal { symbol, level }),
        }
    }

    /// Returns the end of `filter` and the path to it, if the node before the end exists.
    fn find<'a>(&self, filter: &'a str) -> Option<(Path<'a>, u32, End<'a>)> {
        let mut id = ROOT;
        let mut walked = Path::new();
        let (path, last) = split_last(filter);
        for level in path {
            let step = self.step(level)?;
            walked.push((id, step));
            id = self.child(id, step).node;
            if id == NIL {
                return None;
            }
        }
        let end = if last == "#" { End::Below } else { End::Step(self.step(last)?) };
        Some((walked, id, end))
    }

    /// Removes the node `id` and those on the `path` to it, from the leaf up, as long as they have
    /// no children.
    fn prune(&mut self, mut id: u32, path: &[(u32, Step<'_>)]) {
        for &(parent, step) in path.iter().rev() {
            if !self.nodes[id].is_bare() {
                break;
            }
            self.nodes.take(id);
            let child = Child { node: NIL, ..self.child(parent, step) };
            self.set_child(parent, step, child);
            id = parent;
        }
    }
}

impl Node {
    fn is_bare(&self) -> bool {
        self.literals == 0 && self.plus.is_none() && self.below == NIL
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { literals: 0, plus: Child::NONE, below: NIL }
    }
}

/// Splits a filter into the levels before the last, and the last level.
fn split_last(filter: &str) -> (impl Iterator<Item = &str>, &str) {
    let (before, last) = match filter.rsplit_once('/') {
        Some((before, last)) => (Some(before), last),
        None => (None, filter),
    };
    (before.into_iter().flat_map(|before| before.split('/')), last)
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

    /// The numbers of nodes, edges, symbols and sets of subscribers in use.
    fn in_use(trie: &Trie<Session>) -> [usize; 4] {
        [trie.nodes.len(), trie.edges.len(), trie.symbols.len(), trie.sets.len()]
    }

    #[test]
    fn the_usual_sizes_are_small() {
        assert_eq!(size_of::<Node>(), 16);
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
        assert_eq!(before, [3, 2, 2, 1]);
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
