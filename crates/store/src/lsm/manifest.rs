//! Verifies the files of the engine's trees before the engine relies on them.
//!
//! `keyspaces/ID/current` says which manifest `vN` lists the tables of a tree. It also has the checksum of that
//! manifest, which the engine writes and does not verify. The engine deletes tables that the manifest does not list. A
//! table is the file `keyspaces/ID/tables/ID`; the manifest has a checksum of the whole file. Manifests and tables are
//! archives of the crate `sfa`: sections, their table of contents, and a trailer.

use crate::{StoreError, checksum};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A table that is listed in a manifest.
pub(super) struct Table {
    path: PathBuf,
    /// XXH3 of the whole file.
    checksum: u128,
}

/// Fails if a manifest is not as it was written, or a table is missing. Returns the tables.
///
/// Only the ends of the tables are read. The engine verifies each block when it reads it.
pub(super) fn check(dir: &Path) -> Result<Vec<Table>, StoreError> {
    let keyspaces = dir.join("keyspaces");
    let fail = |error| StoreError::io("read", &keyspaces, error);
    let mut tables = Vec::new();
    for entry in fs::read_dir(&keyspaces).map_err(fail)? {
        let tree = entry.map_err(fail)?.path();
        // A tree without this file was being created when the process died, and has no data.
        if tree.join("current").exists() {
            tables.extend(tables_of(&tree)?);
        }
    }
    tables.iter().try_for_each(Table::check_end).map(|()| tables)
}

/// Length of `current` in bytes: version of the manifest u64, 128-bit XXH3, kind of checksum u8; little-endian.
const CURRENT_LEN: usize = 25;

fn tables_of(tree: &Path) -> Result<Vec<Table>, StoreError> {
    let path = tree.join("current");
    let current = fs::read(&path).map_err(|error| StoreError::io("read", &path, error))?;
    let current: &[u8; CURRENT_LEN] = current
        .as_slice()
        .try_into()
        .map_err(|_| StoreError::damaged(&path, "it does not have 25 bytes"))?;
    let (version, sum) = current.split_at(8);
    let version = u64::from_le_bytes(version.try_into().expect("eight bytes are eight bytes"));
    let path = tree.join(format!("v{version}"));
    let listed = match checksum::of_file(&path) {
        Ok(checksum) if checksum.to_le_bytes() == sum[..16] && sum[16] == 0 => read_tables(&path),
        Ok(_) => return Err(StoreError::damaged(&path, "its checksum is wrong")),
        Err(error) => Err(error),
    };
    let listed = listed.map_err(|error| StoreError::io("read", &path, error))?;
    let tables = tree.join("tables");
    let table = |(id, checksum): (u64, u128)| Table { path: tables.join(id.to_string()), checksum };
    Ok(listed.into_iter().map(table).collect())
}

/// Reads the identifiers and checksums in the section `tables`: a number of levels u8; for each level a number of runs
/// u8; for each run a number of tables u32. A table is its identifier u64, the kind of checksum u8, the checksum u128,
/// and a sequence number u64.
fn read_tables(manifest: &Path) -> io::Result<Vec<(u64, u128)>> {
    let archive =
        sfa::Reader::new(manifest).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let section = archive.toc().section(b"tables").ok_or(io::ErrorKind::InvalidData)?;
    let mut reader = section.buf_reader(manifest)?;
    let mut tables = Vec::new();
    for _ in 0..u8::from_le_bytes(array(&mut reader)?) {
        for _ in 0..u8::from_le_bytes(array(&mut reader)?) {
            for _ in 0..u32::from_le_bytes(array(&mut reader)?) {
                let id = u64::from_le_bytes(array(&mut reader)?);
                let [_kind, checksum @ ..] = array::<17>(&mut reader)?;
                let _sequence = array::<8>(&mut reader)?;
                tables.push((id, u128::from_le_bytes(checksum)));
            }
        }
    }
    Ok(tables)
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).map(|()| bytes)
}

/// Length of the trailer in bytes: "SFA!" 1 0, XXH3 of the table of contents u128, its offset u64, its length u64.
const TRAILER_LEN: u64 = 38;

/// Maximum length of a table of contents in bytes. No table has so many sections that it would be longer.
const CONTENTS_LEN_MAX: u64 = 64 << 10;

impl Table {
    /// Verifies the checksum of the table of contents. The engine allocates memory for as many sections as the table
    /// claims before it verifies the table.
    fn check_end(&self) -> Result<(), StoreError> {
        match self.end_is_right() {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::damaged(&self.path, "the checksum of its end is wrong")),
            Err(error) => Err(StoreError::io("read", &self.path, error)),
        }
    }

    fn end_is_right(&self) -> io::Result<bool> {
        let file = File::open(&self.path)?;
        let Some(trailer_at) = file.metadata()?.len().checked_sub(TRAILER_LEN) else {
            return Ok(false);
        };
        let mut trailer = [0; TRAILER_LEN as usize];
        file.read_exact_at(&mut trailer, trailer_at)?;
        let place =
            u64::from_le_bytes(trailer[22..30].try_into().expect("eight bytes are eight bytes"));
        let len = trailer_at.checked_sub(place).filter(|&len| len <= CONTENTS_LEN_MAX);
        let Some(len) = len else { return Ok(false) };
        let mut contents = vec![0; len as usize];
        file.read_exact_at(&mut contents, place)?;
        let checksum = xxhash_rust::xxh3::xxh3_128(&contents);
        Ok(trailer[6..22] == checksum.to_le_bytes())
    }

    /// Verifies the checksum of the whole file.
    pub fn check(&self) -> Result<(), StoreError> {
        match checksum::of_file(&self.path) {
            Ok(checksum) if checksum == self.checksum => Ok(()),
            Ok(_) => Err(StoreError::damaged(&self.path, "its checksum is wrong")),
            Err(error) => Err(StoreError::io("read", &self.path, error)),
        }
    }
}
