//! Backups: all records of all shards in one file, in a format that does not depend on any storage engine.
//!
//! The page `docs/formats/backup.md` describes the format. Numbers are little-endian. Every part ends with the XXH3 of
//! its bytes.

use crate::data_dir::{self, Options};
use crate::verify::{PROGRESS_EVERY, Progress};
use crate::{Batch, Keyspace, Snapshot, StoreError, checksum};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

const MAGIC: &[u8; 8] = b"BARIDBAK";
const VERSION: u32 = 1;

/// First byte of a block of records, and first byte of the end.
const RECORDS: u8 = 1;
const END: u8 = 2;

/// Bytes of records at which a block is ended. Every block has at least one record.
const BLOCK_BYTES: usize = 1 << 20;

/// The size of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of records.
    pub records: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
}

/// Writes everything that the snapshots see, one snapshot for each shard, to `out`. `keyspaces` are the names that the
/// stores were opened with. `out` is flushed, but not synced.
pub fn export(
    snapshots: &[Box<dyn Snapshot>],
    keyspaces: &[&str],
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, StoreError> {
    let mut writer = Writer { out, block: Block::default(), totals: Totals::default() };
    writer.header(snapshots.len(), keyspaces).map_err(cannot_write)?;
    for (shard, snapshot) in (0u32..).zip(snapshots) {
        for keyspace in 0..keyspace_count(keyspaces) {
            writer.block.begin(shard, keyspace);
            let mut done = Ok(());
            snapshot.scan(Keyspace(keyspace), &mut |key, value| {
                done = writer.record(key, value);
                if writer.totals.records.is_multiple_of(PROGRESS_EVERY) {
                    progress(writer.totals.records, writer.totals.bytes);
                }
                if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            done.and_then(|()| writer.end_block()).map_err(cannot_write)?;
        }
    }
    writer.end().map_err(cannot_write)?;
    Ok(writer.totals)
}

fn keyspace_count(keyspaces: &[&str]) -> u8 {
    u8::try_from(keyspaces.len()).expect("there are 255 keyspaces at most")
}

fn cannot_write(source: io::Error) -> StoreError {
    StoreError::Io { what: "cannot write the backup".into(), source }
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    block: Block,
    totals: Totals,
}

/// Records of one keyspace of one shard, encoded.
#[derive(Default)]
struct Block {
    shard: u32,
    keyspace: u8,
    bytes: Vec<u8>,
}

impl Block {
    fn begin(&mut self, shard: u32, keyspace: u8) {
        *self = Block { shard, keyspace, bytes: std::mem::take(&mut self.bytes) };
        self.bytes.clear();
    }
}

impl Writer<'_> {
    fn header(&mut self, shards: usize, keyspaces: &[&str]) -> io::Result<()> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(u32::try_from(shards).expect("there are few shards").to_le_bytes());
        header.push(keyspace_count(keyspaces));
        for name in keyspaces {
            header.push(u8::try_from(name.len()).expect("names have 255 bytes at most"));
            header.extend(name.as_bytes());
        }
        self.part(&header)
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bytes = &mut self.block.bytes;
        bytes
            .extend(u16::try_from(key.len()).expect("keys have 65535 bytes at most").to_le_bytes());
        bytes.extend(
            u32::try_from(value.len()).expect("values have less than 2^32 bytes").to_le_bytes(),
        );
        bytes.extend(key);
        bytes.extend(value);
        self.totals.records += 1;
        self.totals.bytes += (key.len() + value.len()) as u64;
        if self.block.bytes.len() < BLOCK_BYTES { Ok(()) } else { self.end_block() }
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Block { shard, keyspace, ref mut bytes } = self.block;
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(bytes);
        let mut head = vec![RECORDS];
        head.extend(shard.to_le_bytes());
        head.push(keyspace);
        head.extend((bytes.len() as u64).to_le_bytes());
        self.part(&head)?;
        self.part(&bytes)?;
        self.block.bytes = bytes;
        self.block.begin(shard, keyspace);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let mut end = vec![END];
        end.extend(self.totals.records.to_le_bytes());
        end.extend(self.totals.bytes.to_le_bytes());
        self.part(&end)?;
        self.out.flush()
    }

    /// Writes `bytes` and their checksum.
    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&checksum::of(bytes).to_le_bytes())
    }
}

/// Creates a data directory from a backup, with as many shards as were saved. `path` must be empty or must not exist.
/// If the import fails, the incomplete directory has no manifest, and a broker refuses to start with it.
///
/// # Errors
///
/// [`StoreError::Corrupt`] if the backup is damaged or ends too early; [`StoreError::Unusable`] if the file is not a
/// backup, is of another version, or has keyspaces that `options` do not name, or if `path` is not empty.
pub fn import(
    input: &mut dyn Read,
    path: &Path,
    options: &Options<'_>,
    progress: Progress<'_>,
) -> Result<Totals, StoreError> {
    let mut reader = Reader { input, totals: Totals::default() };
    let header = reader.header()?;
    let keyspaces = header.keyspaces(options.keyspaces)?;
    let directory = data_dir::New::prepare(path, header.shards, options.engine)?;
    let shards = directory.open(options)?;
    let mut batch = Batch::new();
    while let Some((shard, keyspace, records)) = reader.block()? {
        let damaged = || damaged("a block is of a shard or keyspace that it does not have");
        let store = shards.get(shard as usize).ok_or_else(damaged)?;
        let keyspace = *keyspaces.get(usize::from(keyspace)).ok_or_else(damaged)?;
        batch.clear();
        for record in Records(&records) {
            let (key, value) = record.ok_or_else(|| self::damaged("a record is cut off"))?;
            batch.put(keyspace, key, value);
        }
        reader.totals.records += batch.len() as u64;
        reader.totals.bytes += batch.bytes() as u64;
        store.commit(&batch)?;
        progress(reader.totals.records, reader.totals.bytes);
    }
    drop(shards);
    directory.finish()?;
    Ok(reader.totals)
}

/// Reads a backup to its end, and verifies all checksums and counts.
///
/// # Errors
///
/// Those of [`import`] that concern the backup.
pub fn check(input: &mut dyn Read, progress: Progress<'_>) -> Result<Totals, StoreError> {
    let mut reader = Reader { input, totals: Totals::default() };
    reader.header()?;
    while let Some((_, _, records)) = reader.block()? {
        for record in Records(&records) {
            let (key, value) = record.ok_or_else(|| damaged("a record is cut off"))?;
            reader.totals.records += 1;
            reader.totals.bytes += (key.len() + value.len()) as u64;
        }
        progress(reader.totals.records, reader.totals.bytes);
    }
    Ok(reader.totals)
}

fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt(format!("the backup is damaged: {what}; use another one"))
}

fn cannot_read(source: io::Error) -> StoreError {
    if source.kind() == io::ErrorKind::UnexpectedEof {
        return damaged("it ends too early");
    }
    StoreError::Io { what: "cannot read the backup".into(), source }
}

struct Header {
    shards: usize,
    keyspaces: Vec<String>,
}

impl Header {
    /// Maps each keyspace of the backup to the keyspace that has the same name in `names`.
    fn keyspaces(&self, names: &[&str]) -> Result<Vec<Keyspace>, StoreError> {
        let find = |saved: &String| {
            let index = names.iter().position(|name| name == saved).ok_or_else(|| {
                StoreError::Unusable(format!(
                    "the backup has records of a kind that this broker does not know, {saved}; use the \
                     version of the broker that wrote it"
                ))
            })?;
            Ok(Keyspace(u8::try_from(index).expect("there are 255 keyspaces at most")))
        };
        self.keyspaces.iter().map(find).collect()
    }
}

struct Reader<'a> {
    input: &'a mut dyn Read,
    totals: Totals,
}

impl Reader<'_> {
    fn header(&mut self) -> Result<Header, StoreError> {
        let mut header = self.bytes(17)?;
        if !header.starts_with(MAGIC) {
            let what = "this is not a backup of a broker; name another file";
            return Err(StoreError::Unusable(what.into()));
        }
        let (version, shards, keyspaces) = (u32_at(&header, 8), u32_at(&header, 12), header[16]);
        if version != VERSION {
            return Err(StoreError::Unusable(format!(
                "the backup has version {version} of the format, and this broker reads version {VERSION}; \
                 use the version of the broker that wrote it"
            )));
        }
        let mut names = Vec::new();
        for _ in 0..keyspaces {
            let len = self.bytes(1)?;
            let name = self.bytes(u64::from(len[0]))?;
            header.extend(len.iter().chain(&name));
            names.push(String::from_utf8(name).map_err(|_| damaged("its header is wrong"))?);
        }
        self.checksum(&header)?;
        Ok(Header { shards: shards as usize, keyspaces: names })
    }

    /// Reads the next block: its shard, keyspace and records. Returns `None` at the end, if the backup is complete.
    fn block(&mut self) -> Result<Option<(u32, u8, Vec<u8>)>, StoreError> {
        let mut head = self.bytes(1)?;
        match head[0] {
            RECORDS => {
                head.extend(self.bytes(13)?);
                self.checksum(&head)?;
                let records = self.bytes(u64_at(&head, 6))?;
                self.checksum(&records)?;
                Ok(Some((u32_at(&head, 1), head[5], records)))
            }
            END => {
                head.extend(self.bytes(16)?);
                self.checksum(&head)?;
                let saved = Totals { records: u64_at(&head, 1), bytes: u64_at(&head, 9) };
                if saved != self.totals {
                    return Err(damaged("it does not have as many records as it says"));
                }
                match self.bytes(1) {
                    Ok(_) => Err(damaged("something is behind its end")),
                    Err(StoreError::Corrupt(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            _ => Err(damaged("it has a part of an unknown kind")),
        }
    }

    /// Reads `len` bytes. Allocates memory for the bytes that exist, not for what a damaged length claims.
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        (&mut *self.input).take(len).read_to_end(&mut bytes).map_err(cannot_read)?;
        if bytes.len() as u64 == len {
            Ok(bytes)
        } else {
            Err(cannot_read(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// Reads the checksum that follows, and compares it with the checksum of `bytes`.
    fn checksum(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if u64_at(&self.bytes(8)?, 0) == checksum::of(bytes) {
            return Ok(());
        }
        Err(damaged("a checksum is wrong"))
    }
}

/// Iterator over the records of a block. Yields `None` for a record that is incomplete.
struct Records<'a>(&'a [u8]);

/// Bytes before the key of a record: length of the key u16, length of the value u32.
const RECORD_HEAD: usize = 6;

impl<'a> Iterator for Records<'a> {
    type Item = Option<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.take();
        if record.is_none() {
            self.0 = &[];
        }
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn take(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (head, rest) = self.0.split_at_checked(RECORD_HEAD)?;
        let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let (key, rest) = rest.split_at_checked(key_len)?;
        let (value, rest) = rest.split_at_checked(u32_at(head, 2) as usize)?;
        self.0 = rest;
        (!key.is_empty()).then_some((key, value))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}
