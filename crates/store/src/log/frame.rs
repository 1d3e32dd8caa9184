//! A frame: the changes of one commit, as they are stored in a segment.
//!
//! ```text
//! header 48 | meta: the records, with keys and small values | values: the large ones | zeros to 8
//!
//! header: mark 8 | checksum 8 | number 8 | length of values 8 | length of meta 4
//!         | number of the first record 4 | records 4 | zeros 4
//! record: kind 1 | keyspace 1 | length of key 2 | length of value 4 | checksum of value 8, if large
//!         | key | value, if small
//! ```
//!
//! Records are numbered within their segment, from 0. Numbers are little-endian. The checksum of the header covers the
//! rest of the header and meta, and thereby the checksums of the large values. So a frame can be verified without
//! reading its values, and each value can be read and verified alone.
//!
//! The mark is a random number of the segment. It shows where frames may begin when a frame in between is damaged.
//! Whoever chooses the values cannot forge it.

use crate::{Change, Keyspace, checksum};

/// Maximum length of a small value, in bytes. Small values lie in meta and are kept in memory.
pub(super) const HELD_LEN_MAX: usize = 64;

pub(super) const HEADER_LEN: usize = 48;
const RECORD_LEN: usize = 8;
const ALIGNMENT: u64 = 8;

const REMOVE: u8 = 0;
const HELD: u8 = 1;
const STORED: u8 = 2;

/// The content of a record in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The key is removed.
    Removed,
    /// A small value.
    Held(&'a [u8]),
    /// A large value, which begins at this offset in the segment.
    Stored { at: u64, len: u32, checksum: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub keyspace: Keyspace,
    pub key: &'a [u8],
    pub content: Content<'a>,
}

/// Returns the number of bytes that a record with a value takes in a segment.
pub(super) fn disk_len(key: &[u8], value_len: usize) -> u64 {
    let checksum = if value_len > HELD_LEN_MAX { 8 } else { 0 };
    (RECORD_LEN + checksum + key.len() + value_len) as u64
}

/// Builds frames, and keeps its memory for the next one.
#[derive(Default)]
pub(super) struct Encoder {
    /// Header and meta.
    head: Vec<u8>,
    values: Vec<u8>,
    records: u32,
    /// Offset in `values` where the last value begins.
    last_value: usize,
}

impl Encoder {
    /// Begins a new frame, without records.
    pub fn begin(&mut self) {
        self.head.clear();
        self.head.resize(HEADER_LEN, 0);
        self.values.clear();
        self.records = 0;
        self.last_value = 0;
    }

    pub fn push(&mut self, change: &Change<'_>) {
        match *change {
            Change::Remove(keyspace, key) => self.record(REMOVE, keyspace, key, &[], &[]),
            Change::Put(keyspace, key, value) if value.len() <= HELD_LEN_MAX => {
                self.record(HELD, keyspace, key, value, &[]);
                self.head.extend_from_slice(value);
            }
            Change::Put(keyspace, key, value) => {
                let checksum = checksum::of(value).to_le_bytes();
                self.record(STORED, keyspace, key, value, &checksum);
                self.last_value = self.values.len();
                self.values.extend_from_slice(value);
            }
        }
    }

    fn record(&mut self, kind: u8, keyspace: Keyspace, key: &[u8], value: &[u8], checksum: &[u8]) {
        let key_len = u16::try_from(key.len()).expect("a batch takes no longer key").to_le_bytes();
        let value_len = (value.len() as u32).to_le_bytes();
        self.head.extend_from_slice(&[kind, keyspace.0, key_len[0], key_len[1]]);
        self.head.extend_from_slice(&value_len);
        self.head.extend_from_slice(checksum);
        self.head.extend_from_slice(key);
        self.records += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Length of the frame in bytes.
    pub fn len(&self) -> u64 {
        padded((self.head.len() + self.values.len()) as u64)
    }

    /// Returns whether the offsets of the values and the length of meta fit into 32 bits if the frame begins at `at`.
    pub fn fits(&self, at: u64) -> bool {
        at + (self.head.len() + self.last_value) as u64 <= u64::from(u32::MAX)
    }

    /// Completes the frame, and returns it as parts to be written one after the other. The frame must
    /// [fit](Self::fits).
    pub fn finish(&mut self, mark: u64, number: u64, first_record: u32) -> [&[u8]; 3] {
        let header = Header {
            number,
            values_len: self.values.len() as u64,
            meta_len: u32::try_from(self.head.len() - HEADER_LEN).expect("it fits"),
            first_record,
            records: self.records,
        };
        self.head[..8].copy_from_slice(&mark.to_le_bytes());
        header.encode(&mut self.head[16..HEADER_LEN]);
        let checksum = checksum::of(&self.head[16..]);
        self.head[8..16].copy_from_slice(&checksum.to_le_bytes());
        let padding = self.len() as usize - self.head.len() - self.values.len();
        [&self.head, &self.values, &[0; ALIGNMENT as usize][..padding]]
    }

    /// Returns the frame that [`finish`](Self::finish) has made, in the form in which a reader sees it.
    pub fn frame(&self) -> Frame<'_> {
        let header = Header::decode(&self.head[16..HEADER_LEN]);
        Frame { header, meta: &self.head[HEADER_LEN..] }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    /// Number of the frame. The frames of a log are numbered from 1 without gaps.
    pub number: u64,
    values_len: u64,
    meta_len: u32,
    pub first_record: u32,
    pub records: u32,
}

impl Header {
    /// Returns the header at the start of `bytes`, unverified, if `bytes` begin with the mark.
    pub fn peek(bytes: &[u8], mark: u64) -> Option<Header> {
        let header = bytes.get(..HEADER_LEN)?;
        header.starts_with(&mark.to_le_bytes()).then(|| Header::decode(&header[16..]))
    }

    fn encode(&self, into: &mut [u8]) {
        into[..8].copy_from_slice(&self.number.to_le_bytes());
        into[8..16].copy_from_slice(&self.values_len.to_le_bytes());
        into[16..20].copy_from_slice(&self.meta_len.to_le_bytes());
        into[20..24].copy_from_slice(&self.first_record.to_le_bytes());
        into[24..28].copy_from_slice(&self.records.to_le_bytes());
    }

    fn decode(mut bytes: &[u8]) -> Header {
        let fields = (|| {
            Some(Header {
                number: u64(&mut bytes)?,
                values_len: u64(&mut bytes)?,
                meta_len: u32(&mut bytes)?,
                first_record: u32(&mut bytes)?,
                records: u32(&mut bytes)?,
            })
        })();
        fields.expect("a header has 48 bytes")
    }

    /// Bytes of header and meta.
    pub fn head_len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.meta_len)
    }

    /// Bytes of the frame. `None` if the sum overflows, as it may in a header that is garbage.
    pub fn len(&self) -> Option<u64> {
        self.head_len().checked_add(self.values_len)?.checked_next_multiple_of(ALIGNMENT)
    }
}

/// A frame whose header and meta are as they were written.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub header: Header,
    meta: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Verifies the frame whose header and meta are `head`. Returns `None` if they are not as they were written.
    pub fn check(head: &'a [u8]) -> Option<Frame<'a>> {
        let (start, checked) = head.split_at_checked(16)?;
        let checksum = u64(&mut &start[8..])?;
        let meta = checked.get(HEADER_LEN - 16..)?;
        let frame = Frame { header: Header::decode(&checked[..HEADER_LEN - 16]), meta };
        let as_written =
            checksum == checksum::of(checked) && frame.header.head_len() == head.len() as u64;
        as_written.then_some(frame)
    }

    /// Returns the frame at the start of `bytes` without verifying its checksum, or `None` if `bytes` are too short for
    /// a header.
    pub fn unchecked(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (header, rest) = bytes.split_at_checked(HEADER_LEN)?;
        let header = Header::decode(&header[16..]);
        let meta = rest.get(..(header.meta_len as usize).min(rest.len()))?;
        Some(Frame { header, meta })
    }

    /// Iterates over the records of a frame that begins at `at` in its segment.
    pub fn records(&self, at: u64) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let mut rest = self.meta;
        let mut value_at = at + self.header.head_len();
        std::iter::from_fn(move || {
            let head = take(&mut rest, RECORD_LEN)?;
            let key_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
            let len = u32(&mut &head[4..])?;
            let checksum = if head[0] == STORED { u64(&mut rest)? } else { 0 };
            let key = take(&mut rest, key_len)?;
            let content = match head[0] {
                REMOVE => Content::Removed,
                HELD => Content::Held(take(&mut rest, len as usize)?),
                _ => {
                    let content = Content::Stored { at: value_at, len, checksum };
                    value_at += u64::from(len);
                    content
                }
            };
            Some(Record { keyspace: Keyspace(head[1]), key, content })
        })
    }
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(ALIGNMENT)
}

/// Returns the first offset, at or after `at`, where a frame may begin.
pub(super) fn next_start(at: u64) -> u64 {
    padded(at)
}

pub(super) fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

pub(super) fn u32(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?))
}

pub(super) fn u64(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYSPACE: Keyspace = Keyspace(3);

    fn encode(changes: &[Change<'_>]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.begin();
        changes.iter().for_each(|change| encoder.push(change));
        encoder.finish(77, 5, 9).concat()
    }

    #[test]
    fn records_come_back() {
        let large = vec![7; 100];
        let bytes = encode(&[
            Change::Put(KEYSPACE, b"small", b"value"),
            Change::Put(KEYSPACE, b"large", &large),
            Change::Remove(KEYSPACE, b"gone"),
        ]);
        assert_eq!(bytes.len() % 8, 0);
        let header = Header::peek(&bytes, 77).unwrap();
        assert_eq!(header.len(), Some(bytes.len() as u64));
        let frame = Frame::check(&bytes[..header.head_len() as usize]).unwrap();
        let Header { number, first_record, records, .. } = frame.header;
        assert_eq!((number, first_record, records), (5, 9, 3));
        let records: Vec<Record<'_>> = frame.records(1000).collect();
        assert_eq!(records[0].content, Content::Held(b"value"));
        assert_eq!(
            records[2],
            Record { keyspace: KEYSPACE, key: b"gone", content: Content::Removed }
        );
        let Content::Stored { at, len, checksum } = records[1].content else {
            panic!("it is large")
        };
        assert_eq!(bytes[(at - 1000) as usize..][..len as usize], large);
        assert_eq!(checksum, checksum::of(&large));
    }

    #[test]
    fn no_flipped_bit_of_header_or_meta_is_missed() {
        let bytes = encode(&[Change::Put(KEYSPACE, b"k", b"v"), Change::Remove(KEYSPACE, b"l")]);
        let head_len = Header::peek(&bytes, 77).unwrap().head_len() as usize;
        for bit in 0..head_len * 8 {
            let mut flipped = bytes[..head_len].to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Header::peek(&flipped, 77).is_none() || Frame::check(&flipped).is_none(),
                "bit {bit}"
            );
        }
    }
}
