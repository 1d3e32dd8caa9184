//! Shared subscriptions: choosing the member that gets the next message.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::topic_index::{
    Load, SharedGroup, Strategy, SubscribeOptions, Subscriber, TopicIndex,
};
use mqtt_proto::QoS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Session(u64);

impl Subscriber for Session {
    fn key(&self) -> u64 {
        self.0
    }
}

const PLAIN: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtLeastOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

fn group_of(members: u64) -> (TopicIndex<Session>, Arc<SharedGroup<Session>>) {
    let index = TopicIndex::default();
    for key in 0..members {
        assert!(index.subscribe_shared("workers", "jobs/+", &Session(key), PLAIN));
    }
    let group = Arc::clone(&index.route("jobs/1").groups()[0]);
    (index, group)
}

fn pick(
    group: &SharedGroup<Session>,
    strategy: Strategy,
    hash: u64,
    load: impl Fn(u64) -> Option<usize>,
) -> Option<u64> {
    let load = |session: &Session| load(session.0).map_or(Load::Away, Load::InFlight);
    group.pick(strategy, hash, load).map(|member| member.subscriber.0)
}

/// Counts how many of `messages` each member gets.
fn shares(
    group: &SharedGroup<Session>,
    strategy: Strategy,
    messages: u64,
    load: impl Fn(u64) -> Option<usize>,
) -> BTreeMap<u64, usize> {
    let mut shares = BTreeMap::new();
    for hash in 0..messages {
        *shares
            .entry(pick(group, strategy, hash, &load).expect("the group has members"))
            .or_default() += 1;
    }
    shares
}

#[test]
fn round_robin_gives_to_one_after_the_other() {
    let (_index, group) = group_of(3);
    let all = shares(&group, Strategy::RoundRobin, 30, |_| Some(0));
    assert_eq!(all, BTreeMap::from([(0, 10), (1, 10), (2, 10)]));
}

#[test]
fn members_that_cannot_take_a_message_are_passed_over() {
    let (_index, group) = group_of(3);
    for strategy in [Strategy::RoundRobin, Strategy::LeastInFlight, Strategy::Hash] {
        let all = shares(&group, strategy, 100, |key| (key != 1).then_some(9));
        assert!(!all.contains_key(&1), "{strategy:?}");
        assert_eq!(all.values().sum::<usize>(), 100);
        assert_eq!(all.len(), 2, "{strategy:?}");
    }
}

#[test]
fn when_nobody_can_take_it_somebody_still_gets_it() {
    let (_index, group) = group_of(3);
    for strategy in [Strategy::RoundRobin, Strategy::LeastInFlight, Strategy::Hash] {
        let all = shares(&group, strategy, 99, |_| None);
        assert_eq!(all.len(), 3, "{strategy:?} spreads them");
    }
}

#[test]
fn who_is_gone_gets_nothing() {
    let (_index, group) = group_of(100);
    for strategy in [Strategy::RoundRobin, Strategy::LeastInFlight, Strategy::Hash] {
        for rest in [Load::Away, Load::InFlight(1)] {
            let load = |session: &Session| if session.0 == 93 { rest } else { Load::Gone };
            let chosen = group.pick(strategy, 7, load).map(|member| member.subscriber.0);
            assert_eq!(chosen, Some(93), "{strategy:?}");
        }
        assert!(group.pick(strategy, 7, |_| Load::Gone).is_none(), "{strategy:?}");
    }
}

#[test]
fn least_in_flight_takes_the_smallest_load() {
    let (_index, group) = group_of(5);
    for _ in 0..7 {
        let least = pick(&group, Strategy::LeastInFlight, 0, |key| Some(key.abs_diff(3) as usize));
        assert_eq!(least, Some(3));
    }
}

#[test]
fn least_in_flight_reaches_every_member_of_a_large_group() {
    let (_index, group) = group_of(500);
    let all = shares(&group, Strategy::LeastInFlight, 500, |_| Some(0));
    assert_eq!(all.len(), 500);
}

#[test]
fn hash_is_stable_and_moves_only_the_share_of_who_leaves() {
    let (index, group) = group_of(10);
    let before: Vec<_> =
        (0..1000).map(|hash| pick(&group, Strategy::Hash, hash, |_| Some(0))).collect();
    index.unsubscribe_shared("workers", "jobs/+", 4);
    let mut moved = 0;
    for (hash, before) in (0..).zip(before) {
        let after = pick(&group, Strategy::Hash, hash, |_| Some(0));
        if before == Some(4) {
            moved += 1;
            assert_ne!(after, Some(4));
        } else {
            assert_eq!(after, before);
        }
    }
    assert!((50..200).contains(&moved), "about a tenth, not {moved}");
}

#[test]
fn a_route_sees_who_joins_and_leaves_without_being_made_anew() {
    let (index, _) = group_of(1);
    let route = index.route("jobs/7");
    assert!(!index.subscribe_shared("workers", "jobs/+", &Session(0), PLAIN), "it is a member");
    assert!(index.subscribe_shared("workers", "jobs/+", &Session(1), PLAIN));
    assert!(route.is_current(&index));
    assert_eq!(route.groups()[0].members().len(), 2);
    assert!(route.recipients().is_empty());

    assert!(index.unsubscribe_shared("workers", "jobs/+", 0));
    assert!(!index.unsubscribe_shared("workers", "jobs/+", 0));
    assert!(index.unsubscribe_shared("workers", "jobs/+", 1));
    assert!(!route.is_current(&index));
    assert_eq!(pick(&route.groups()[0], Strategy::RoundRobin, 0, |_| Some(0)), None);
    assert!(index.route("jobs/7").is_empty());
}

#[test]
fn share_names_and_plain_subscriptions_are_apart() {
    let (index, _) = group_of(2);
    index.subscribe_shared("others", "jobs/+", &Session(0), PLAIN);
    index.subscribe_shared("workers", "jobs/#", &Session(0), PLAIN);
    index.subscribe("jobs/+", &Session(0), PLAIN);
    let route = index.route("jobs/1");
    let mut groups: Vec<_> =
        route.groups().iter().map(|group| (group.name(), group.filter())).collect();
    groups.sort_unstable();
    assert_eq!(groups, [("others", "jobs/+"), ("workers", "jobs/#"), ("workers", "jobs/+")]);
    assert_eq!(route.recipients().len(), 1);
    assert!(!index.unsubscribe_shared("others", "jobs/#", 0));
    assert!(index.unsubscribe("jobs/+", 0));
    assert_eq!(index.route("jobs/1").groups().len(), 3);
}
