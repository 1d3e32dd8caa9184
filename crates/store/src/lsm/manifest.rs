//! Checks the manifests of the engine's trees before the engine believes them.
//!
//! `keyspaces/ID/current` says which manifest `vN` lists the tables of a tree, and has its checksum,
//! which the engine writes and does not verify. It deletes tables that the manifest does not list.

use crate::StoreError;
use std::path::Path;

/// Version u64, XXH3 of 128 bits, kind of checksum u8; in little endian.
const CURRENT_LEN: usize = 25;

pub(super) fn check(dir: &Path) -> Result<(), StoreError> {
    let keyspaces = dir.join("keyspaces");
    let fail = |error| StoreError::io("read", &keyspaces, error);
    for entry in std::fs::read_dir(&keyspaces).map_err(fail)? {
        let tree = entry.map_err(fail)?.path();
        // A tree without it was being made when the process died, and has no data.
        if tree.join("current").exists() {
            check_tree(&tree)?;
        }
    }
    Ok(())
}

fn check_tree(tree: &Path) -> Result<(), StoreError> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| StoreError::io("read", path, error));
    let path = tree.join("current");
    let current = read(&path)?;
    let current: &[u8; CURRENT_LEN] = current
        .as_slice()
        .try_into()
        .map_err(|_| StoreError::damaged(&path, "it does not have 25 bytes"))?;
    let version = u64::from_le_bytes(current[..8].try_into().expect("eight bytes are eight bytes"));
    let manifest = tree.join(format!("v{version}"));
    if !manifest.exists() {
        return Err(StoreError::damaged(&path, &format!("there is no manifest v{version}")));
    }
    let checksum = xxhash_rust::xxh3::xxh3_128(&read(&manifest)?);
    if current[8..24] != checksum.to_le_bytes() || current[24] != 0 {
        return Err(StoreError::damaged(&manifest, "its checksum is wrong"));
    }
    Ok(())
}
