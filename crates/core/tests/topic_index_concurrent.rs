//! Routing and subscribing at the same time, and what a cached route may answer then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use barid_core::topic_index::{Load, Route, SubscribeOptions, Subscriber, TopicIndex};
use mqtt_proto::QoS;
use parking_lot::Mutex;

#[derive(Clone, Copy)]
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

const TOPICS: [&str; 4] = ["a/b/c", "a/b", "a", "x/y/z"];
/// Filters of every scope, each with the positions of the topics that it matches.
const FILTERS: [(&str, &[usize]); 10] = [
    ("a/b/c", &[0]),
    ("a/b/#", &[0, 1]),
    ("a/b/+", &[0]),
    ("a/#", &[0, 1, 2]),
    ("a/+/c", &[0]),
    ("a/+", &[1]),
    ("+", &[2]),
    ("#", &[0, 1, 2, 3]),
    ("+/y/z", &[3]),
    ("x/y/z", &[3]),
];
const ROUNDS: usize = 20;
const CHANGES_PER_WRITER: usize = 2000;

/// The index, and for each topic the last route that a reader made.
#[derive(Default)]
struct World {
    index: TopicIndex<Session>,
    kept: [Mutex<Option<Arc<Route<Session>>>>; TOPICS.len()],
    /// Number of kept routes that were still current when a writer checked them.
    checked: AtomicUsize,
    done: AtomicBool,
}

impl World {
    /// Makes and keeps routes, as the publishers of these topics would.
    fn read(&self) {
        while !self.done.load(Ordering::Relaxed) {
            for (topic, kept) in TOPICS.iter().zip(&self.kept) {
                let current = kept.lock().as_ref().is_some_and(|one| one.is_current(&self.index));
                if !current {
                    let route = Arc::new(self.index.route(topic));
                    *kept.lock() = Some(route);
                }
            }
        }
    }

    /// Subscribes and unsubscribes the session `key`. After each change, checks that no kept route
    /// that lacks the change claims to be current.
    fn write(&self, key: u64) {
        for change in 0..CHANGES_PER_WRITER {
            let (filter, matched) = FILTERS[(change + key as usize * 3) % FILTERS.len()];
            assert!(self.index.subscribe(filter, &Session(key), PLAIN));
            self.check(key, matched);
            assert!(self.index.unsubscribe(filter, key));
            self.check(key, &[]);
        }
    }

    fn check(&self, key: u64, matched: &[usize]) {
        for (at, kept) in self.kept.iter().enumerate() {
            let Some(route) = kept.lock().clone() else { continue };
            let has = route.recipients().iter().any(|target| target.subscriber.0 == key);
            if has != matched.contains(&at) {
                assert!(!route.is_current(&self.index), "{} is stale", TOPICS[at]);
            } else if route.is_current(&self.index) {
                self.checked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes the index large enough for the change counters to grow, and then small again.
    fn grow(&self) {
        let filters = || (0..2500).flat_map(|at| [format!("g/{at}"), format!("g/{at}/#")]);
        for filter in filters() {
            assert!(self.index.subscribe(&filter, &Session(1000), PLAIN));
        }
        for filter in filters() {
            assert!(self.index.unsubscribe(&filter, 1000));
        }
    }
}

#[test]
fn a_current_route_knows_every_change_that_has_returned() {
    let mut checked = 0;
    for _ in 0..ROUNDS {
        let world = World::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| world.read());
            }
            let mut writers: Vec<_> = [1, 2]
                .map(|key| {
                    scope.spawn({
                        let world = &world;
                        move || world.write(key)
                    })
                })
                .into();
            writers.push(scope.spawn(|| world.grow()));
            let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            world.done.store(true, Ordering::Relaxed);
            for result in results {
                result.unwrap();
            }
        });
        assert!(world.index.is_empty());
        checked += world.checked.into_inner();
    }
    assert!(checked > 0, "no route was current when looked at: nothing was tested");
}

#[test]
fn members_of_a_shared_subscription_come_and_go_while_it_is_used() {
    let index = TopicIndex::default();
    index.subscribe_shared("g", "jobs/#", &Session(0), PLAIN);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let route = index.route("jobs/1");
                let picked = route.groups()[0].pick(Default::default(), 0, |_| Load::InFlight(0));
                assert!(picked.is_some(), "session 0 never leaves");
            }
        });
        let writer = scope.spawn(|| {
            for round in 0..20_000u64 {
                let key = 1 + round % 50;
                assert!(index.subscribe_shared("g", "jobs/#", &Session(key), PLAIN));
                if round % 50 == 49 {
                    for key in 1..=50 {
                        assert!(index.unsubscribe_shared("g", "jobs/#", key));
                    }
                }
            }
        });
        let result = writer.join();
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    assert_eq!(index.subscription_count(), 1);
}
