//! `kill -9` of a process that commits, at any moment: all commits that it was told are durable are there, and any
//! other commit is there in whole or not at all.

#![allow(clippy::unwrap_used)]

use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::{Batch, Keyspace, Store};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const RECORDS: Keyspace = Keyspace(0);
const LAST: Keyspace = Keyspace(1);

/// Environment variable with the directory in which a child process commits.
const CHILD: &str = "BARID_KILLED_DIR";

/// Number of records that a commit adds, and number of commits for which they stay.
const ADDED: u64 = 12;
const KEPT: u64 = 40;

fn open(dir: &Path) -> LsmStore {
    let options = LsmOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        reserve_bytes: 0,
        open_files: 64,
        accept_loss: false,
    };
    LsmStore::open(dir, &["records", "last"], options).unwrap()
}

fn key(commit: u64, record: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&commit.to_be_bytes());
    key[8..].copy_from_slice(&record.to_be_bytes());
    key
}

fn value(commit: u64, record: u64) -> Vec<u8> {
    vec![(commit * 7 + record) as u8; 500 + (commit * 131 + record * 977) as usize % 8000]
}

fn last(store: &dyn Store) -> u64 {
    store.get(LAST, b"last").unwrap().map_or(0, |last| u64::from_be_bytes(last.try_into().unwrap()))
}

/// Commits until it is killed, and prints the number of each durable commit.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&dir));
    let mut batch = Batch::new();
    for commit in last(&store) + 1.. {
        batch.clear();
        for record in 0..ADDED {
            batch.put(RECORDS, &key(commit, record), &value(commit, record));
            if let Some(old) = commit.checked_sub(KEPT) {
                batch.remove(RECORDS, &key(old, record));
            }
        }
        batch.put(LAST, b"last", &commit.to_be_bytes());
        store.commit(&batch).unwrap();
        println!("durable {commit}");
    }
}

#[test]
fn nothing_durable_is_lost_and_nothing_is_there_in_part() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let rounds = std::env::var("BARID_KILL_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let mut progress = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = std::thread::scope(|scope| {
            let told = scope.spawn(|| {
                let numbers = lines.map_while(Result::ok);
                numbers.filter_map(|line| line.strip_prefix("durable ")?.parse().ok()).last()
            });
            std::thread::sleep(Duration::from_millis(20 + round * 137 % 400));
            child.kill().unwrap();
            child.wait().unwrap();
            told.join().unwrap()
        });
        let store = open(&path);
        let last = last(&store);
        assert!(last >= told.unwrap_or(progress), "{told:?} was durable, {last} is there");
        let mut expected = (last.saturating_sub(KEPT - 1).max(1)..=last)
            .flat_map(|commit| (0..ADDED).map(move |record| (commit, record)));
        let mut visit = |found: &[u8], content: &[u8]| {
            let (commit, record) = expected.next().expect("no record that was removed");
            assert_eq!(found, key(commit, record));
            assert!(content == value(commit, record));
            ControlFlow::Continue(())
        };
        store.scan(RECORDS, b"", b"", &mut visit).unwrap();
        assert_eq!(expected.next(), None);
        progress = last;
    }
    assert!(progress > 0);
    println!("{rounds} kills, {progress} commits");
}
