//! The state of the log: the keys with their values, and how much of each segment is live.

use super::bits::Bits;
use super::frame::{Content, Frame, disk_len};
use super::index::Index;
use super::leaf::{Entry, Gone, Place, Value};
use super::segment::{self, Segment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The open segments, shared with readers of their values.
pub(super) type Segments = BTreeMap<u32, Arc<Segment>>;

pub(super) struct State {
    keyspaces: Vec<Index>,
    segments: Arc<Segments>,
    tallies: BTreeMap<u32, Tally>,
}

/// Counts the live and dead records of a segment.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Offset where the last frame ends.
    pub end: u64,
    /// Number of records in the segment.
    pub records: u32,
    /// Number of records that are the current value of their key, and the bytes of these records.
    pub live: u32,
    pub live_len: u64,
    /// The records that were the value of their key and no longer are.
    pub dead: Bits,
    /// Whether the segment cannot be rewritten, because it is damaged.
    pub stuck: bool,
}

impl State {
    pub fn new(keyspaces: usize) -> State {
        State {
            keyspaces: (0..keyspaces).map(|_| Index::new()).collect(),
            segments: Arc::default(),
            tallies: BTreeMap::new(),
        }
    }

    /// Adds a segment, some of whose records may be known to be dead.
    pub fn add(&mut self, segment: Arc<Segment>, dead: Bits) {
        let end = segment::HEADER_LEN;
        let tally = Tally { end, records: 0, live: 0, live_len: 0, dead, stuck: false };
        self.tallies.insert(segment.number, tally);
        Arc::make_mut(&mut self.segments).insert(segment.number, segment);
    }

    /// Removes a segment that has no live records.
    pub fn forget(&mut self, number: u32) {
        let tally = self.tallies.remove(&number);
        debug_assert!(tally.is_none_or(|tally| tally.live == 0));
        Arc::make_mut(&mut self.segments).remove(&number);
    }

    /// Applies a frame that begins at `at` in a segment. Returns false if the decoded records are
    /// not as many as the header says, as in a frame of another version; then only the decoded
    /// records are applied.
    pub fn apply(&mut self, number: u32, at: u64, frame: &Frame<'_>) -> bool {
        let mut records = 0;
        for record in frame.records(at) {
            let ordinal = frame.header.first_record.wrapping_add(records);
            records += 1;
            let keyspace = usize::from(record.keyspace.0);
            while self.keyspaces.len() <= keyspace {
                self.keyspaces.push(Index::new());
            }
            let index = &mut self.keyspaces[keyspace];
            let tally = self.tallies.get_mut(&number).expect("added before its frames");
            let (value, len) = match record.content {
                Content::Held(value) => (Some(Value::Held(value)), value.len()),
                Content::Stored { at, len, checksum } => {
                    let at = u32::try_from(at).ok();
                    (at.map(|at| Value::Stored { at, len, checksum }), len as usize)
                }
                Content::Removed => (None, 0),
            };
            let gone = match value {
                Some(value) if !tally.dead.contains(ordinal) => {
                    tally.live += 1;
                    tally.live_len += disk_len(record.key, len);
                    let place = Place { segment: number, ordinal };
                    index.insert(&Entry { key: record.key, place, value })
                }
                _ => index.remove(record.key),
            };
            if let Some(gone) = gone {
                self.bury(gone);
            }
        }
        let tally = self.tallies.get_mut(&number).expect("added before its frames");
        tally.records = frame.header.first_record.saturating_add(records);
        tally.end = at.saturating_add(frame.header.len().unwrap_or(0));
        records == frame.header.records
    }

    fn bury(&mut self, gone: Gone) {
        let tally = self.tallies.get_mut(&gone.place.segment);
        let tally = tally.expect("a segment with live records is not forgotten");
        tally.dead.insert(gone.place.ordinal);
        tally.live -= 1;
        tally.live_len -= gone.disk_len;
    }

    /// The keys of a keyspace; none if nothing was ever written to it.
    pub fn keyspace(&self, keyspace: crate::Keyspace) -> &Index {
        &self.keyspaces[usize::from(keyspace.0)]
    }

    /// The keys of all keyspaces.
    pub fn keyspaces(&self) -> &[Index] {
        &self.keyspaces
    }

    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    pub fn tallies(&self) -> &BTreeMap<u32, Tally> {
        &self.tallies
    }

    pub fn tally_mut(&mut self, number: u32) -> Option<&mut Tally> {
        self.tallies.get_mut(&number)
    }

    /// The segment that frames are appended to, and its tally.
    pub fn active(&self) -> (u32, &Tally) {
        let (&number, tally) = self.tallies.last_key_value().expect("there is always one");
        (number, tally)
    }

    /// All segments but the active one.
    pub fn sealed(&self) -> impl Iterator<Item = (u32, &Tally)> {
        let active = self.active().0;
        self.tallies.range(..active).map(|(&number, tally)| (number, tally))
    }

    /// Bytes of all live records: values with their keys.
    pub fn live_len(&self) -> u64 {
        self.tallies.values().map(|tally| tally.live_len).sum()
    }
}
