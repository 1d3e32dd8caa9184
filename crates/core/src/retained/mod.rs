//! The retained messages of one tenant (MQTT 5 §3.3.1.3), found by topic and by topic filter.
//!
//! The keys are topics with `/` replaced by U+0000, which no topic contains (§4.7.3). So they sort
//! by levels: a topic, then all topics below it, then its next sibling, whatever characters the
//! levels have. A filter is answered by walking the ranges that can match and seeking past those
//! that cannot. An ordered key-value engine can hold the same keys in the same order and be
//! asked the same way.
//!
//! A walk may be long, whatever it finds: `+/b` has to look below every first level. So it is made in steps.

mod levels;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use levels::Levels;

/// Stands for `/` in a key; sorts before every character of a level.
const SEPARATOR: char = '\0';
/// The character after [`SEPARATOR`]: `level` + this is past all topics below `level`.
const PAST_SEPARATOR: char = '\u{1}';
/// The string after all that begin with `$`.
const PAST_DOLLAR: &str = "%";
/// This many keys are stepped over before seeking, since a seek costs as much as a few steps.
const STEPS_MAX: usize = 8;

/// One `M` per topic. Topics and filters are taken as valid (§4.7).
pub struct RetainedStore<M> {
    by_key: BTreeMap<Box<str>, M>,
    levels: Levels,
}

/// How far a walk has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Walked {
    /// To the end.
    All,
    /// To this topic: the walk goes on after it.
    To(Box<str>),
}

impl<M> RetainedStore<M> {
    /// A store with nothing in it. The seed should be secret where clients are not trusted, so that nobody can
    /// choose levels that collide; it has no other effect.
    pub fn with_seed(seed: u64) -> Self {
        Self { by_key: BTreeMap::new(), levels: Levels::with_seed(seed) }
    }

    /// How many topics have a message.
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

    /// Makes `message` the message of `topic`; answers the one it replaces.
    pub fn set(&mut self, topic: &str, message: M) -> Option<M> {
        let replaced = self.by_key.insert(key(topic).into_boxed_str(), message);
        if replaced.is_none() {
            self.levels.add(topic.split('/'));
        }
        replaced
    }

    /// Removes and answers the message of `topic`.
    pub fn remove(&mut self, topic: &str) -> Option<M> {
        let removed = self.by_key.remove(key(topic).as_str())?;
        self.levels.remove(topic.split('/'));
        Some(removed)
    }

    /// Looks at up to `steps` messages, of the topics that sort after `after` (all when there is none), and removes
    /// those for which `keep` answers false.
    pub fn retain(
        &mut self,
        after: Option<&str>,
        steps: usize,
        mut keep: impl FnMut(&str, &M) -> bool,
    ) -> Walked {
        let bound = after.map_or_else(String::new, next_key);
        let from = (Bound::Included(bound.as_str()), Bound::Unbounded);
        let mut removed = Vec::new();
        let mut topic = String::new();
        let mut walked = Walked::All;
        for (step, (key, message)) in self.by_key.range::<str, _>(from).enumerate() {
            if step == steps {
                walked = Walked::To(topic.as_str().into());
                break;
            }
            write_topic(key, &mut topic);
            if !keep(&topic, message) {
                removed.push(key.clone());
            }
        }
        for key in removed {
            self.by_key.remove(&key);
            self.levels.remove(key.split(SEPARATOR));
        }
        walked
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

    /// Like [`Self::for_each_match`], for the topics that sort after `after` only (all of them when
    /// there is none), until `found` breaks it off or no `steps` are left (it makes at least one): so that many can be
    /// taken a few at a time.
    ///
    /// A step is a topic that is found or passed over, a range of topics that is, or a few of them. There are about
    /// as many as topics that match, and siblings at the levels where the filter has `+`. A filter takes none if
    /// one of its levels is in no topic at its place.
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
    /// An empty store with a seed that everybody knows.
    fn default() -> Self {
        Self::with_seed(0)
    }
}

/// What a key says about a filter.
enum Verdict {
    Matches,
    /// It does not match, nor does any key between it and the bound.
    NotBefore,
    /// Neither it nor any key after it matches.
    NoMore,
}

/// Compares a key with the levels of a filter; sets `bound` for [`Verdict::NotBefore`].
fn compare(filter: &[&str], key: &str, bound: &mut String) -> Verdict {
    if key.starts_with('$') && matches!(filter[0], "+" | "#") {
        set(bound, &[PAST_DOLLAR]);
        return Verdict::NotBefore;
    }
    // Where the key may be varied: the end of its last level so far that `+` matched.
    let mut varied_end = None;
    // Where the next level of the key begins; past its end when there is none.
    let mut start = 0;
    for &wanted in filter {
        if wanted == "#" {
            return Verdict::Matches;
        }
        let Some(rest) = key.get(start..) else {
            // The filter goes on below the key.
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

/// The smallest key after that of a topic: no character is smaller than the one appended.
fn next_key(topic: &str) -> String {
    key(topic) + "\0"
}

/// Goes on behind everything that begins with the levels of `key` up to `varied_end`.
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
