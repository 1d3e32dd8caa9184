//! Reads the engine's journals before the engine does.
//!
//! The engine ends a journal at the first entry that it cannot read and continues with the next journal, or refuses a
//! batch with a wrong checksum. Neither distinguishes a torn tail, which is what a power cut leaves of commits that
//! were not acknowledged, from a flipped bit in front of acknowledged commits. The number in every commit makes this
//! distinction possible.
//!
//! A journal is `ID.jnl`; the one with the greatest id is written to. Its entries, in little endian:
//!
//! ```text
//! 1 START  item count u32, sequence number u64
//! 2 ITEM   type u8, compression u8, keyspace u64, key length u16, value length u32,
//!          stored length u32, key, value
//! 3 END    XXH3 of the items u64, "FJL" 3
//! ```
//!
//! The last batch may be followed by zeros: space that was allocated in advance.

use crate::{StoreError, checksum};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The key of the last item of every batch.
pub(super) const NUMBER_KEY: &[u8] = b"commit number";

const NUMBER_LEN: usize = 16;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];

/// Maximum distance of a batch's sequence number from the expected one. The engine takes some sequence numbers for its
/// own work in between.
const SEQUENCE_LEAP: u64 = 1 << 20;

/// Makes the value at [`NUMBER_KEY`]: the number of the commit, and a lower bound of the batch's sequence number, which
/// the engine's checksum does not cover.
pub(super) fn number_record(number: u64, least_sequence: u64) -> [u8; NUMBER_LEN] {
    let mut record = [0; NUMBER_LEN];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record[8..].copy_from_slice(&least_sequence.to_le_bytes());
    record
}

/// Returns the number of the commit in a [`number_record`].
pub(super) fn number(record: &[u8]) -> Option<u64> {
    let record: &[u8; NUMBER_LEN] = record.try_into().ok()?;
    Some(u64_at(record, 0))
}

/// The journals of a database, oldest first.
pub(super) struct Journals(Vec<Journal>);

struct Journal {
    id: u64,
    path: PathBuf,
    /// Offset where the last valid batch ends, and length of the file.
    valid: u64,
    len: u64,
    /// Numbers of the first and the last commit, if there is one.
    commits: Option<(u64, u64)>,
    /// The two commit numbers on either side of a gap: the batch behind `valid` is not the next one.
    gap: Option<(u64, u64)>,
}

/// Reads all journals in `dir`, up to the commit `until`. Changes nothing.
pub(super) fn read(dir: &Path, until: Option<u64>) -> Result<Journals, StoreError> {
    let fail = |error| StoreError::io("read", dir, error);
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none_or(|extension| extension != "jnl") {
            continue;
        }
        let id = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let id =
            id.ok_or_else(|| StoreError::damaged(&path, "its name is not that of a journal"))?;
        journals.push((id, path));
    }
    journals.sort();
    let read = |(id, path): &(u64, PathBuf)| {
        Journal::read(*id, path, until).map_err(|error| StoreError::io("read", path, error))
    };
    journals.iter().map(read).collect::<Result<_, _>>().map(Journals)
}

impl Journals {
    /// Fails if a commit between two others is missing, or the last acknowledged one.
    ///
    /// If the journals have no commits, the last one is not checked: it may be in tables.
    pub fn check(&self, acknowledged: u64) -> Result<(), StoreError> {
        let missing = |journal: &Journal, after: u64, next: u64| {
            let what = format!("commits after {after} and before {next} are missing");
            StoreError::damaged(&journal.path, &what)
        };
        let mut before: Option<(&Journal, u64)> = None;
        for journal in &self.0 {
            if let Some((after, next)) = journal.gap {
                return Err(missing(journal, after, next));
            }
            let Some((first, last)) = journal.commits else { continue };
            // A whole journal that is missing had been written to tables.
            if let Some((previous, after)) = before
                && previous.id + 1 == journal.id
                && after + 1 != first
            {
                return Err(missing(previous, after, first));
            }
            before = Some((journal, last));
        }
        match before {
            Some((journal, last)) if last < acknowledged => {
                Err(missing(journal, last, acknowledged + 1))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the journals have no commits, but something that may have been one.
    ///
    /// An acknowledged commit of that kind would be noticed as missing later: the engine cuts it off, and is then asked
    /// for its last number. This check is for a caller that wants to know earlier.
    pub fn check_beginning(&self) -> Result<(), StoreError> {
        if self.0.iter().any(|journal| journal.commits.is_some()) {
            return Ok(());
        }
        for Journal { path, .. } in &self.0 {
            let fail = |error| StoreError::io("read", path, error);
            let reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(fail)?);
            for byte in reader.bytes() {
                if byte.map_err(fail)? != 0 {
                    return Err(StoreError::damaged(path, "it does not begin with a commit"));
                }
            }
        }
        Ok(())
    }

    /// Truncates each journal behind its last valid batch.
    pub fn cut(&self) -> Result<(), StoreError> {
        for journal in self.0.iter().filter(|journal| journal.valid < journal.len) {
            File::options()
                .write(true)
                .open(&journal.path)
                .and_then(|file| file.set_len(journal.valid).and_then(|()| file.sync_all()))
                .map_err(|error| StoreError::io("cut", &journal.path, error))?;
        }
        Ok(())
    }
}

impl Journal {
    fn read(id: u64, path: &Path, until: Option<u64>) -> io::Result<Journal> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut reader = BatchReader::new(BufReader::with_capacity(1 << 20, file));
        let mut journal =
            Journal { id, path: path.to_owned(), valid: 0, len, commits: None, gap: None };
        let mut least_sequence = 0;
        while let Some(Batch { number, sequence }) = reader.next()? {
            if until.is_some_and(|until| number > until) {
                break;
            }
            let (first, last) = journal.commits.unwrap_or((number, number - 1));
            // A sequence number that is out of order is not as it was written.
            if number != last + 1 || sequence < least_sequence {
                journal.gap = Some((last, number));
                break;
            }
            least_sequence = sequence + 1;
            journal.commits = Some((first, number));
            journal.valid = reader.read;
        }
        Ok(journal)
    }
}

/// A complete batch.
struct Batch {
    /// Number of the commit. Never 0.
    number: u64,
    sequence: u64,
}

struct BatchReader<R> {
    reader: R,
    /// Bytes of the item that was read last.
    entry: Vec<u8>,
    /// Number of bytes read so far.
    read: u64,
}

impl<R: Read> BatchReader<R> {
    fn new(reader: R) -> BatchReader<R> {
        BatchReader { reader, entry: Vec::new(), read: 0 }
    }

    /// Reads the next batch. Returns `None` where no complete one follows.
    fn next(&mut self) -> io::Result<Option<Batch>> {
        match self.batch() {
            Ok(batch) => Ok(batch),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn batch(&mut self) -> io::Result<Option<Batch>> {
        let [tag, start @ ..] = self.array::<13>()?;
        if tag != START {
            return Ok(None);
        }
        let items = u32::from_le_bytes([start[0], start[1], start[2], start[3]]);
        let sequence = u64_at(&start, 4);
        let mut checksum = checksum::Running::new();
        for _ in 0..items {
            if !self.item()? {
                return Ok(None);
            }
            checksum.update(&self.entry);
        }
        let [tag, end @ ..] = self.array::<13>()?;
        if tag != END || u64_at(&end, 0) != checksum.digest() || end[8..] != TRAILER {
            return Ok(None);
        }
        let Some((rest, record)) = self.entry.split_last_chunk::<NUMBER_LEN>() else {
            return Ok(None);
        };
        let (number, least) = (u64_at(record, 0), u64_at(record, 8));
        let is_number = rest.ends_with(NUMBER_KEY) && number > 0;
        let possible = sequence >= least && sequence - least < SEQUENCE_LEAP;
        Ok((is_number && possible).then_some(Batch { number, sequence }))
    }

    /// Reads an item into `entry`. Returns false if there is no complete one.
    fn item(&mut self) -> io::Result<bool> {
        const HEAD: usize = 21;
        let head = self.array::<HEAD>()?;
        if head[0] != ITEM {
            return Ok(false);
        }
        let key_len = u16::from_le_bytes([head[11], head[12]]);
        let value_len = u32::from_le_bytes([head[17], head[18], head[19], head[20]]);
        let len = u64::from(key_len) + u64::from(value_len);
        self.entry.clear();
        self.entry.extend_from_slice(&head);
        // The buffer grows with the bytes that exist, not with what the length claims.
        let got = (&mut self.reader).take(len).read_to_end(&mut self.entry)? as u64;
        self.read += got;
        Ok(got == len)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.read += N as u64;
        Ok(bytes)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}
