//! Every log keeps the contract of [`Changelog`], under all failures.

#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::Arc;

use barid_store::changelog::conformance::{KEYSPACE, Step, Trouble, World, check};
use barid_store::changelog::simulated::{Fate, SimulatedLog};
use barid_store::changelog::{Changelog, LocalLog, Position};
use barid_store::log::{LogOptions, LogStore};
use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::memory::{Disk, Fault};
use barid_store::{Change, Store};
use parking_lot::RwLock;
use proptest::collection::vec;
use proptest::prelude::*;

/// A local log over a store in memory, whose disk fails.
#[derive(Default)]
struct Memory(Disk);

impl Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.open(1))
    }
}

impl World for Memory {
    fn open(&mut self) -> Box<dyn Changelog> {
        // One log at a time is open: the data directory is locked.
        self.crash();
        Box::new(LocalLog::new(self.store(), Arc::new(RwLock::new(()))))
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.0.fail(match trouble {
            Trouble::Lost => Some(Fault::Io),
            Trouble::Unheard => Some(Fault::IoButWritten),
            Trouble::Late => None,
        });
    }

    fn pass(&mut self) -> bool {
        self.0.fail(None);
        false
    }

    fn keys(&self) -> Vec<u64> {
        keys(&*self.store())
    }

    fn crash(&mut self) {
        self.0.crash();
        self.0.fail(None);
    }
}

/// A local log over an engine, whose disk does not fail.
struct OnDisk<F>(F, Option<Arc<dyn Store>>);

impl<F: Fn() -> Arc<dyn Store>> World for OnDisk<F> {
    fn open(&mut self) -> Box<dyn Changelog> {
        self.crash();
        let store = Arc::clone(self.1.as_ref().unwrap());
        Box::new(LocalLog::new(store, Arc::new(RwLock::new(()))))
    }

    fn trouble(&mut self, _: Trouble) {}

    fn pass(&mut self) -> bool {
        false
    }

    fn keys(&self) -> Vec<u64> {
        keys(&**self.1.as_ref().unwrap())
    }

    fn crash(&mut self) {
        self.1.get_or_insert_with(&self.0);
    }
}

/// The simulated log, which knows all kinds of trouble.
#[derive(Default)]
struct Simulated {
    log: SimulatedLog,
    next: Option<Trouble>,
    keys: parking_lot::Mutex<Vec<u64>>,
}

impl World for Simulated {
    fn open(&mut self) -> Box<dyn Changelog> {
        Box::new(self.log.open(3))
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.next = Some(trouble);
    }

    fn pass(&mut self) -> bool {
        self.log.land_late();
        self.log.decide(match self.next.take() {
            None => Fate::Land,
            Some(Trouble::Lost) => Fate::Lose,
            Some(Trouble::Unheard) => Fate::LandUnheard,
            Some(Trouble::Late) => Fate::Delay,
        })
    }

    fn keys(&self) -> Vec<u64> {
        // The holder may have trimmed batches whose keys were read before.
        let mut keys = self.keys.lock();
        let reader = self.log.reader();
        let from = Position(keys.len() as u64).max(reader.positions().unwrap().start);
        reader
            .read(from, &mut |_, batch| {
                keys.extend(batch.iter().map(|change| key_of(&change)));
                ControlFlow::Continue(())
            })
            .unwrap();
        keys.clone()
    }

    fn crash(&mut self) {
        self.log.forget();
        self.next = None;
    }
}

fn keys(store: &dyn Store) -> Vec<u64> {
    let mut keys = Vec::new();
    store
        .scan(KEYSPACE, &[], &[], &mut |key, _| {
            keys.push(u64::from_be_bytes(key.try_into().unwrap()));
            ControlFlow::Continue(())
        })
        .unwrap();
    keys
}

fn key_of(change: &Change<'_>) -> u64 {
    let Change::Put(_, key, _) = change else { panic!("nothing is removed") };
    u64::from_be_bytes((*key).try_into().unwrap())
}

fn step() -> impl Strategy<Value = Step> {
    let trouble = prop_oneof![Just(Trouble::Lost), Just(Trouble::Unheard), Just(Trouble::Late)];
    prop_oneof![
        8 => Just(Step::Append),
        8 => Just(Step::Pass),
        3 => trouble.prop_map(Step::Trouble),
        1 => Just(Step::Crash),
        1 => Just(Step::Open),
        1 => Just(Step::Seal),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_local_log_over_a_disk_that_fails(script in vec(step(), 0..60)) {
        check(&mut Memory::default(), &script);
    }

    #[test]
    fn the_simulated_log(script in vec(step(), 0..60)) {
        check(&mut Simulated::default(), &script);
    }
}

const SCRIPT: [Step; 12] = [
    Step::Append,
    Step::Append,
    Step::Trim,
    Step::Append,
    Step::Crash,
    Step::Append,
    Step::Seal,
    Step::Append,
    Step::Open,
    Step::Append,
    Step::Append,
    Step::Crash,
];

#[test]
fn a_local_log_over_the_engine_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LogStore::create(&path).unwrap();
    let options = LogOptions { reserve_bytes: 0, accept_loss: false };
    let open = || Arc::new(LogStore::open(&path, 1, &options).unwrap()) as _;
    check(&mut OnDisk(open, None), &SCRIPT);
}

#[test]
fn a_local_log_over_the_engine_lsm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let options = LsmOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 64 << 10,
        reserve_bytes: 0,
        open_files: 64,
        accept_loss: false,
    };
    let open = || Arc::new(LsmStore::open(&path, &["a"], options.clone()).unwrap()) as _;
    check(&mut OnDisk(open, None), &SCRIPT);
}
