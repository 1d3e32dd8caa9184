//! The topic index against a naive model that compares a topic with every filter.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use barid_core::topic_index::{PORTIONS, Route, SubscribeOptions, Subscriber, TopicIndex};
use mqtt_proto::QoS;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Session(u64);

impl Subscriber for Session {
    fn key(&self) -> u64 {
        self.0
    }
}

const PLAIN: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

/// The content of a route, in a defined order.
#[derive(PartialEq, Debug, Default)]
struct Answer {
    targets: BTreeMap<u64, (QoS, bool, bool, Vec<u32>)>,
    groups: BTreeMap<(String, String), BTreeMap<u64, QoS>>,
}

impl From<&Route<Session>> for Answer {
    fn from(route: &Route<Session>) -> Self {
        let mut answer = Self::default();
        for target in route.recipients() {
            let mut identifiers: Vec<u32> =
                target.identifiers.as_slice().iter().map(|one| one.get()).collect();
            identifiers.sort_unstable();
            let how = (target.qos, target.no_local, target.retain_as_published, identifiers);
            let twice = answer.targets.insert(target.subscriber.0, how);
            assert_eq!(twice, None, "one target per session");
        }
        for group in route.groups() {
            let members = group.members();
            let members = members.iter().map(|member| (member.subscriber.0, member.options.qos));
            let name = (group.name().to_owned(), group.filter().to_owned());
            let twice = answer.groups.insert(name, members.collect());
            assert_eq!(twice, None, "one group per ShareName and filter");
        }
        answer
    }
}

#[derive(Default)]
struct Model {
    plain: BTreeMap<(String, u64), SubscribeOptions>,
    shared: BTreeMap<(String, String, u64), SubscribeOptions>,
}

impl Model {
    fn answer(&self, topic: &str) -> Answer {
        let mut answer = Answer::default();
        for ((filter, key), options) in &self.plain {
            if !matches(filter, topic) {
                continue;
            }
            let target =
                answer.targets.entry(*key).or_insert((QoS::AtMostOnce, true, false, Vec::new()));
            target.0 = target.0.max(options.qos);
            target.1 &= options.no_local;
            target.2 |= options.retain_as_published;
            target.3.extend(options.identifier.map(NonZeroU32::get));
            target.3.sort_unstable();
        }
        for ((name, filter, key), options) in &self.shared {
            if matches(filter, topic) {
                let group = answer.groups.entry((name.clone(), filter.clone())).or_default();
                group.insert(*key, options.qos);
            }
        }
        answer
    }
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

#[derive(Clone, Debug)]
enum Step {
    Subscribe(String, u64, SubscribeOptions),
    Unsubscribe(String, u64),
    SubscribeShared(&'static str, String, u64, SubscribeOptions),
    UnsubscribeShared(&'static str, String, u64),
    UnsubscribeAll(u64),
    Route(String),
}

const LEVELS: [&str; 6] = ["a", "b", "", "$s", "a level of more than 22 bytes", "ü"];

fn topics() -> impl Strategy<Value = String> {
    vec(select(&LEVELS[..]), 1..5).prop_map(|levels| levels.join("/"))
}

fn filters() -> BoxedStrategy<String> {
    let level = prop_oneof![2 => select(&LEVELS[..4]), 1 => Just("+")];
    (vec(level, 0..4), any::<bool>())
        .prop_map(|(mut levels, below)| {
            if below || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .boxed()
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    let qos = select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..]);
    (qos, any::<bool>(), any::<bool>(), option::of(1..9u32)).prop_map(
        |(qos, no_local, retain_as_published, identifier)| SubscribeOptions {
            qos,
            no_local,
            retain_as_published,
            identifier: identifier.and_then(NonZeroU32::new),
        },
    )
}

fn steps(filters: BoxedStrategy<String>, keys: u64) -> impl Strategy<Value = Step> {
    let name = select(&["one", "two"][..]);
    prop_oneof![
        6 => (filters.clone(), 0..keys, options()).prop_map(|(f, k, o)| Step::Subscribe(f, k, o)),
        4 => (filters.clone(), 0..keys).prop_map(|(f, k)| Step::Unsubscribe(f, k)),
        3 => (name.clone(), filters.clone(), 0..keys, options())
            .prop_map(|(n, f, k, o)| Step::SubscribeShared(n, f, k, o)),
        2 => (name, filters, 0..keys).prop_map(|(n, f, k)| Step::UnsubscribeShared(n, f, k)),
        1 => (0..keys).prop_map(Step::UnsubscribeAll),
        3 => topics().prop_map(Step::Route),
    ]
}

/// Runs `steps` on an index and the model. Every route is kept; as long as it is current, it must
/// agree with the model.
fn check(steps: Vec<Step>) {
    let index = TopicIndex::with_seed(7);
    let mut model = Model::default();
    let mut kept: BTreeMap<String, Route<Session>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Subscribe(filter, key, options) => {
                let new = index.subscribe(&filter, &Session(key), options);
                assert_eq!(new, model.plain.insert((filter, key), options).is_none());
            }
            Step::Unsubscribe(filter, key) => {
                let had = index.unsubscribe(&filter, key);
                assert_eq!(had, model.plain.remove(&(filter, key)).is_some());
            }
            Step::SubscribeShared(name, filter, key, options) => {
                let new = index.subscribe_shared(name, &filter, &Session(key), options);
                let replaced = model.shared.insert((name.to_owned(), filter, key), options);
                assert_eq!(new, replaced.is_none());
            }
            Step::UnsubscribeShared(name, filter, key) => {
                let had = index.unsubscribe_shared(name, &filter, key);
                assert_eq!(had, model.shared.remove(&(name.to_owned(), filter, key)).is_some());
            }
            Step::UnsubscribeAll(key) => {
                let before = model.plain.len() + model.shared.len();
                model.plain.retain(|(_, other), _| *other != key);
                model.shared.retain(|(_, _, other), _| *other != key);
                let removed = before - model.plain.len() - model.shared.len();
                let found = |wanted: bool| {
                    let is_wanted = |session: &Session| wanted && session.0 == key;
                    let mut found = Vec::new();
                    for portion in 0..PORTIONS {
                        index.each_subscription(portion, is_wanted, |filter, group, session| {
                            assert_eq!(session.0, key);
                            found.push((filter.to_owned(), group.map(str::to_owned)));
                        });
                    }
                    found
                };
                assert!(found(false).is_empty());
                let found = found(true);
                assert_eq!(found.len(), removed);
                for (filter, group) in found {
                    let take = |is_it: bool| match &group {
                        Some(name) => index.take_shared(name, &filter, key, |_| is_it),
                        None => index.take(&filter, key, |_| is_it),
                    };
                    assert_eq!((take(false), take(true)), (None, Some(Session(key))));
                }
            }
            Step::Route(topic) => {
                let route = index.route(&topic);
                assert!(route.is_current(&index));
                let of_all = index.route_of(&topic, |_| true);
                assert_eq!(Answer::from(&of_all), Answer::from(&route));
                let even = Answer::from(&index.route_of(&topic, |session| session.0 % 2 == 0));
                let mut expected = Answer::from(&route);
                expected.targets.retain(|key, _| key % 2 == 0);
                assert_eq!(even, expected);
                kept.insert(topic, route);
            }
        }
        kept.retain(|_, route| route.is_current(&index));
        for (topic, route) in &kept {
            assert_eq!(Answer::from(route), model.answer(topic), "{topic}");
        }
        assert_eq!(index.subscription_count(), model.plain.len() + model.shared.len());
    }
    for (filter, key) in model.plain.into_keys() {
        assert!(index.unsubscribe(&filter, key));
    }
    for (name, filter, key) in model.shared.into_keys() {
        assert!(index.unsubscribe_shared(&name, &filter, key));
    }
    assert!(index.is_empty());
    for topic in kept.keys() {
        assert!(index.route(topic).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn many_filters_few_sessions(steps in vec(steps(filters(), 4), 1..120)) {
        check(steps);
    }

    #[test]
    fn few_filters_many_sessions(
        steps in vec(steps(select(vec!["a".to_owned(), "a/#".to_owned()]).boxed(), 90), 1..300)
    ) {
        check(steps);
    }
}

fn targets(index: &TopicIndex<Session>, topic: &str) -> BTreeSet<u64> {
    index.route(topic).recipients().iter().map(|target| target.subscriber.0).collect()
}

/// Creates an index in which session `n` has subscribed to the `n`-th filter.
fn index_of(filters: &[&str]) -> TopicIndex<Session> {
    let index = TopicIndex::default();
    for (key, filter) in (0..).zip(filters) {
        index.subscribe(filter, &Session(key), PLAIN);
    }
    index
}

#[test]
fn multi_level_wildcard_matches_its_parent_too() {
    let index = index_of(&["sport/#", "#", "sport/tennis/#"]);
    assert_eq!(targets(&index, "sport"), BTreeSet::from([0, 1]));
    assert_eq!(targets(&index, "sport/tennis/a/b"), BTreeSet::from([0, 1, 2]));
    assert_eq!(targets(&index, "sports"), BTreeSet::from([1]));
}

#[test]
fn empty_levels_count() {
    let index = index_of(&["+/+", "/+", "+", "/", "+/", "/finance"]);
    assert_eq!(targets(&index, "/finance"), BTreeSet::from([0, 1, 5]));
    assert_eq!(targets(&index, "/"), BTreeSet::from([0, 1, 3, 4]));
    assert_eq!(targets(&index, "finance"), BTreeSet::from([2]));
}

#[test]
fn leading_wildcards_do_not_match_dollar_topics() {
    let index = index_of(&["#", "+/monitor/clients", "$SYS/#", "$SYS/monitor/+", "+", "a/#"]);
    assert_eq!(targets(&index, "$SYS/monitor/clients"), BTreeSet::from([2, 3]));
    assert_eq!(targets(&index, "$SYS"), BTreeSet::from([2]));
    assert_eq!(targets(&index, "a/$SYS"), BTreeSet::from([0, 5]));
}

#[test]
fn overlapping_subscriptions_make_one_target() {
    let index = TopicIndex::default();
    let one = NonZeroU32::new(1);
    let two = NonZeroU32::new(2);
    let mut options = SubscribeOptions { no_local: true, identifier: one, ..PLAIN };
    index.subscribe("a/b", &Session(1), options);
    options = SubscribeOptions { qos: QoS::AtLeastOnce, identifier: two, ..options };
    index.subscribe("a/+", &Session(1), options);
    let route = index.route("a/b");
    let [target] = route.recipients() else { panic!("one target") };
    assert!(target.no_local, "both subscriptions have No Local");
    assert_eq!((target.qos, target.identifiers.as_slice().len()), (QoS::AtLeastOnce, 2));

    index.subscribe("#", &Session(1), SubscribeOptions { retain_as_published: true, ..PLAIN });
    assert!(!route.is_current(&index));
    let route = index.route("a/b");
    let [target] = route.recipients() else { panic!("one target") };
    assert!(!target.no_local, "`#` asks for the session's own messages");
    assert!(target.retain_as_published);
    assert_eq!((target.qos, target.identifiers.as_slice().len()), (QoS::AtLeastOnce, 2));
}

#[test]
fn changes_elsewhere_leave_a_route_alone() {
    let index = index_of(&["a/b/c"]);
    let route = index.route("a/b/c");
    let mut left_alone = 0;
    for other in 0..100 {
        index.subscribe(&format!("x{other}/y/+"), &Session(other), PLAIN);
        index.subscribe(&format!("x{other}/y/z"), &Session(other), PLAIN);
        left_alone += i32::from(route.is_current(&index));
    }
    assert!(left_alone > 0, "some of the filters have other slots than the topic");
    index.subscribe("a/+/c", &Session(1), PLAIN);
    assert!(!route.is_current(&index));
}

/// With 4096 subscriptions the change counters move to a larger table, in which the counters of the
/// topic have other positions.
#[test]
fn no_route_outlives_the_growth_of_the_change_counters() {
    let index = TopicIndex::default();
    for key in 0..4095 {
        index.subscribe("many", &Session(key), PLAIN);
    }
    let topics: Vec<String> = (0..20).map(|at| format!("topic/{at}")).collect();
    let routes: Vec<_> = topics.iter().map(|topic| index.route(topic)).collect();
    assert!(routes.iter().all(|route| route.is_current(&index)));
    index.subscribe("many", &Session(4095), PLAIN);
    for (topic, old) in topics.iter().zip(&routes) {
        index.subscribe(topic, &Session(1), PLAIN);
        assert!(!old.is_current(&index), "{topic}");
        let new = index.route(topic);
        assert!(new.is_current(&index));
        assert_eq!(new.recipients().len(), 1);
        index.unsubscribe(topic, 1);
        assert!(!new.is_current(&index));
    }
}

#[test]
fn a_hundred_thousand_clients_of_one_filter_come_and_go() {
    let index = TopicIndex::default();
    for filter in ["alarm", "alarm/#"] {
        for key in 0..100_000 {
            assert!(index.subscribe(filter, &Session(key), PLAIN));
        }
    }
    let other = Session(200_000);
    index.subscribe("+", &other, PLAIN);
    assert_eq!(index.route("alarm").recipients().len(), 100_001, "each once");
    for filter in ["alarm", "alarm/#"] {
        for key in 0..100_000 {
            assert!(index.unsubscribe(filter, key));
        }
    }
    assert_eq!(targets(&index, "alarm"), BTreeSet::from([200_000]));
}
