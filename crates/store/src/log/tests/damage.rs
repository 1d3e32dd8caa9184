//! After any flipped bit and any missing file, either the log is refused, or the read fails, or the content is right.

use super::super::tidy::Tidy;
use super::super::{Damage, recovery};
use super::*;
use crate::Damaged;

/// Creates a log with several segments, some of them deleted. Returns its disk and its content.
fn history(seed: u64, commits: usize) -> (SimDisk, Contents) {
    let disk = SimDisk::new(seed);
    super::super::create(&disk).unwrap();
    let engine = open_small(&disk).unwrap();
    let mut random = Random(seed);
    let mut model = Contents::new();
    let mut tidy = Tidy::default();
    for _ in 0..commits {
        let batch = random_batch(&mut random);
        engine.commit(&batch).unwrap();
        apply(&mut model, &batch);
        while engine.tidy(&mut tidy).unwrap() {}
    }
    (disk, model)
}

fn findings(disk: &SimDisk) -> Vec<StoreError> {
    let mut found = Vec::new();
    let mut report = |damaged: Damaged| found.push(damaged.error);
    let result = recovery::read(disk, 0, &mut Damage::report(&mut report));
    found.extend(result.err());
    found
}

/// Returns whether the log is refused, or a read fails with damage, or the content is right.
fn is_safe(disk: &SimDisk, model: &Contents) -> bool {
    match open_small(disk).and_then(|engine| contents(&engine)) {
        Ok(found) => found == *model,
        Err(StoreError::Corrupt(_) | StoreError::Unusable(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_flipped_bit_gives_wrong_data() {
    let (disk, model) = history(11, 90);
    // First the files as they are while the log is open, with space reserved; then after a clean shutdown.
    for disk in [disk.copy(), {
        drop(open_small(&disk));
        disk
    }] {
        assert!(disk.names().len() > 4, "{:?}", disk.names());
        assert!(findings(&disk).is_empty());
        for name in disk.names() {
            let bytes = disk.bytes(&name);
            for at in 0..bytes.len() {
                let damaged = disk.copy();
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                damaged.set_bytes(&name, flipped);
                assert!(is_safe(&damaged.copy(), &model), "{name}, byte {at}");
                let zeros = bytes[at..].iter().all(|&byte| byte == 0);
                let found = findings(&damaged);
                // A flipped bit behind the end has no effect, nor has one among the zeros of a frame.
                if found.is_empty() && !zeros {
                    let engine = open_small(&damaged).unwrap();
                    assert_eq!(contents(&engine).unwrap(), model, "{name}, byte {at}");
                }
            }
        }
    }
}

#[test]
fn no_missing_or_shorter_file_gives_wrong_data() {
    let (disk, model) = history(12, 90);
    for name in disk.names() {
        let damaged = disk.copy();
        damaged.delete(&name);
        assert!(open_small(&damaged).is_err(), "{name} is missing");
        let bytes = disk.bytes(&name);
        for len in 0..bytes.len() {
            let damaged = disk.copy();
            damaged.set_bytes(&name, bytes[..len].to_vec());
            assert!(is_safe(&damaged, &model), "{name}, {len} bytes");
        }
    }
}

#[test]
fn a_refused_log_is_left_as_it_was() {
    let (disk, _) = history(13, 60);
    let name = disk.names().into_iter().find(|name| name.starts_with("log-")).unwrap();
    let mut bytes = disk.bytes(&name);
    bytes[60] ^= 1;
    disk.set_bytes(&name, bytes);
    let before = disk.operations();
    let Err(StoreError::Corrupt(what)) = open_small(&disk) else { panic!("it is damaged") };
    assert!(
        what.contains(&name) && what.contains("at byte 48") && what.contains("doctor"),
        "{what}"
    );
    assert_eq!(disk.operations(), before);
}

#[test]
fn an_accepted_loss_takes_little_and_is_not_found_again() {
    let (disk, model) = history(14, 90);
    for name in disk.names() {
        let bytes = disk.bytes(&name);
        for at in (0..bytes.len()).step_by(5) {
            let damaged = disk.copy();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            damaged.set_bytes(&name, flipped);
            let engine = open_with_loss(&damaged).unwrap();
            let found = contents(&engine).unwrap();
            let kept = model.iter().filter(|(key, value)| found.get(*key) == Some(value)).count();
            // A damaged header costs a whole segment, anything else at most a frame.
            let is_header = name.starts_with("log-") && at < 48;
            assert!(
                kept + if is_header { 40 } else { 7 } >= model.len(),
                "{name}, byte {at}: {kept}"
            );
            let mut batch = Batch::new();
            batch.put(Keyspace(0), b"new", b"value");
            engine.commit(&batch).unwrap();
            let expected = contents(&engine).unwrap();
            drop(engine);
            assert!(findings(&damaged).is_empty(), "{name}, byte {at}");
            let engine = open_small(&damaged).unwrap();
            assert_eq!(contents(&engine).unwrap(), expected, "{name}, byte {at}");
        }
        let damaged = disk.copy();
        damaged.delete(&name);
        let expected = contents(&open_with_loss(&damaged).unwrap()).unwrap();
        assert_eq!(contents(&open_small(&damaged).unwrap()).unwrap(), expected, "without {name}");
    }
}

/// An accepted loss is reported: each record by its key, or the fact that more may be lost than is known.
#[test]
fn an_accepted_loss_is_told() {
    let (disk, model) = history(18, 90);
    let (mut known, mut unknown) = (0, 0);
    for name in disk.names() {
        let bytes = disk.bytes(&name);
        for at in (0..bytes.len()).step_by(3) {
            let damaged = disk.copy();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            damaged.set_bytes(&name, flipped);
            let mut found = Vec::new();
            let mut report = |damaged| found.push(damaged);
            recovery::read(&damaged, 0, &mut Damage::report(&mut report)).unwrap();
            if found.iter().any(|damaged| !damaged.is_all) {
                unknown += 1;
                continue;
            }
            let left = contents(&open_with_loss(&damaged).unwrap()).unwrap();
            let is_told = |(keyspace, key): &(u8, Vec<u8>)| {
                let mut told = found.iter().flat_map(|damaged| &damaged.records);
                told.any(|record| record.keyspace == Keyspace(*keyspace) && record.key == *key)
            };
            let keys = model.keys().chain(left.keys());
            for key in keys.filter(|key| model.get(*key) != left.get(*key)) {
                assert!(is_told(key), "{name}, byte {at}: {key:?} was lost and nobody was told");
                known += 1;
            }
        }
    }
    assert!(known > 50 && unknown > 50, "{known} {unknown}");
}

#[test]
fn the_records_of_a_damaged_frame_are_told_as_far_as_they_can_be_read() {
    let (disk, first_frame) = one_segment();
    let name = "log-0000000001";
    let mut bytes = disk.bytes(name);
    // The flipped bit is in the number of the frame: its records are as they were.
    bytes[first_frame + 16] ^= 1;
    disk.set_bytes(name, bytes);
    let mut found = Vec::new();
    let mut report = |damaged| found.push(damaged);
    recovery::read(&disk, 0, &mut Damage::report(&mut report)).unwrap();
    let [Damaged { bytes, records, is_all: false, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(bytes.start, first_frame as u64);
    let told: Vec<_> =
        records.iter().map(|record| (record.key.as_slice(), record.value_len)).collect();
    assert_eq!(told, [(&[0][..], Some(200)), (&[0, 0][..], Some(20))]);
}

/// Creates a log of one segment, each of whose frames has a large value of 200 bytes. Returns the offset of the first
/// frame.
fn one_segment() -> (SimDisk, usize) {
    let disk = SimDisk::new(16);
    super::super::create(&disk).unwrap();
    let engine = open_small(&disk).unwrap();
    for number in 0..4 {
        let mut batch = Batch::new();
        batch.put(Keyspace(0), &[number], &[number; 200]);
        batch.put(Keyspace(0), &[number, 0], &[9; 20]);
        engine.commit(&batch).unwrap();
    }
    (disk, 48)
}

#[test]
fn damage_before_the_end_is_not_a_torn_end() {
    let (disk, first_frame) = one_segment();
    // As after a power cut, when the file `commits` has an older number.
    let fresh = SimDisk::new(1);
    super::super::create(&fresh).unwrap();
    disk.set_bytes("commits", fresh.bytes("commits"));
    let mut bytes = disk.bytes("log-0000000001");
    bytes[first_frame + 50] ^= 1;
    disk.set_bytes("log-0000000001", bytes);
    let Err(StoreError::Corrupt(what)) = open_small(&disk) else { panic!("it is damaged") };
    assert!(what.contains("at byte 48, the checksum of a frame is wrong"), "{what}");
}

#[test]
fn a_damaged_value_is_lost_alone() {
    let (disk, _) = one_segment();
    let name = "log-0000000001";
    let mut bytes = disk.bytes(name);
    let value = bytes.windows(200).position(|bytes| bytes == [3; 200]).unwrap();
    bytes[value + 7] ^= 1;
    disk.set_bytes(name, bytes);
    let Err(StoreError::Corrupt(what)) = open_small(&disk) else { panic!("it is damaged") };
    assert!(what.contains(&format!("at byte {value}, the checksum of a value is wrong")), "{what}");
    let engine = open_with_loss(&disk).unwrap();
    assert_eq!(contents(&engine).unwrap().len(), 7);
    drop(engine);
    assert_eq!(contents(&open_small(&disk).unwrap()).unwrap().len(), 7);
}

#[test]
fn what_is_missing_is_said() {
    let (disk, _) = history(17, 90);
    let names: Vec<String> =
        disk.names().into_iter().filter(|name| name.starts_with("log-")).collect();
    for (number, name) in names.iter().enumerate() {
        let damaged = disk.copy();
        damaged.delete(name);
        let Err(StoreError::Corrupt(what)) = open_small(&damaged) else { panic!("without {name}") };
        let newest = number + 1 == names.len();
        assert!(what.contains(name) && what.contains("missing") || newest, "{what}");
        let damaged = disk.copy();
        let mut bytes = disk.bytes(name);
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        // Cuts at least one whole frame, if the segment has one.
        bytes.truncate(end.saturating_sub(700).max(48));
        damaged.set_bytes(name, bytes);
        let Err(StoreError::Corrupt(what)) = open_small(&damaged) else { panic!("short {name}") };
        assert!(what.contains(name) || newest, "{what}");
    }
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let (disk, _) = history(15, 60);
    for (name, at) in [("segments", 8), (disk.names()[1].as_str(), 8)] {
        let damaged = disk.copy();
        let mut bytes = disk.bytes(name);
        let covered = if name == "segments" { bytes.len() - 8 } else { 40 };
        bytes[at] = 9;
        let sum = crate::checksum::of(&bytes[..covered]).to_le_bytes();
        bytes[covered..covered + 8].copy_from_slice(&sum);
        damaged.set_bytes(name, bytes);
        let Err(StoreError::Unusable(what)) = open_small(&damaged) else { panic!("{name}") };
        assert!(what.contains("version 9"), "{what}");
    }
}
