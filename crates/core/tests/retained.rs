//! The retained store against a naive model that compares a filter with every topic.

use std::collections::BTreeMap;

use barid_core::retained::RetainedStore;
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

/// MQTT 5 §4.7, word for word rather than fast.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn finds_what_a_scan_finds(
        changes in vec((topics(), any::<bool>()), 0..150),
        filters in vec(filters(), 1..20),
        odd_only in any::<bool>(),
    ) {
        let mut store = RetainedStore::new();
        let mut model = BTreeMap::new();
        for (message, (topic, set)) in (0..).zip(changes) {
            if set {
                prop_assert_eq!(store.set(&topic, message), model.insert(topic, message));
            } else {
                prop_assert_eq!(store.remove(&topic), model.remove(&topic));
            }
        }
        if odd_only {
            store.retain(|topic, message| {
                assert_eq!(model.get(topic), Some(message));
                message % 2 == 1
            });
            model.retain(|_, message| *message % 2 == 1);
        }
        prop_assert_eq!(store.len(), model.len());
        prop_assert_eq!(store.is_empty(), model.is_empty());
        for (topic, message) in &model {
            prop_assert_eq!(store.get(topic), Some(message));
        }
        for filter in filters {
            let mut found = found(&store, &filter);
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
    let mut store = RetainedStore::new();
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
