//! Reads the engine's journals before the engine does.
//!
//! The engine ends a journal at the first entry it cannot read and goes on with the next one, or
//! refuses a batch with a wrong checksum. Neither tells a torn tail, which is what a power cut leaves
//! of commits that nobody was promised, from a flipped bit in front of commits that somebody was. With a
//! number in every commit it can be told.
//!
//! A journal is `ID.jnl`; that with the greatest id is written to. Its entries, in little endian:
//!
//! ```text
//! 1 START  item count u32, sequence number u64
//! 2 ITEM   type u8, compression u8, keyspace u64, key length u16, value length u32,
//!          stored length u32, key, value
//! 3 END    XXH3 of the items u64, "FJL" 3
//! ```
//!
//! Behind the last batch there may be zeros: room that was taken in advance.

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

/// How far a batch's sequence number may be from what it was expected to be: the engine takes some
/// for its own work meanwhile.
const SEQUENCE_LEAP: u64 = 1 << 20;

/// The value at [`NUMBER_KEY`]: the commit's number, and a sequence number that the batch's is not
/// less than. The engine's checksum does not cover the sequence number.
pub(super) fn number_record(number: u64, least_sequence: u64) -> [u8; NUMBER_LEN] {
    let mut record = [0; NUMBER_LEN];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record[8..].copy_from_slice(&least_sequence.to_le_bytes());
    record
}

/// The commit's number in a [`number_record`].
pub(super) fn number(record: &[u8]) -> Option<u64> {
    let record: &[u8; NUMBER_LEN] = record.try_into().ok()?;
    Some(u64_at(record, 0))
}

/// The journals of a database, oldest first.
pub(super) struct Journals(Vec<Journal>);

struct Journal {
    id: u64,
    path: PathBuf,
    /// Bytes up to the end of the last batch that counts, and of the file.
    valid: u64,
    len: u64,
    /// The numbers of the first and the last commit, if there is one.
    commits: Option<(u64, u64)>,
    /// Behind `valid` there is a batch that is not the next one: these two follow each other.
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
    /// Refuses if a commit is missing between two others, or the last one that was acknowledged.
    ///
    /// Where there is no commit in the journals nothing is said of the last one: it may be in tables.
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
            // If a whole journal is not there, all of it had been written to tables.
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

    /// Refuses if there is no commit in the journals, but something that may have been one.
    ///
    /// If it was acknowledged it is missing when the engine has cut it off and is asked for its last
    /// number. So this is for who wants to know before.
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

    /// Cuts what is behind the last batch of each journal.
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

/// A batch that is complete.
struct Batch {
    /// Never 0.
    number: u64,
    sequence: u64,
}

struct BatchReader<R> {
    reader: R,
    /// The bytes of the item that was read last.
    entry: Vec<u8>,
    /// Bytes read so far.
    read: u64,
}

impl<R: Read> BatchReader<R> {
    fn new(reader: R) -> BatchReader<R> {
        BatchReader { reader, entry: Vec::new(), read: 0 }
    }

    /// The next batch, or `None` where no complete one follows.
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

    /// Reads an item into `entry`.
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
        // Grows with what is there, not with what the length says.
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
