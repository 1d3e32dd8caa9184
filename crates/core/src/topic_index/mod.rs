//! The topic index of one tenant: topic filters → subscribers.
//!
//! Every PUBLISH asks [`TopicIndex::route`] for the recipients, or asks a cached [`Route`] whether it is still
//! [current](Route::is_current), which takes no lock. Subscribing and unsubscribing can happen at the same time, from
//! any thread.
//!
//! Filters without wildcards are in a sharded hash map, one probe per topic. The others are in one trie, which is never
//! accessed for a tenant without them. The index is derived from the sessions: it can be rebuilt from their
//! subscriptions, and contains nothing else.

mod edges;
mod epochs;
mod exact;
mod hashing;
mod patterns;
mod roster;
mod route;
mod shared;
mod slab;
mod subscribers;
mod symbols;
mod trie;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqtt_proto::QoS;
use parking_lot::RwLock;
use smallvec::SmallVec;

use epochs::{Epochs, Scope, Stamp};
use exact::Exact;
use hashing::{Hashing, SHARDS};
use subscribers::{Change, Subscribers};
use trie::Trie;

pub use route::{Identifiers, Recipient, Route};
pub use shared::{Load, Members, SharedGroup, Strategy};

/// Number of portions in which an index can be [searched](TopicIndex::each_subscription): the filters without wildcards in
/// equal parts, and those with wildcards.
pub const PORTIONS: usize = SHARDS + 1;

/// Number of subscriptions from which on an index uses the large table of change counters.
const MANY_SUBSCRIPTIONS: usize = 4096;

/// A session from the index's point of view: a handle that is cheap to clone.
pub trait Subscriber: Clone + Send + Sync + 'static {
    /// Identifies the session. Handles with the same key are the same subscriber.
    fn key(&self) -> u64;
}

/// Options of a subscription, as granted (MQTT 5 §3.8.3.1). Retain Handling is not included: it matters only at the
/// moment of subscribing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscribeOptions {
    /// The granted Maximum QoS.
    pub qos: QoS,
    /// Whether the subscriber does not get its own messages.
    pub no_local: bool,
    /// Whether the RETAIN flag is forwarded as published.
    pub retain_as_published: bool,
    /// The Subscription Identifier.
    pub identifier: Option<NonZeroU32>,
}

/// One subscriber of one filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<S> {
    /// The session.
    pub subscriber: S,
    /// Its options for this filter.
    pub options: SubscribeOptions,
}

/// The subscriptions of one tenant.
///
/// Filters and topics must be valid (MQTT 5 §4.7), and their number of levels bounded: a filter with wildcards costs up
/// to 100 bytes for each level that no other filter has.
///
/// A route includes all changes whose call has returned before, and possibly some that are under way. While a lock is
/// held, subscribers are cloned and asked for their key, never dropped.
pub struct TopicIndex<S> {
    hashing: Hashing,
    exact: Exact<S>,
    trie: RwLock<Trie<S>>,
    /// The value of [`Trie::filters`], readable without the trie's lock.
    wildcards: AtomicUsize,
    subscriptions: AtomicUsize,
    epochs: Epochs,
}

/// The subscribers of the filters that match a topic.
type Matching<'a, S> = SmallVec<[&'a Subscribers<S>; 16]>;

impl<S: Subscriber> TopicIndex<S> {
    /// Creates an empty index. If clients are not trusted the seed should be secret, so that nobody can choose topics
    /// whose hashes collide; it has no other effect.
    pub fn with_seed(seed: u64) -> Self {
        let hashing = Hashing::with_seed(seed);
        Self {
            hashing,
            exact: Exact::new(),
            trie: RwLock::new(Trie::new(hashing)),
            wildcards: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
            epochs: Epochs::new(),
        }
    }

    /// Returns the recipients of a message published to `topic`.
    pub fn route(&self, topic: &str) -> Route<S> {
        self.look_up(topic, Route::new)
    }

    /// Like [`Self::route`], without the subscriptions for whose handles `counts` returns false. Shared subscriptions have all
    /// their members. If it may change its mind about a handle, routes must be [made anew](Self::outdate_routes). For
    /// indexes with few subscribers.
    pub fn route_of(&self, topic: &str, counts: impl Fn(&S) -> bool) -> Route<S> {
        self.look_up(topic, |stamp, found| Route::of(stamp, found, counts))
    }

    /// From now on, no route that was made before is [current](Route::is_current).
    pub fn outdate_routes(&self) {
        self.epochs.advance(Scope::Global);
    }

    fn look_up(
        &self,
        topic: &str,
        answer: impl FnOnce(Stamp, &Matching<'_, S>) -> Route<S>,
    ) -> Route<S> {
        let hash = self.hashing.text(topic);
        let first = self.hashing.text(leading(topic, 1));
        let two = self.hashing.text(leading(topic, 2));
        // `Route::is_current` is sound only in this order, see `epochs`.
        let stamp = self.epochs.stamp([hash, two, first]);

        let exact = self.exact.read(hash);
        let trie = (self.wildcards.load(Ordering::Acquire) > 0).then(|| self.trie.read());
        let mut found = Matching::new();
        found.extend(exact.find(hash, topic));
        if let Some(trie) = &trie {
            trie.matching(topic, &mut found);
        }
        answer(stamp, &found)
    }

    /// Adds a subscription, or replaces the one that the subscriber has with the same filter (MQTT 5 §3.8.4). Returns
    /// whether it is new.
    pub fn subscribe(&self, filter: &str, subscriber: &S, options: SubscribeOptions) -> bool {
        self.replace(filter, subscriber, options).is_none()
    }

    /// [`Self::subscribe`]. Returns the handle of the subscription that was replaced.
    pub fn replace(&self, filter: &str, subscriber: &S, options: SubscribeOptions) -> Option<S> {
        let member = Member { subscriber: subscriber.clone(), options };
        self.add(filter, |subscribers| subscribers.insert(member))
    }

    /// Removes the subscription of the session `key`. Returns whether there was one.
    pub fn unsubscribe(&self, filter: &str, key: u64) -> bool {
        self.take(filter, key, |_| true).is_some()
    }

    /// [`Self::unsubscribe`], if `is_it` returns true for the handle of the subscription. Returns the handle.
    pub fn take(&self, filter: &str, key: u64, is_it: impl FnOnce(&S) -> bool) -> Option<S> {
        self.remove(filter, |subscribers| match subscribers.get(key).filter(|one| is_it(one)) {
            Some(_) => subscribers.remove(key),
            None => Change::NONE,
        })
    }

    /// [`Self::subscribe`] to `$share/{name}/{filter}`.
    pub fn subscribe_shared(
        &self,
        name: &str,
        filter: &str,
        subscriber: &S,
        options: SubscribeOptions,
    ) -> bool {
        self.replace_shared(name, filter, subscriber, options).is_none()
    }

    /// [`Self::replace`] for `$share/{name}/{filter}`.
    pub fn replace_shared(
        &self,
        name: &str,
        filter: &str,
        subscriber: &S,
        options: SubscribeOptions,
    ) -> Option<S> {
        let member = Member { subscriber: subscriber.clone(), options };
        self.add(filter, |subscribers| subscribers.insert_shared(name, filter, member))
    }

    /// [`Self::unsubscribe`] from `$share/{name}/{filter}`.
    pub fn unsubscribe_shared(&self, name: &str, filter: &str, key: u64) -> bool {
        self.take_shared(name, filter, key, |_| true).is_some()
    }

    /// [`Self::take`] for `$share/{name}/{filter}`.
    pub fn take_shared(
        &self,
        name: &str,
        filter: &str,
        key: u64,
        is_it: impl FnOnce(&S) -> bool,
    ) -> Option<S> {
        self.remove(filter, |subscribers| {
            match subscribers.get_shared(name, key).filter(|one| is_it(one)) {
                Some(_) => subscribers.remove_shared(name, key),
                None => Change::NONE,
            }
        })
    }

    /// Calls `look` with the filters and handles of the subscriptions for whose handles `is_wanted` returns true, and with the
    /// name of the shared subscription if it is one. Those of one portion of the index, of which there are [`PORTIONS`], so that
    /// a large index can be searched in steps: no subscription of the portion changes meanwhile.
    ///
    /// # Panics
    /// `portion` is not less than [`PORTIONS`].
    pub fn each_subscription(
        &self,
        portion: usize,
        is_wanted: impl Fn(&S) -> bool,
        mut look: impl FnMut(&str, Option<&str>, &S),
    ) {
        let are_wanted = |subscribers: &Subscribers<S>| subscribers.any(&is_wanted);
        let mut look = |filter: &str, subscribers: &Subscribers<S>| {
            subscribers.each(|group, one| {
                if is_wanted(one) {
                    look(filter, group, one);
                }
            });
        };
        if portion == SHARDS {
            self.trie.read().each(are_wanted, look);
        } else {
            let table = self.exact.table(portion);
            table.filters().for_each(|(filter, subscribers)| look(filter, subscribers));
        }
    }

    /// Returns whether a filter may be subscribed to, so that finding the subscribers of a topic takes at most `most`
    /// steps through the filters with wildcards. The steps are the levels of all distinct patterns of wildcards. A
    /// filter with an existing pattern costs nothing.
    pub fn admits(&self, filter: &str, most: usize) -> bool {
        self.scope(filter).is_none() || {
            let trie = self.trie.read();
            let levels = trie.patterns().levels_with(filter);
            levels <= most || levels == trie.patterns().levels()
        }
    }

    /// Number of levels of all distinct patterns of the filters with wildcards; see [`Self::admits`].
    pub fn pattern_levels(&self) -> usize {
        self.trie.read().patterns().levels()
    }

    /// Number of subscriptions, with each member of a shared one counted.
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    /// Whether there is no subscription.
    pub fn is_empty(&self) -> bool {
        self.subscription_count() == 0
    }

    fn add(
        &self,
        filter: &str,
        insert: impl FnOnce(&mut Subscribers<S>) -> Change<S>,
    ) -> Option<S> {
        let change = match self.scope(filter) {
            Some(scope) => {
                let mut trie = self.trie.write();
                let change = trie.insert(filter, insert);
                self.wildcards.store(trie.filters(), Ordering::Release);
                self.advance_after(&change, scope);
                change
            }
            None => {
                let hash = self.hashing.text(filter);
                let mut table = self.exact.write(hash);
                let change = table.insert(self.hashing, hash, filter, insert);
                self.advance_after(&change, Scope::Prefix(hash));
                change
            }
        };
        if change.counts {
            let before = self.subscriptions.fetch_add(1, Ordering::Relaxed);
            if before + 1 == MANY_SUBSCRIPTIONS {
                let _sole_writer = self.trie.write();
                self.epochs.grow();
            }
        }
        change.left.map(|member| member.subscriber)
    }

    fn remove(
        &self,
        filter: &str,
        remove: impl FnOnce(&mut Subscribers<S>) -> Change<S>,
    ) -> Option<S> {
        let change = match self.scope(filter) {
            Some(scope) => {
                let mut trie = self.trie.write();
                let change = trie.remove(filter, remove).unwrap_or(Change::NONE);
                self.wildcards.store(trie.filters(), Ordering::Release);
                self.advance_after(&change, scope);
                change
            }
            None => {
                let hash = self.hashing.text(filter);
                let mut table = self.exact.write(hash);
                let change = table.remove(self.hashing, hash, filter, remove);
                let change = change.unwrap_or(Change::NONE);
                self.advance_after(&change, Scope::Prefix(hash));
                change
            }
        };
        if change.counts {
            self.subscriptions.fetch_sub(1, Ordering::Relaxed);
        }
        change.left.map(|member| member.subscriber)
    }

    fn advance_after(&self, change: &Change<S>, scope: Scope) {
        if change.routes {
            self.epochs.advance(scope);
        }
    }

    /// Returns the scope of a filter with wildcards; `None` if it has none.
    fn scope(&self, filter: &str) -> Option<Scope> {
        let wildcard = filter.bytes().position(|byte| matches!(byte, b'+' | b'#'))?;
        // The part before the first wildcard consists of whole levels, each with its '/'.
        let Some(literals) = filter[..wildcard].strip_suffix('/') else {
            return Some(Scope::Global);
        };
        Some(Scope::Prefix(self.hashing.text(leading(literals, 2))))
    }
}

impl<S: Subscriber> Default for TopicIndex<S> {
    /// Creates an empty index with a publicly known seed.
    fn default() -> Self {
        Self::with_seed(0)
    }
}

/// Returns the first `levels` levels of `topic`, or all of it if it has no more.
fn leading(topic: &str, levels: usize) -> &str {
    let slashes = topic.bytes().enumerate().filter(|&(_, byte)| byte == b'/');
    slashes.map(|(at, _)| at).nth(levels - 1).map_or(topic, |end| &topic[..end])
}
