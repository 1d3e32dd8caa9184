//! Tests of what stays on the disk, and of what readers see while the log is tidied up.

use super::super::tidy::Tidy;
use super::*;
use crate::Snapshot;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn commit(engine: &Engine, puts: std::ops::Range<u64>, removals: impl Iterator<Item = u64>) {
    let mut batch = Batch::new();
    for number in puts {
        batch.put(Keyspace(0), &key(number), &[number as u8; 100]);
    }
    removals.for_each(|number| batch.remove(Keyspace(0), &key(number)));
    engine.commit(&batch).unwrap();
}

fn tidy_up(engine: &Engine) {
    let mut tidy = Tidy::default();
    while engine.tidy(&mut tidy).unwrap() {}
}

#[test]
fn a_queue_that_is_emptied_leaves_nothing() {
    let (disk, engine) = new_log(1);
    for number in 0..200 {
        commit(&engine, number * 10..number * 10 + 10, 0..0);
    }
    assert!(disk.len() > 200_000);
    for number in 0..200 {
        commit(&engine, 0..0, number * 10..number * 10 + 10);
        tidy_up(&engine);
    }
    assert!(disk.len() < 4 * SMALL.segment_min, "{}", disk.len());
}

#[test]
fn the_disk_follows_what_counts_whatever_the_order_of_removals() {
    let (disk, engine) = new_log(2);
    let mut random = Random(5);
    let mut live: Vec<u64> = Vec::new();
    for number in 0..2000 {
        let removed: Vec<u64> = (0..5)
            .filter_map(|_| {
                let len = live.len() as u64;
                (len > 100).then(|| live.swap_remove(random.below(len) as usize))
            })
            .collect();
        commit(&engine, number * 5..number * 5 + 5, removed.into_iter());
        live.extend(number * 5..number * 5 + 5);
        tidy_up(&engine);
        let live_len = live.len() as u64 * 124;
        assert!(disk.len() < 3 * live_len + 6 * SMALL.segment_min, "{} {live_len}", disk.len());
    }
    drop(engine);
    let engine = open_small(&disk).unwrap();
    assert_eq!(contents(&engine).unwrap().len(), live.len());
}

#[test]
fn a_removal_outlives_its_segment() {
    let (disk, engine) = new_log(3);
    // A segment that stays, because one of its values is live.
    commit(&engine, 0..10, 0..0);
    // Removals in much later segments, which are deleted.
    for number in 1..10 {
        commit(&engine, 0..0, number..number + 1);
        for _ in 0..40 {
            commit(&engine, 100..110, 0..0);
        }
        commit(&engine, 0..0, 100..110);
        tidy_up(&engine);
    }
    assert!(disk.names().len() < 8, "{:?}", disk.names());
    drop(engine);
    let engine = open_small(&disk).unwrap();
    assert_eq!(contents(&engine).unwrap().len(), 1);
}

#[test]
fn a_snapshot_reads_segments_that_are_deleted() {
    let (disk, engine) = new_log(4);
    commit(&engine, 0..50, 0..0);
    let before = contents(&engine).unwrap();
    let snapshot = engine.snapshot();
    commit(&engine, 0..0, 0..50);
    commit(&engine, 100..200, 0..0);
    commit(&engine, 0..0, 100..200);
    tidy_up(&engine);
    assert!(!disk.names().contains(&"log-0000000001".to_owned()), "{:?}", disk.names());
    let mut found = Contents::new();
    snapshot
        .scan(Keyspace(0), &mut |key, value| {
            found.insert((0, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found, before);
}

#[test]
fn what_changes_while_it_is_moved_stays_changed() {
    let (disk, engine) = new_log(6);
    let mut random = Random(9);
    let mut model = Contents::new();
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| {
            for _ in 0..3000 {
                let batch = random_batch(&mut random);
                engine.commit(&batch).unwrap();
                apply(&mut model, &batch);
            }
        });
        let mut tidy = Tidy::default();
        while !committer.is_finished() {
            engine.tidy(&mut tidy).unwrap();
        }
    });
    assert_eq!(contents(&engine).unwrap(), model);
    drop(engine);
    assert_eq!(contents(&open_small(&disk).unwrap()).unwrap(), model);
}

#[test]
fn nobody_reads_half_a_commit() {
    let (_disk, engine) = new_log(5);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..300_u64 {
                let mut batch = Batch::new();
                (0..20).for_each(|number| {
                    batch.put(Keyspace(0), &key(number), &[round as u8; 80]);
                });
                engine.commit(&batch).unwrap();
                tidy_up(&engine);
            }
        });
        while !writer.is_finished() {
            let contents = contents(&engine).unwrap();
            let mut values = contents.values();
            let first = values.next();
            assert!(values.all(|value| Some(value) == first));
            assert!(contents.is_empty() || contents.len() == 20);
        }
    });
}

#[test]
fn a_segment_that_is_full_is_followed_though_no_file_can_be_opened() {
    let (disk, engine) = new_log(3);
    let segments = || super::super::segment::numbers(&disk.names()).len();
    commit(&engine, 0..1, 0..0);
    disk.set_opens_nothing(true);
    let mut number = 1;
    while segments() < 2 {
        commit(&engine, number..number + 1, 0..0);
        number += 1;
    }
    disk.set_opens_nothing(false);
    commit(&engine, number..number + 1, 0..0);
    // The file of the next segment has been opened again, before it is needed.
    disk.set_opens_nothing(true);
    while segments() < 3 {
        number += 1;
        commit(&engine, number..number + 1, 0..0);
    }
    drop(engine);
    assert!(disk.names().iter().all(|name| !name.ends_with(".tmp")), "{:?}", disk.names());
    disk.set_opens_nothing(false);
    assert_eq!(contents(&open_small(&disk).unwrap()).unwrap().len() as u64, number + 1);
}
