//! Reads the frames of a segment one after the other, mostly without their values.

use super::frame::{Content, Frame, HEADER_LEN, Header, Record, next_start};
use super::segment::{self, Segment};
use crate::{LostRecord, StoreError, checksum};
use std::ops::Range;

/// Bytes that are read at once: more than header and meta of most frames. A frame with many values is longer, but its
/// values are skipped.
const READ_LEN: usize = 64 << 10;

/// Maximum number of bytes of a damaged frame that are searched for records. Enough for frames with many records.
const LOOKED_AT_MAX: u64 = 64 << 20;

pub(super) struct Reader<'a> {
    segment: &'a Segment,
    /// Offset where the next frame begins.
    at: u64,
    /// Offset where the last frame ends, or the length of the file if that is not known.
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

/// The result of reading where a frame is expected.
pub(super) enum Found<'a> {
    /// A frame, and the offset where it begins.
    Frame(u64, Frame<'a>),
    /// The end of the segment.
    End,
    /// Something else, with a description.
    Bad(&'static str),
}

impl<'a> Reader<'a> {
    pub fn new(segment: &'a Segment, end: u64) -> Reader<'a> {
        let at = segment::HEADER_LEN;
        Reader { segment, at, end, buffer: Vec::new(), buffer_at: 0 }
    }

    /// Continues at an offset where a frame begins.
    pub fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// The offset where the next frame begins.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next frame, and moves behind it. Does not move if there is none.
    pub fn next(&mut self) -> Result<Found<'_>, StoreError> {
        let (at, end) = (self.at, self.end);
        if at == end {
            return Ok(Found::End);
        }
        let Some(header) = self.peek(at)? else {
            return Ok(Found::Bad("no frame begins"));
        };
        let Some(len) = header.len().filter(|&len| len <= end.saturating_sub(at)) else {
            return Ok(Found::Bad("a frame does not end"));
        };
        self.at = at + len;
        let head_len =
            usize::try_from(header.head_len()).expect("less than 2^32 bytes and a header");
        let head = {
            self.fill(at, head_len)?;
            let start = (at - self.buffer_at) as usize;
            self.buffer.get(start..start + head_len)
        };
        match head.and_then(Frame::check) {
            Some(frame) => Ok(Found::Frame(at, frame)),
            None => {
                self.at = at;
                Ok(Found::Bad("the checksum of a frame is wrong"))
            }
        }
    }

    /// Searches for the first intact frame at or after `from`, and moves to it. Returns false and does not move if
    /// there is none.
    pub fn find(&mut self, from: u64) -> Result<bool, StoreError> {
        let before = self.at;
        let mut at = next_start(from);
        while at + HEADER_LEN as u64 <= self.end {
            if self.peek(at)?.is_some() {
                self.at = at;
                let found = matches!(self.next()?, Found::Frame(..));
                self.at = at;
                if found {
                    return Ok(true);
                }
            }
            at = next_start(at + 1);
        }
        self.at = before;
        Ok(false)
    }

    /// Returns the number of the next frame, if the reader is at the beginning of one.
    pub fn peek_number(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(self.peek(self.at)?.map(|header| header.number))
    }

    fn peek(&mut self, at: u64) -> Result<Option<Header>, StoreError> {
        let mark = self.segment.mark;
        Ok(Header::peek(self.fill(at, HEADER_LEN)?, mark))
    }

    /// Returns `len` bytes from offset `at`, or fewer if the segment ends before.
    fn fill(&mut self, at: u64, len: usize) -> Result<&[u8], StoreError> {
        let buffer_end = self.buffer_at + self.buffer.len() as u64;
        if at < self.buffer_at || at + len as u64 > buffer_end {
            let there_are = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
            self.buffer.resize(len.max(READ_LEN).min(there_are), 0);
            self.buffer_at = at;
            let read = self.segment.file.read_at(at, &mut self.buffer);
            let read = read.map_err(|error| StoreError::io("read", &self.segment.path, error))?;
            self.buffer.truncate(read);
        }
        let start = (at - self.buffer_at) as usize;
        Ok(&self.buffer[start..self.buffer.len().min(start + len)])
    }
}

/// Returns the values of a frame that are not as they were written: their byte ranges and records.
pub(super) fn bad_values(
    segment: &Segment,
    at: u64,
    frame: &Frame<'_>,
    buffer: &mut Vec<u8>,
) -> Result<Vec<(Range<u64>, LostRecord)>, StoreError> {
    let mut bad = Vec::new();
    for record in frame.records(at) {
        let Content::Stored { at, len, checksum } = record.content else { continue };
        buffer.resize(len as usize, 0);
        let read = segment.file.read_at(at, buffer);
        let read = read.map_err(|error| StoreError::io("read", &segment.path, error))?;
        if read < buffer.len() || checksum::of(buffer) != checksum {
            bad.push((at..at + u64::from(len), lost(&record)));
        }
    }
    Ok(bad)
}

/// Returns the records of the damaged frame in these bytes, as far as they can be read. Records may be missing or
/// wrong, because no checksum covers them.
pub(super) fn lost_records(
    segment: &Segment,
    bytes: Range<u64>,
) -> Result<Vec<LostRecord>, StoreError> {
    let len = bytes.end.saturating_sub(bytes.start).min(LOOKED_AT_MAX);
    let mut head = vec![0; len as usize];
    let read = segment.file.read_at(bytes.start, &mut head);
    let read = read.map_err(|error| StoreError::io("read", &segment.path, error))?;
    head.truncate(read);
    Ok(Frame::unchecked(&head).map_or(Vec::new(), |frame| {
        frame.records(bytes.start).map(|record| lost(&record)).collect()
    }))
}

fn lost(record: &Record<'_>) -> LostRecord {
    let value_len = match record.content {
        Content::Removed => None,
        Content::Held(value) => Some(value.len() as u32),
        Content::Stored { len, .. } => Some(len),
    };
    LostRecord { keyspace: record.keyspace, key: record.key.to_vec(), value_len }
}
