//! After a crash, acknowledged commits are there and removed records are not, whatever was lost that was not durable.

use super::super::tidy::Tidy;
use super::*;

/// A history on one disk, and the content that it must have led to.
struct History {
    disk: SimDisk,
    random: Random,
    acknowledged: Contents,
    /// Commits that failed since the last successful one. One of them may have an effect after a crash.
    failed: Vec<Batch>,
}

impl History {
    fn new(seed: u64) -> History {
        let disk = SimDisk::new(seed);
        super::super::create(&disk).unwrap();
        let random = Random(seed ^ 0xabcd);
        History { disk, random, acknowledged: Contents::new(), failed: Vec::new() }
    }

    /// Commits and tidies up for a number of steps, whether or not the disk fails.
    fn run(&mut self, engine: &Engine, steps: usize) {
        let mut tidy = Tidy::default();
        for _ in 0..steps {
            for _ in 0..self.random.below(4) {
                let _ = engine.tidy(&mut tidy);
            }
            let batch = random_batch(&mut self.random);
            match engine.commit(&batch) {
                Ok(()) => {
                    apply(&mut self.acknowledged, &batch);
                    self.failed.clear();
                    if !self.disk.is_off() {
                        assert_eq!(contents(engine).unwrap(), self.acknowledged);
                    }
                }
                Err(_) => {
                    self.failed.push(batch);
                    if !self.disk.is_off() {
                        assert_eq!(contents(engine).unwrap(), self.acknowledged);
                    }
                }
            }
        }
    }

    /// Checks that the store has the expected content, and continues with what it has.
    fn check(&mut self, engine: &Engine) {
        let found = contents(engine).unwrap();
        let with = |batch: &Batch| {
            let mut contents = self.acknowledged.clone();
            apply(&mut contents, batch);
            contents
        };
        let as_expected =
            found == self.acknowledged || self.failed.iter().any(|batch| found == with(batch));
        assert!(as_expected, "expected {:?}\nfound {found:?}", self.acknowledged);
        self.acknowledged = found;
        self.failed.clear();
    }

    /// Crashes, perhaps again during the start, and checks the content.
    fn restart(&mut self) -> Engine {
        match self.random.below(3) {
            0 => self.disk.kill(),
            _ => self.disk.restart(),
        }
        if self.random.below(4) == 0 {
            self.disk.lose_power_in(self.random.below(6) + 1);
            if let Ok(engine) = open_small(&self.disk) {
                self.run(&engine, 3);
            }
            self.disk.restart();
        }
        let engine = open_small(&self.disk).expect("what a crash leaves can be opened");
        self.check(&engine);
        engine
    }
}

#[test]
fn nothing_is_lost_whenever_the_power_goes() {
    for seed in 0..4 {
        let mut at = 1;
        loop {
            let mut history = History::new(seed);
            let engine = open_small(&history.disk).unwrap();
            let before = history.disk.operations();
            history.disk.lose_power_in(at);
            history.run(&engine, 60);
            let went = history.disk.operations() - before >= at;
            drop(engine);
            let engine = history.restart();
            history.run(&engine, 10);
            drop(engine);
            history.restart();
            if !went {
                assert!(at > 300, "the history is long enough: {at}");
                break;
            }
            at += 1;
        }
    }
}

#[test]
fn nothing_is_lost_in_many_crashes_and_failures() {
    for seed in 100..160 {
        let mut history = History::new(seed);
        for _ in 0..30 {
            let engine = history.restart();
            match history.random.below(3) {
                0 => (),
                1 => history.disk.fail_once_in(history.random.below(60) + 1),
                _ => history.disk.lose_power_in(history.random.below(150) + 1),
            }
            let steps = history.random.below(40) as usize;
            history.run(&engine, steps);
        }
    }
}

#[test]
fn a_disk_that_failed_once_is_used_again() {
    for at in 1..120 {
        let mut history = History::new(at);
        let engine = open_small(&history.disk).unwrap();
        history.disk.fail_once_in(at);
        history.run(&engine, 60);
        history.failed.clear();
        let batch = random_batch(&mut history.random);
        engine.commit(&batch).expect("only one operation fails");
        apply(&mut history.acknowledged, &batch);
        assert_eq!(contents(&engine).unwrap(), history.acknowledged);
    }
}

#[test]
fn a_segment_that_could_not_be_begun_takes_nothing_with_it() {
    for at in 1..12 {
        let mut history = History::new(at);
        let engine = open_small(&history.disk).unwrap();
        let mut batch = Batch::new();
        for number in 0..16_u8 {
            batch.put(Keyspace(0), &[number], &[number; 40]);
            batch.remove(Keyspace(0), &[number]);
        }
        engine.commit(&batch).unwrap();
        // No record is live, so the segment is sealed. The sealing fails when the next segment may exist already.
        history.disk.fail_once_in(at);
        let mut tidy = Tidy::default();
        let _ = engine.tidy(&mut tidy);
        for number in 0..3_u8 {
            let mut batch = Batch::new();
            batch.put(Keyspace(1), &[number], b"value");
            // The failure may come only here.
            if engine.commit(&batch).is_ok() {
                apply(&mut history.acknowledged, &batch);
            }
        }
        drop(engine);
        history.disk.restart();
        let engine = open_small(&history.disk).unwrap();
        history.check(&engine);
    }
}

#[test]
fn a_full_disk_takes_commits_again_when_there_is_room() {
    let mut history = History::new(7);
    let engine = open_small(&history.disk).unwrap();
    history.run(&engine, 20);
    let files = history.disk.names().len();
    history.disk.set_capacity(history.disk.len());
    history.run(&engine, 50);
    assert!(!history.failed.is_empty(), "the disk was full");
    assert!(history.disk.names().len() <= files + 3, "no files without end");
    history.disk.set_capacity(u64::MAX);
    history.run(&engine, 1);
    assert!(history.failed.is_empty());
    drop(engine);
    history.restart();
}

#[test]
fn below_the_reserve_only_removals_are_taken() {
    let disk = SimDisk::new(3);
    super::super::create(&disk).unwrap();
    let options = LogOptions { reserve_bytes: 1 << 20, ..LogOptions::default() };
    let engine = open(Arc::new(disk.clone()), KEYSPACES, &options, SMALL).unwrap();
    disk.set_capacity(1 << 20);
    let mut batch = Batch::new();
    batch.put(Keyspace(0), b"key", b"value");
    let before = disk.operations();
    assert!(matches!(engine.commit(&batch), Err(StoreError::Full { reserve: 1_048_576, .. })));
    assert_eq!(disk.operations(), before, "nothing was touched");
    batch.clear();
    batch.remove(Keyspace(0), b"key");
    engine.commit(&batch).unwrap();
    disk.set_capacity(1 << 22);
    batch.put(Keyspace(0), b"key", b"value");
    engine.commit(&batch).unwrap();
}
