//! After any flipped bit, either the store is refused, or a read fails, or the content is right.

#![allow(clippy::unwrap_used)]

use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::{Batch, Keyspace, Store, StoreError};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const A: Keyspace = Keyspace(0);
const B: Keyspace = Keyspace(1);

type Model = BTreeMap<(Keyspace, Vec<u8>), Vec<u8>>;

fn options() -> LsmOptions {
    // Small, so that some records are in tables.
    LsmOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 32 << 10,
        reserve_bytes: 0,
        open_files: 64,
        accept_loss: false,
    }
}

fn open(dir: &Path) -> Result<LsmStore, StoreError> {
    LsmStore::open(dir, &["a", "b"], options())
}

/// Creates a store whose records were put, put again and removed, so that they are in tables and in the journal.
fn fill(dir: &Path) -> (LsmStore, Model) {
    LsmStore::create(dir).unwrap();
    let store = open(dir).unwrap();
    let mut model = Model::new();
    for i in 0..120u32 {
        let mut batch = Batch::new();
        for j in 0..10u32 {
            let key = (i * 7 + j * 31) % 400;
            let key = key.to_be_bytes().to_vec();
            let keyspace = if j % 3 == 0 { B } else { A };
            if (i + j) % 4 == 0 {
                batch.remove(keyspace, &key);
                model.remove(&(keyspace, key));
            } else {
                let value = vec![(i + j) as u8; 20 + (i * j % 100) as usize];
                batch.put(keyspace, &key, &value);
                model.insert((keyspace, key), value);
            }
        }
        store.commit(&batch).unwrap();
    }
    (store, model)
}

fn read(store: &dyn Store) -> Result<Model, StoreError> {
    let mut model = Model::new();
    for keyspace in [A, B] {
        store.scan(keyspace, b"", b"", &mut |key, value| {
            model.insert((keyspace, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    // Another way to the same records, through filters that a scan does not use.
    for ((keyspace, key), value) in &model {
        assert_eq!(store.get(*keyspace, key)?.as_ref(), Some(value), "silently wrong");
    }
    Ok(model)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Returns the bytes of a file without the zeros at its end, and the length of the file: journals allocate space in
/// advance.
fn content(path: &Path) -> (Vec<u8>, u64) {
    let mut file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(1 << 20).read_to_end(&mut bytes).unwrap();
    assert!(len < 1 << 20 || bytes.ends_with(&[0; 4096]), "{} is too large", path.display());
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    (bytes, len)
}

/// A copy of the files of a directory: path, content, and length including the zeros at the end.
#[derive(PartialEq)]
struct Copy(Vec<(PathBuf, Vec<u8>, u64)>);

impl Copy {
    fn of(dir: &Path) -> Copy {
        let copy = |path: PathBuf| {
            let (bytes, len) = content(&path);
            (path.strip_prefix(dir).unwrap().to_owned(), bytes, len)
        };
        Copy(files(dir).into_iter().map(copy).collect())
    }

    /// Copies the files when the engine's own threads are idle.
    fn of_idle(dir: &Path) -> Copy {
        let mut copies = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            catch_unwind(|| Copy::of(dir)).ok()
        });
        let mut last = None;
        loop {
            let next = copies.next().flatten();
            match next {
                Some(copy) if last.as_ref() == Some(&copy) => return copy,
                next => last = next,
            }
        }
    }

    fn write(&self, dir: &Path) {
        for (path, bytes, len) in &self.0 {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = File::create(path).unwrap();
            file.write_all(bytes).unwrap();
            file.set_len(*len).unwrap();
        }
    }
}

/// Counts of the outcomes of damaged copies.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    failed_to_read: usize,
    right: usize,
    panicked: Vec<String>,
}

impl Outcomes {
    /// Opens and reads the copy, and counts the outcome.
    fn judge(&mut self, copy: &Copy, model: &Model, what: &str) {
        let dir = tempfile::tempdir().unwrap();
        copy.write(dir.path());
        let outcome = catch_unwind(AssertUnwindSafe(|| match open(dir.path()) {
            Err(_) => self.refused += 1,
            Ok(store) => match read(&store) {
                Err(_) => self.failed_to_read += 1,
                Ok(read) => {
                    assert!(read == *model, "silently wrong");
                    self.right += 1;
                }
            },
        }));
        if let Err(panic) = outcome {
            let why = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            self.panicked.push(format!("{what}: {why}"));
        }
    }

    /// Checks that stores were refused and stores were right, and that nothing worse happened.
    fn check(&self) {
        assert!(self.panicked.is_empty(), "{self:#?}");
        assert!(self.refused > 0 && self.right > 0, "{self:?}");
    }
}

/// Calls `visit` for every file with about `trials` offsets in all files together.
fn everywhere(
    copy: &mut Copy,
    trials: usize,
    mut visit: impl FnMut(&mut Copy, usize, usize, usize),
) {
    let total: usize = copy.0.iter().map(|(_, bytes, _)| bytes.len()).sum();
    for file in 0..copy.0.len() {
        let len = copy.0[file].1.len();
        // At least a few offsets in every file.
        let step = (total / trials).clamp(1, (len / 8).max(1));
        (0..len).step_by(step).enumerate().for_each(|(nth, at)| visit(copy, file, nth, at));
    }
}

fn flip_everywhere(copy: &mut Copy, model: &Model, trials: usize) -> Outcomes {
    let mut outcomes = Outcomes::default();
    everywhere(copy, trials, |copy, file, nth, at| {
        let bit = 1u8 << (nth % 8);
        let what = format!("{} byte {at} bit {bit:#04x}", copy.0[file].0.display());
        copy.0[file].1[at] ^= bit;
        outcomes.judge(copy, model, &what);
        copy.0[file].1[at] ^= bit;
    });
    outcomes
}

/// Number of places to try: enough to hit every kind of block. Set by the environment variable to thousands for a
/// longer run.
fn trials() -> usize {
    std::env::var("BARID_DAMAGE_TRIALS").map_or(120, |trials| trials.parse().unwrap())
}

#[test]
fn a_flipped_bit_after_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (store, model) = fill(&path);
    drop(store);
    flip_everywhere(&mut Copy::of_idle(&path), &model, trials()).check();
}

#[test]
fn a_flipped_bit_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (_store, model) = fill(&path);
    flip_everywhere(&mut Copy::of_idle(&path), &model, trials()).check();
}

#[test]
fn a_file_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (_store, model) = fill(&path);
    let mut outcomes = Outcomes::default();
    everywhere(&mut Copy::of_idle(&path), trials() / 2, |copy, file, _, at| {
        let what = format!("{} cut to {at} bytes", copy.0[file].0.display());
        let whole = (copy.0[file].1.clone(), copy.0[file].2);
        copy.0[file].1.truncate(at);
        copy.0[file].2 = at as u64;
        outcomes.judge(copy, &model, &what);
        (copy.0[file].1, copy.0[file].2) = whole;
    });
    outcomes.check();
}

/// A power cut in the middle of a commit: some of its sectors are on disk, others are not.
#[test]
fn a_torn_commit_that_nobody_was_promised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (store, before) = fill(&path);
    let old = Copy::of_idle(&path);
    let mut batch = Batch::new();
    let mut after = before.clone();
    for i in 0..20u32 {
        batch.put(A, &i.to_be_bytes(), &[0x55; 200]);
        after.insert((A, i.to_be_bytes().to_vec()), vec![0x55; 200]);
    }
    store.commit(&batch).unwrap();
    let new = Copy::of_idle(&path);

    let journal =
        old.0.iter().position(|(path, ..)| path.extension() == Some("jnl".as_ref())).unwrap();
    let (start, end) = (old.0[journal].1.len(), new.0[journal].1.len());
    assert_eq!(old.0[journal].0, new.0[journal].0);
    let open_and_read = |torn: &dyn Fn(&mut [u8])| {
        let mut copy = Copy(old.0.clone());
        copy.0[journal].1.clone_from(&new.0[journal].1);
        torn(&mut copy.0[journal].1);
        let dir = tempfile::tempdir().unwrap();
        copy.write(dir.path());
        let store = open(dir.path()).unwrap();
        let read = self::read(&store).unwrap();
        // The store continues as if the torn commit had never begun.
        store.commit(&batch).unwrap();
        drop(store);
        assert!(self::read(&open(dir.path()).unwrap()).unwrap() == after);
        read
    };
    assert!(open_and_read(&|_| ()) == after);
    for sector in (start / 512)..=(end / 512) {
        let lost = (sector * 512).max(start)..((sector + 1) * 512).min(end);
        if !lost.is_empty() {
            assert!(open_and_read(&|journal| journal[lost.clone()].fill(0)) == before);
            assert!(open_and_read(&|journal| journal[lost.start..].fill(0)) == before);
        }
    }
}

#[test]
fn missing_commits_are_accepted_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (store, _) = fill(&path);
    drop(store);
    let journal = path.join("db/0.jnl");
    let (content, _) = content(&journal);
    File::options().write(true).open(&journal).unwrap().set_len(content.len() as u64 / 2).unwrap();
    let refused = open(&path).map(drop).unwrap_err();
    assert!(
        matches!(refused, StoreError::Corrupt(ref what) if what.contains("missing")),
        "{refused}"
    );

    let anyway = LsmOptions { accept_loss: true, ..options() };
    let store = LsmStore::open(&path, &["a", "b"], anyway).unwrap();
    let left = read(&store).unwrap();
    let mut batch = Batch::new();
    batch.put(A, b"new", b"value");
    store.commit(&batch).unwrap();
    drop(store);
    // From then on the store is like any other.
    let mut expected = left;
    expected.insert((A, b"new".to_vec()), b"value".to_vec());
    assert!(read(&open(&path).unwrap()).unwrap() == expected);
}
