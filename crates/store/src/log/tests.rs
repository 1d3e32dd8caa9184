//! Tests of the log on a disk that forgets what was not synced, and on a disk that flips bits.

#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
pub(super) mod sim_disk;
mod steady;

use super::engine::{Engine, Sizes};
use super::{LogOptions, StoreError, open};
use crate::{Batch, Keyspace};
use sim_disk::{Random, SimDisk};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Sizes so small that a few commits fill a segment, and a few segments have to be tidied up.
const SMALL: Sizes =
    Sizes { segment_min: 1500, segment_max: 3000, allocation: 256, garbage: 1000, step: 300 };

const KEYSPACES: usize = 2;

/// The content of a store: all values by keyspace and key.
type Contents = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

pub(super) fn new_log(seed: u64) -> (SimDisk, Engine) {
    let disk = SimDisk::new(seed);
    super::create(&disk).unwrap();
    let engine = open_small(&disk).unwrap();
    (disk, engine)
}

fn open_small(disk: &SimDisk) -> Result<Engine, StoreError> {
    open(Arc::new(disk.clone()), KEYSPACES, &LogOptions::default(), SMALL)
}

fn open_with_loss(disk: &SimDisk) -> Result<Engine, StoreError> {
    let options = LogOptions { accept_loss: true, ..LogOptions::default() };
    open(Arc::new(disk.clone()), KEYSPACES, &options, SMALL)
}

fn contents(engine: &Engine) -> Result<Contents, StoreError> {
    let mut all = Contents::new();
    for keyspace in 0..KEYSPACES as u8 {
        engine.scan(Keyspace(keyspace), b"", b"", &mut |key, value| {
            all.insert((keyspace, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    Ok(all)
}

/// Returns a batch of some changes of few keys, with small and large values.
fn random_batch(random: &mut Random) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..random.below(6) + 1 {
        let keyspace = Keyspace(random.below(KEYSPACES as u64) as u8);
        // Some keys change all the time, others rarely.
        let key = match random.below(4) {
            0 => random.below(200),
            _ => random.below(8),
        };
        let key = [b"key".as_slice(), &key.to_be_bytes()[7..]].concat();
        if random.below(5) < 2 {
            batch.remove(keyspace, &key);
        } else {
            let len = [0, 10, 64, 65, 100, 400][random.below(6) as usize];
            batch.put(keyspace, &key, &vec![random.below(256) as u8; len]);
        }
    }
    batch
}

fn apply(model: &mut Contents, batch: &Batch) {
    for change in batch.iter() {
        match change {
            crate::Change::Put(keyspace, key, value) => {
                model.insert((keyspace.0, key.to_vec()), value.to_vec());
            }
            crate::Change::Remove(keyspace, key) => {
                model.remove(&(keyspace.0, key.to_vec()));
            }
        }
    }
}
