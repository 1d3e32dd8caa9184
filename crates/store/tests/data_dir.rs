//! A data directory: who may open it, and the errors for one that is not as it should be.

#![allow(clippy::unwrap_used)]

use barid_store::backup::{self, Totals};
use barid_store::memory::Disk;
use barid_store::{
    Batch, Contents, DataDir, Engine, Keyspace, Options, Report, Snapshot, Store, StoreError,
    verify,
};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

const A: Keyspace = Keyspace(0);
const B: Keyspace = Keyspace(1);

fn options() -> Options<'static> {
    Options {
        shards: Some(3),
        // The tests damage the files of this engine.
        engine: Engine::Lsm,
        keyspaces: &["a", "b"],
        cache_bytes: 4 << 20,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn open(path: &Path) -> Result<DataDir, StoreError> {
    DataDir::open(path, &options())
}

/// Puts `count` records into each keyspace. Their keys begin with the number of the shard.
fn fill(store: &dyn Store, shard: u8, count: u16) {
    let mut batch = Batch::new();
    for i in 0..count {
        let key = [&[shard][..], &i.to_be_bytes()].concat();
        batch.put(A, &key, &[shard; 700]);
        batch.put(B, &key, b"");
    }
    store.commit(&batch).unwrap();
}

fn records(store: &dyn Store) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    for keyspace in [A, B] {
        let mut visit = |key: &[u8], value: &[u8]| {
            records.push((keyspace.0, key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        store.scan(keyspace, b"", b"", &mut visit).unwrap();
    }
    records
}

/// Creates a directory with records in each shard, and closes it.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let data = open(dir.path()).unwrap();
    (0..).zip(data.shards()).for_each(|(shard, store)| fill(&**store, shard, 2000));
    dir
}

fn refusal(path: &Path) -> String {
    open(path).map(drop).unwrap_err().to_string()
}

#[test]
fn shards_stay_as_many_as_they_were_made() {
    let dir = filled();
    let more = Options { shards: Some(5), ..options() };
    let data = DataDir::open(dir.path(), &more).unwrap();
    assert_eq!(data.shards().len(), 3);
    for (shard, store) in (0..).zip(data.shards()) {
        let records = records(&**store);
        assert_eq!(records.len(), 4000);
        assert!(records.iter().all(|(_, key, _)| key[0] == shard));
    }
}

#[test]
fn a_second_broker_is_refused_and_told_where_and_by_whom() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains(dir.path().to_str().unwrap()), "{refusal}");
    assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refusal = refusal(&file.join("data"));
    assert!(refusal.contains("cannot make") && refusal.contains("file/data"), "{refusal}");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letters"), "dear").unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains("not empty"), "{refusal}");
    assert!(!dir.path().join("manifest").exists() && !dir.path().join("shard-000").exists());
}

#[test]
fn a_missing_shard_is_named() {
    let dir = filled();
    fs::remove_dir_all(dir.path().join("shard-001")).unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains("shard-001") && refusal.contains("missing"), "{refusal}");
}

#[test]
fn a_missing_manifest_is_not_made_anew() {
    let dir = filled();
    fs::remove_file(dir.path().join("manifest")).unwrap();
    assert!(refusal(dir.path()).contains("no manifest"));
    assert!(!dir.path().join("manifest").exists());
}

#[test]
fn a_damaged_manifest_is_named() {
    let dir = filled();
    let manifest = dir.path().join("manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("shards 3", "shards 2")).unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains("manifest") && refusal.contains("checksum"), "{refusal}");
}

#[test]
fn a_start_that_was_interrupted_is_done_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    // The state in the middle of the creation.
    fs::remove_file(dir.path().join("manifest")).unwrap();
    fs::remove_dir_all(dir.path().join("shard-002")).unwrap();
    for shard in 0..2 {
        fs::remove_dir_all(dir.path().join(format!("shard-00{shard}/db"))).unwrap();
    }
    fs::write(dir.path().join("manifest.new"), "barid da").unwrap();
    assert_eq!(open(dir.path()).unwrap().shards().len(), 3);
}

#[test]
fn an_engine_that_was_being_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    fs::remove_file(dir.path().join("shard-000/db/version")).unwrap();
    fs::write(dir.path().join("shard-001/db/version"), "").unwrap();
    let data = open(dir.path()).unwrap();
    fill(&*data.shards()[0], 0, 1);
    drop(data);
    // But an engine that was used is not recreated.
    fs::remove_file(dir.path().join("shard-000/db/version")).unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains("shard-000"), "{refusal}");
}

fn look(path: &Path) -> Report {
    verify(path, &options(), &mut |_, _, _, _| Ok(()), &mut |_, _| ()).unwrap()
}

#[test]
fn nothing_is_found_in_a_sound_directory() {
    let dir = filled();
    for _ in 0..2 {
        let report = look(dir.path());
        assert_eq!((report.shards, &report.findings), (3, &Vec::new()));
        let contents = |name: &str, bytes| Contents { name: name.into(), records: 6000, bytes };
        assert_eq!(report.keyspaces, [contents("a", 6000 * 703), contents("b", 6000 * 3)]);
    }
}

#[test]
fn a_directory_in_use_or_of_something_else_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let verify = |path: &Path| verify(path, &options(), &mut |_, _, _, _| Ok(()), &mut |_, _| ());
    assert!(matches!(verify(dir.path()), Err(StoreError::Unusable(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let _data = open(dir.path()).unwrap();
    assert!(matches!(verify(dir.path()), Err(StoreError::Unusable(_))));
}

#[test]
fn what_is_wrong_is_found_and_left_as_it_is() {
    let dir = filled();
    let journal = dir.path().join("shard-001/db/0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[100_000] ^= 4;
    fs::write(&journal, &bytes).unwrap();
    fs::write(dir.path().join("shard-002/commits"), [0; 16]).unwrap();
    for _ in 0..2 {
        let report = look(dir.path());
        assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
        assert!(report.findings[0].contains("shard-001"), "{:?}", report.findings);
        assert!(report.findings[1].contains("shard-002/commits"), "{:?}", report.findings);
        assert_eq!(report.keyspaces[0].records, 2000);
        assert!(fs::read(&journal).unwrap() == bytes);
    }
}

#[test]
fn records_are_judged_by_who_knows_them() {
    let dir = filled();
    let mut check = |shard: usize, keyspace: Keyspace, key: &[u8], _: &[u8]| {
        assert_eq!(usize::from(key[0]), shard);
        if keyspace == B && key.ends_with(&[7]) { Err("an unlucky one".into()) } else { Ok(()) }
    };
    let mut seen = 0;
    let report =
        verify(dir.path(), &options(), &mut check, &mut |records, _| seen = records).unwrap();
    assert_eq!(report.findings.len(), 3 * 8);
    assert_eq!(report.findings[0], "shard 0, b, key 000007: an unlucky one");
    assert!(seen > 0);
}

fn export(shards: &[&dyn Store]) -> (Vec<u8>, Totals) {
    let snapshots: Vec<Box<dyn Snapshot>> =
        shards.iter().map(|store| store.snapshot().unwrap()).collect();
    let mut file = Vec::new();
    let totals = backup::export(&snapshots, &["a", "b"], &mut file, &mut |_, _| ()).unwrap();
    (file, totals)
}

fn import(mut file: &[u8], path: &Path, options: &Options<'_>) -> Result<Totals, StoreError> {
    backup::import(&mut file, path, options, &mut |_, _| ())
}

#[test]
fn a_backup_brings_all_back_and_nothing_that_came_later() {
    let dir = filled();
    let data = open(dir.path()).unwrap();
    let shards: Vec<&dyn Store> = data.shards().iter().map(|store| &**store).collect();
    let snapshots: Vec<_> = shards.iter().map(|store| store.snapshot().unwrap()).collect();
    let before: Vec<_> = shards.iter().map(|store| records(*store)).collect();
    shards.iter().for_each(|store| fill(*store, 9, 10));
    let mut file = Vec::new();
    let totals = backup::export(&snapshots, &["a", "b"], &mut file, &mut |_, _| ()).unwrap();
    assert_eq!(totals, Totals { records: 12_000, bytes: 6000 * 706 });

    let restored = tempfile::tempdir().unwrap();
    // Keyspaces are matched by name, not by position.
    let swapped = Options { keyspaces: &["b", "new", "a"], ..options() };
    assert_eq!(import(&file, restored.path(), &swapped).unwrap(), totals);
    let data = open(restored.path()).unwrap();
    let after: Vec<_> = data.shards().iter().map(|store| records(&**store)).collect();
    assert!(before == after);
}

#[test]
fn the_log_keeps_its_directory_and_has_its_backups() {
    let dir = tempfile::tempdir().unwrap();
    let log = Options { engine: Engine::Log, ..options() };
    let data = DataDir::open(dir.path(), &log).unwrap();
    (0..).zip(data.shards()).for_each(|(shard, store)| fill(&**store, shard, 100));
    let snapshots: Vec<_> = data.shards().iter().map(|store| store.snapshot().unwrap()).collect();
    let before: Vec<_> = data.shards().iter().map(|store| records(&**store)).collect();
    data.shards().iter().for_each(|store| fill(&**store, 9, 10));
    let mut file = Vec::new();
    let totals = backup::export(&snapshots, &["a", "b"], &mut file, &mut |_, _| ()).unwrap();
    drop((data, snapshots));

    // The manifest decides which engine is used, not the options.
    let data = open(dir.path()).unwrap();
    assert_eq!(records(&*data.shards()[0]).len(), before[0].len() + 20);
    drop(data);
    assert_eq!(look(dir.path()).findings, [""; 0]);
    fs::remove_file(dir.path().join("manifest")).unwrap();
    assert!(refusal(dir.path()).contains("no manifest"), "{}", refusal(dir.path()));

    let restored = tempfile::tempdir().unwrap();
    assert_eq!(import(&file, restored.path(), &log).unwrap(), totals);
    let data = open(restored.path()).unwrap();
    let after: Vec<_> = data.shards().iter().map(|store| records(&**store)).collect();
    assert!(before == after);
}

#[test]
fn a_backup_does_not_know_engines() {
    let (disk, dir) = (Disk::new(), tempfile::tempdir().unwrap());
    let store = disk.open(2);
    fill(&store, 1, 100);
    let large = vec![3; 3 << 20];
    let mut batch = Batch::new();
    batch.put(A, &[0xff; 65535], &large);
    store.commit(&batch).unwrap();
    let (file, totals) = export(&[&store]);
    assert_eq!(import(&file, dir.path(), &options()).unwrap(), totals);
    let data = open(dir.path()).unwrap();
    assert_eq!(data.shards().len(), 1);
    assert!(records(&*data.shards()[0]) == records(&store));
    assert!(export(&[&*data.shards()[0]]).0 == file);
}

#[test]
fn a_backup_is_not_restored_over_something() {
    let dir = filled();
    let (file, _) = export(&[&Disk::new().open(2)]);
    let error = import(&file, dir.path(), &options()).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    assert!(look(dir.path()).findings.is_empty());
}

#[test]
fn a_backup_that_is_damaged_or_cut_off_is_refused() {
    let store = Disk::new().open(2);
    fill(&store, 1, 20);
    let (file, _) = export(&[&store]);
    let refused = |file: &[u8], what: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let error = import(file, &path, &options()).map(drop).expect_err(what);
        assert!(!matches!(error, StoreError::Io { .. }), "{what}: {error}");
        assert!(!path.join("manifest").exists(), "{what}");
    };
    for at in (0..file.len()).step_by(file.len() / 25) {
        refused(&file[..at], &format!("cut to {at} bytes"));
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        refused(&flipped, &format!("flipped at {at}"));
    }
    refused(&file[..file.len() - 1], "cut by a byte");
    refused(&[&file[..], b"x"].concat(), "with a byte more");
    let unknown = Options { keyspaces: &["a"], ..options() };
    let dir = tempfile::tempdir().unwrap();
    let error = import(&file, dir.path(), &unknown).unwrap_err();
    assert!(error.to_string().contains("does not know, b"), "{error}");
}
