//! The retained store against a naive model that compares a filter with every topic.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use barid_core::retained::{RetainedStore, Walked};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Levels around the separator and `$`, and of several lengths.
const LEVELS: [&str; 9] = ["", "a", "a!", "aa", "b", "$s", "%", "\u{1}", "ü"];

fn topics() -> impl Strategy<Value = String> {
    vec(select(&LEVELS[..]), 1..5).prop_map(|levels| levels.join("/"))
}

fn filters() -> impl Strategy<Value = String> {
    let level = prop_oneof![2 => select(&LEVELS[..]), 2 => Just("+")];
    (vec(level, 0..5), any::<bool>()).prop_map(|(mut levels, below)| {
        if below || levels.is_empty() {
            levels.push("#");
        }
        levels.join("/")
    })
}

/// A literal implementation of MQTT 5 §4.7, simple instead of fast.
fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let filter: Vec<&str> = filter.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    levels_match(&filter, &topic)
}

fn levels_match(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) | ([], []) => true,
        ([level, filter @ ..], [other, topic @ ..]) => {
            (*level == "+" || level == other) && levels_match(filter, topic)
        }
        _ => false,
    }
}

fn found(store: &RetainedStore<u32>, filter: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    store.for_each_match(filter, |topic, message| found.push((topic.to_owned(), *message)));
    found
}

/// Finds the matches in walks of a few steps, some of which are also broken off.
fn found_in_steps(store: &RetainedStore<u32>, filter: &str, steps: usize) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let mut after: Option<Box<str>> = None;
    loop {
        let mut left = steps;
        let walked = store.walk(filter, after.as_deref(), &mut left, |topic, message| {
            found.push((topic.to_owned(), *message));
            if message % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match walked {
            Walked::All => return found,
            Walked::To(topic) => {
                assert!(
                    after.is_none_or(|before| before.replace('/', "\0") < topic.replace('/', "\0"))
                );
                after = Some(topic);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn finds_what_a_scan_finds(
        changes in vec((topics(), any::<bool>()), 0..150),
        filters in vec(filters(), 1..20),
        odd_only in any::<bool>(),
        steps in 1..9usize,
    ) {
        let mut store = RetainedStore::default();
        let mut model = BTreeMap::new();
        for (message, (topic, set)) in (0..).zip(changes) {
            if set {
                prop_assert_eq!(store.set(&topic, message), model.insert(topic, message));
            } else {
                prop_assert_eq!(store.remove(&topic), model.remove(&topic));
            }
        }
        if odd_only {
            let mut after = None;
            while let Walked::To(topic) = store.retain(after.as_deref(), steps, |topic, message| {
                assert_eq!(model.get(topic), Some(message));
                message % 2 == 1
            }) {
                after = Some(topic);
            }
            model.retain(|_, message| *message % 2 == 1);
        }
        prop_assert_eq!(store.len(), model.len());
        prop_assert_eq!(store.is_empty(), model.is_empty());
        for (topic, message) in &model {
            prop_assert_eq!(store.get(topic), Some(message));
        }
        for filter in filters {
            let mut found = found(&store, &filter);
            prop_assert_eq!(&found, &found_in_steps(&store, &filter, steps));
            let in_order = found.clone();
            found.sort();
            let expected: Vec<_> = model
                .iter()
                .filter(|(topic, _)| matches(&filter, topic))
                .map(|(topic, message)| (topic.clone(), *message))
                .collect();
            prop_assert_eq!(&found, &expected, "{}", filter);
            let levels = |(topic, _): &(String, u32)| topic.replace('/', "\0");
            prop_assert!(in_order.is_sorted_by_key(levels));
        }
    }
}

#[test]
fn a_topic_is_found_by_its_wildcards() {
    let mut store = RetainedStore::default();
    for (message, topic) in (0..).zip(["a", "a/b", "a/b/c", "a!", "$SYS/a", "/a"]) {
        store.set(topic, message);
    }
    let topics =
        |filter| found(&store, filter).into_iter().map(|(topic, _)| topic).collect::<Vec<_>>();
    assert_eq!(topics("a/#"), ["a", "a/b", "a/b/c"]);
    assert_eq!(topics("#"), ["/a", "a", "a/b", "a/b/c", "a!"]);
    assert_eq!(topics("+/+"), ["/a", "a/b"]);
    assert_eq!(topics("$SYS/+"), ["$SYS/a"]);
    assert_eq!(topics("a/b"), ["a/b"]);
    assert_eq!(topics("a/x"), Vec::<String>::new());
}

#[test]
fn a_filter_that_matches_nothing_takes_no_step() {
    let mut store = RetainedStore::default();
    for device in 0..1_000 {
        store.set(&format!("fleet/{device}/state"), device);
    }
    let is_all = |store: &RetainedStore<u32>, filter: &str| {
        store.walk(filter, None, &mut 1, |_, _| ControlFlow::Break(())) == Walked::All
    };
    for filter in ["+/+/stat", "+/1000/+", "+/+/state/+", "+/+/+/+/#", "+", "+/x/#", "fleet/+/x"] {
        assert!(is_all(&store, filter), "{filter}");
    }
    for filter in ["+/+/state", "+/999/+", "#", "+/+/state/#", "+/+/+"] {
        assert!(!is_all(&store, filter), "{filter}");
    }
    for device in 0..1_000 {
        store.remove(&format!("fleet/{device}/state"));
    }
    assert!(is_all(&store, "#") && is_all(&store, "+/+/state"));
}
