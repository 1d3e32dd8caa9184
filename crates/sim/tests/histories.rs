//! Promises hold in random histories, and a broken rule breaks a promise that is noticed.

use std::panic;
use std::sync::Mutex;
use std::thread;

use barid_sim::Kind;
use barid_sim::rules::{Rule, Rules};

/// Number of histories within which a broken rule must be noticed.
const HISTORIES_TO_NOTICE: u64 = 10_000;

fn hold(Kind { run, flag, .. }: Kind, histories: u64) {
    for seed in 0..histories {
        if let Some(violation) = run(seed, Rules::default(), false).violation {
            let see = format!("cargo run -p barid-sim -- {flag} --seed {seed} --trace");
            panic!("seed {seed}: {violation}\nsee: {see}");
        }
    }
}

#[test]
fn promises_hold() {
    hold(Kind::MESSAGES, 500);
}

#[test]
fn promises_of_the_state_store_hold() {
    hold(Kind::STATE_STORE, 2_000);
}

#[test]
fn promises_of_entities_hold() {
    hold(Kind::ENTITIES, 500);
}

#[test]
fn promises_of_clusters_hold() {
    hold(Kind::CLUSTER, 2_000);
}

#[test]
fn histories_are_not_idle() {
    for Kind { run, .. } in Kind::ALL {
        let outcomes: Vec<_> = (0..100).map(|seed| run(seed, Rules::default(), false)).collect();
        assert!(outcomes.iter().map(|outcome| outcome.crashes).sum::<u32>() > 100);
        assert!(outcomes.iter().map(|outcome| outcome.messages).sum::<u32>() > 500);
        assert!(outcomes.iter().map(|outcome| outcome.deliveries).sum::<u64>() > 500);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for Kind { run, .. } in Kind::ALL {
        for seed in 0..50 {
            let first = run(seed, Rules::default(), false);
            let second = run(seed, Rules::default(), true);
            assert_eq!(first.digest, second.digest, "seed {seed}");
            assert_eq!(first.steps, second.steps);
            assert!(first.lines.is_empty() && !second.lines.is_empty());
        }
        let digest = |seed| run(seed, Rules::default(), false).digest;
        assert_ne!(digest(1), digest(2));
    }
}

#[test]
fn a_broken_rule_is_noticed() {
    let hook = panic::take_hook();
    // A panic of the core counts as noticed as well, and its message is not printed.
    panic::set_hook(Box::new(|_| {}));
    let of = |kind: Kind| kind.rules.iter().map(move |rule| (kind, *rule));
    let rules = Mutex::new(Kind::ALL.into_iter().flat_map(of));
    let unnoticed = Mutex::new(Vec::new());
    let search = || {
        loop {
            let Some((kind, rule)) = rules.lock().unwrap().next() else { return };
            if !is_noticed(kind, rule) {
                unnoticed.lock().unwrap().push(rule);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(search);
        scope.spawn(search);
    });
    panic::set_hook(hook);
    let unnoticed = unnoticed.into_inner().unwrap();
    assert!(unnoticed.is_empty(), "nobody notices that these are broken: {unnoticed:?}");
}

fn is_noticed(kind: Kind, rule: Rule) -> bool {
    (0..HISTORIES_TO_NOTICE).any(|seed| {
        let outcome = panic::catch_unwind(|| (kind.run)(seed, Rules::all_but(rule), false));
        outcome.map_or(true, |outcome| outcome.violation.is_some())
    })
}
