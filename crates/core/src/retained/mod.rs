//! The retained messages of one tenant (MQTT 5 §3.3.1.3), found by topic and by topic filter.
//!
//! The keys are topics with `/` replaced by U+0000, which no topic contains (§4.7.3). Therefore they sort by levels: a
//! topic, then all topics below it, then its next sibling, whatever characters the levels have. A filter is answered by
//! walking the ranges that can match and seeking past those that cannot. An ordered key-value engine can hold the same
//! keys in the same order and be queried in the same way.
//!
//! A walk can be long whatever it finds: for `+/b` it must look below every first level. Therefore it can be done in
//! steps.

mod levels;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use levels::Levels;

/// Replaces `/` in a key; sorts before every character of a level.
const SEPARATOR: char = '\0';
/// The character after [`SEPARATOR`]: a level followed by it sorts after all topics below that level.
const PAST_SEPARATOR: char = '\u{1}';
/// The first string after all strings that begin with `$`.
const PAST_DOLLAR: &str = "%";
/// Number of keys that are skipped one by one before seeking, as a seek costs as much as a few steps.
const STEPS_MAX: usize = 8;

/// A map from topics to messages of type `M`. Topics and filters must be valid (§4.7).
pub struct RetainedStore<M> {
    by_key: BTreeMap<Box<str>, M>,
    levels: Levels,
}

/// The progress of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Walked {
    /// The walk is complete.
    All,
    /// The walk was interrupted at this topic, and continues after it.
    To(Box<str>),
}

impl<M> RetainedStore<M> {
    /// Creates an empty store. If clients are not trusted the seed should be secret, so that nobody can choose levels
    /// whose hashes collide; it has no other effect.
    pub fn with_seed(seed: u64) -> Self {
        Self { by_key: BTreeMap::new(), levels: Levels::with_seed(seed) }
    }

    /// Number of topics that have a message.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no topic has a message.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The message of `topic`.
    pub fn get(&self, topic: &str) -> Option<&M> {
        self.by_key.get(key(topic).as_str())
    }

    /// Sets the message of `topic`. Returns the message that it replaces.
    pub fn set(&mut self, topic: &str, message: M) -> Option<M> {
        let replaced = self.by_key.insert(key(topic).into_boxed_str(), message);
        if replaced.is_none() {
            self.levels.add(topic.split('/'));
        }
        replaced
    }

    /// Removes and returns the message of `topic`.
    pub fn remove(&mut self, topic: &str) -> Option<M> {
        let removed = self.by_key.remove(key(topic).as_str())?;
        self.levels.remove(topic.split('/'));
        Some(removed)
    }

    /// Visits up to `steps` messages, of the topics that sort after `after` (of all topics if it is `None`), and
    /// removes those for which `keep` returns false.
    pub fn retain(
        &mut self,
        after: Option<&str>,
        steps: usize,
        mut keep: impl FnMut(&str, &M) -> bool,
    ) -> Walked {
        let mut removed = Vec::new();
        let walked = self.visit(after, steps, |topic, message| {
            if !keep(topic, message) {
                removed.push(topic.to_owned());
            }
        });
        for topic in removed {
            self.remove(&topic);
        }
        walked
    }

    /// Visits up to `steps` messages, of the topics that sort after `after` (of all topics if it is `None`).
    pub fn visit(
        &self,
        after: Option<&str>,
        steps: usize,
        mut each: impl FnMut(&str, &M),
    ) -> Walked {
        let bound = after.map_or_else(String::new, next_key);
        let from = (Bound::Included(bound.as_str()), Bound::Unbounded);
        let mut topic = String::new();
        for (step, (key, message)) in self.by_key.range::<str, _>(from).enumerate() {
            if step == steps {
                return Walked::To(topic.into());
            }
            write_topic(key, &mut topic);
            each(&topic, message);
        }
        Walked::All
    }

    /// Calls `found` with each topic that `filter` matches (§4.7.1, §4.7.2), sorted by levels.
    pub fn for_each_match(&self, filter: &str, mut found: impl FnMut(&str, &M)) {
        let mut all = usize::MAX;
        let walked = self.walk(filter, None, &mut all, |topic, message| {
            found(topic, message);
            ControlFlow::Continue(())
        });
        debug_assert_eq!(walked, Walked::All);
    }

    /// Like [`Self::for_each_match`], but only for the topics that sort after `after` (all topics if it is `None`), and
    /// only until `found` breaks off or no `steps` are left; makes at least one step. Many matches can thus be taken a
    /// few at a time.
    ///
    /// A step is a topic that is found or skipped, or a range of topics that is skipped, or a few of them. A walk has
    /// about as many steps as there are matching topics, plus siblings at the levels where the filter has `+`. A filter
    /// takes no step if one of its levels is in no topic at that position.
    pub fn walk(
        &self,
        filter: &str,
        after: Option<&str>,
        steps: &mut usize,
        mut found: impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> Walked {
        let levels: Vec<&str> = filter.split('/').collect();
        if !self.levels.may_match(&levels) {
            return Walked::All;
        }
        let mut topic = String::new();
        let mut bound = after.map_or_else(|| first_bound(&levels), next_key);
        let mut last = None;
        'seek: loop {
            let from = (Bound::Included(bound.as_str()), Bound::Unbounded);
            let mut passed = 0;
            for (key, message) in self.by_key.range::<str, _>(from) {
                if **key < *bound {
                    passed += 1;
                    if passed == STEPS_MAX {
                        continue 'seek;
                    }
                    continue;
                }
                if *steps == 0
                    && let Some(last) = last
                {
                    write_topic(last, &mut topic);
                    return Walked::To(topic.into());
                }
                *steps = steps.saturating_sub(1);
                last = Some(key);
                match compare(&levels, key, &mut bound) {
                    Verdict::Matches => {
                        write_topic(key, &mut topic);
                        if found(&topic, message).is_break() {
                            return Walked::To(topic.as_str().into());
                        }
                    }
                    Verdict::NotBefore => passed = 0,
                    Verdict::NoMore => return Walked::All,
                }
            }
            return Walked::All;
        }
    }
}

impl<M> Default for RetainedStore<M> {
    /// Creates an empty store with a publicly known seed.
    fn default() -> Self {
        Self::with_seed(0)
    }
}

/// The result of comparing a key with a filter.
enum Verdict {
    Matches,
    /// The key does not match, nor does any key between it and the bound.
    NotBefore,
    /// Neither the key nor any key after it matches.
    NoMore,
}

/// Compares a key with the levels of a filter; sets `bound` for [`Verdict::NotBefore`].
fn compare(filter: &[&str], key: &str, bound: &mut String) -> Verdict {
    if key.starts_with('$') && matches!(filter[0], "+" | "#") {
        set(bound, &[PAST_DOLLAR]);
        return Verdict::NotBefore;
    }
    // The end of the last level so far that `+` matched: other topics may have another level there.
    let mut varied_end = None;
    // Where the next level of the key begins; past the end of the key if there is none.
    let mut start = 0;
    for &wanted in filter {
        if wanted == "#" {
            return Verdict::Matches;
        }
        let Some(rest) = key.get(start..) else {
            // The filter has more levels than the key.
            let below = if wanted == "+" { "" } else { wanted };
            set(bound, &[key, "\0", below]);
            return Verdict::NotBefore;
        };
        let level = rest.split(SEPARATOR).next().unwrap_or_default();
        let end = start + level.len();
        if wanted == "+" {
            varied_end = Some(end);
        } else {
            match level.cmp(wanted) {
                Ordering::Equal => {}
                Ordering::Less => {
                    set(bound, &[&key[..start], wanted]);
                    return Verdict::NotBefore;
                }
                Ordering::Greater => return past(key, varied_end, bound),
            }
        }
        start = end + SEPARATOR.len_utf8();
    }
    if start > key.len() { Verdict::Matches } else { past(key, varied_end, bound) }
}

/// The smallest key after that of a topic: no character sorts before the appended one.
fn next_key(topic: &str) -> String {
    key(topic) + "\0"
}

/// Sets `bound` past all keys that begin with the levels of `key` up to `varied_end`.
fn past(key: &str, varied_end: Option<usize>, bound: &mut String) -> Verdict {
    let Some(end) = varied_end else { return Verdict::NoMore };
    set(bound, &[&key[..end]]);
    bound.push(PAST_SEPARATOR);
    Verdict::NotBefore
}

/// The smallest key that `filter` can match: its levels before the first wildcard.
fn first_bound(filter: &[&str]) -> String {
    let literals = filter.iter().take_while(|level| !matches!(**level, "+" | "#"));
    let literals: Vec<&str> = literals.copied().collect();
    literals.join("\0")
}

fn set(bound: &mut String, parts: &[&str]) {
    bound.clear();
    bound.extend(parts.iter().copied());
}

fn key(topic: &str) -> String {
    topic.replace('/', "\0")
}

fn write_topic(key: &str, topic: &mut String) {
    topic.clear();
    for (at, level) in key.split(SEPARATOR).enumerate() {
        if at > 0 {
            topic.push('/');
        }
        topic.push_str(level);
    }
}
