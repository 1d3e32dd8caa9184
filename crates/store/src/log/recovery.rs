//! Recovery: reads a log from its files.
//!
//! Nothing is changed before everything has been read and found intact, so a log that is refused stays as it was.

use super::bits::Bits;
use super::commit_mark::{self, CommitMark};
use super::disk::{Disk, TEMPORARY};
use super::engine::{Engine, Sizes};
use super::reader::{Found, Reader, bad_values, lost_records};
use super::roster::{self, Roster};
use super::segment::{self, Segment, random_mark};
use super::state::State;
use crate::{Damaged, StoreError};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Finding for a lost value in a frame that is otherwise intact.
const BAD_VALUE: &str = "the checksum of a value is wrong";

/// The treatment of damage during recovery: the log is refused, or the damage is reported.
pub(super) struct Damage<'a> {
    /// Callback that is told of damage. Without a callback, a damaged log is refused. With one, the log is read as far
    /// as possible, including all values.
    report: Option<&'a mut dyn FnMut(Damaged)>,
    count: usize,
}

impl<'a> Damage<'a> {
    pub fn refuse() -> Damage<'a> {
        Damage { report: None, count: 0 }
    }

    pub fn report(report: &'a mut dyn FnMut(Damaged)) -> Damage<'a> {
        Damage { report: Some(report), count: 0 }
    }

    fn found(&mut self, damaged: Damaged) -> Result<(), StoreError> {
        let Some(report) = &mut self.report else { return Err(damaged.error) };
        self.count += 1;
        report(damaged);
        Ok(())
    }

    /// Returns `value`. If it is damage in the file at `path`, reports the damage and returns a replacement made by
    /// `or`.
    fn or<T>(
        &mut self,
        path: PathBuf,
        value: Result<T, StoreError>,
        or: fn() -> T,
    ) -> Result<T, StoreError> {
        match value {
            Err(error @ StoreError::Corrupt(_)) => {
                self.found(Damaged::of_file(error, path)).map(|()| or())
            }
            value => value,
        }
    }

    fn reads_values(&self) -> bool {
        self.report.is_some()
    }
}

/// The result of reading a log.
pub(super) struct Recovered {
    pub state: State,
    /// The number of the last frame.
    pub last_frame: u64,
    /// Segments with damage.
    damaged: BTreeSet<u32>,
    /// Whether damage was found and accepted.
    is_damaged: bool,
    reads_values: bool,
    /// The number of the segment to create if there is none to continue with.
    next_number: u32,
    /// Files that are no longer needed.
    leftovers: Vec<String>,
}

/// Reads the log in a directory.
pub(super) fn read(
    disk: &dyn Disk,
    keyspaces: usize,
    damage: &mut Damage<'_>,
) -> Result<Recovered, StoreError> {
    let names = disk.list().map_err(|error| StoreError::io("read", &disk.path(""), error))?;
    let acknowledged = damage.or(disk.path(commit_mark::NAME), CommitMark::read(disk), || 0)?;
    let roster = Roster::read(disk, &names);
    let roster = damage.or(disk.path(roster::NAME), roster, Roster::default)?;
    let is_wanted = |&number: &u32| number >= roster.next || roster.listed.contains_key(&number);
    let (wanted, unwanted): (Vec<u32>, Vec<u32>) =
        segment::numbers(&names).into_iter().partition(is_wanted);
    let newest = wanted.last().copied().unwrap_or(0).max(roster.next);
    for number in roster.listed.keys().copied().chain(roster.next..=newest) {
        if wanted.binary_search(&number).is_err() {
            let path = disk.path(&segment::name(number));
            let error = StoreError::damaged(&path, "it is missing");
            damage.found(Damaged::of_file(error, path))?;
        }
    }
    let mut segments = Vec::new();
    for number in wanted {
        let path = disk.path(&segment::name(number));
        let opened = Segment::open(disk, number).map(Some);
        segments.extend(damage.or(path, opened, || None)?.map(Arc::new));
    }
    let unfinished = names.iter().filter(|name| name.ends_with(TEMPORARY)).cloned();
    let mut recovered = Recovered {
        state: State::new(keyspaces),
        last_frame: 0,
        damaged: BTreeSet::new(),
        is_damaged: false,
        reads_values: damage.reads_values(),
        next_number: newest,
        leftovers: unwanted.into_iter().map(segment::name).chain(unfinished).collect(),
    };
    for (index, segment) in segments.iter().enumerate() {
        let listed = roster.listed.get(&segment.number);
        let next = segments.get(index + 1).filter(|next| next.number == segment.number + 1);
        let end = listed.map(|listed| listed.end).or(next.map(|next| next.end_before));
        let dead = listed.map(|listed| listed.dead.clone()).unwrap_or_default();
        recovered.replay(segment, dead, end, acknowledged, damage)?;
    }
    if recovered.last_frame < acknowledged {
        let (last, next) = (recovered.last_frame, acknowledged + 1);
        let what = format!("what was committed after frame {last} and before {next} is missing");
        damage.found(Damaged::unknown(StoreError::damaged(&disk.path(""), &what)))?;
        recovered.last_frame = acknowledged;
    }
    recovered.is_damaged = damage.count > 0;
    Ok(recovered)
}

impl Recovered {
    /// Reads a segment. Its end is known, unless it is the newest.
    fn replay(
        &mut self,
        segment: &Arc<Segment>,
        dead: Bits,
        end: Option<u64>,
        acknowledged: u64,
        damage: &mut Damage<'_>,
    ) -> Result<(), StoreError> {
        let file_len =
            segment.file.len().map_err(|error| StoreError::io("read", &segment.path, error))?;
        let read_to = end.unwrap_or(file_len).min(file_len);
        let mut found_bad = |this: &mut Recovered, bytes: Range<u64>, what: &str, records| {
            this.damaged.insert(segment.number);
            let error = segment.damaged(bytes.start, what);
            // A lost value is fully described by its record, which is intact. In a damaged frame nothing is certain.
            let is_all = what == BAD_VALUE;
            let file = Some(segment.path.clone());
            damage.found(Damaged { error, file, bytes, records, is_all })
        };
        let nothing = Vec::new;
        if let Some(end) = end.filter(|end| *end > file_len) {
            found_bad(self, file_len..end, "the file ends too early", nothing())?;
        }
        if segment.first_frame <= self.last_frame {
            found_bad(self, 0..0, "its frames are older than those before it", nothing())?;
        }
        // The frames before it may have been deleted with their segments.
        self.last_frame = self.last_frame.max(segment.first_frame.saturating_sub(1));
        self.state.add(segment.clone(), dead);
        let mut reader = Reader::new(segment, read_to);
        let mut expected = segment.first_frame;
        let mut buffer = Vec::new();
        // In the newest segment, the last frame may be incomplete on disk if it was not acknowledged.
        let never_finished = |expected: u64, behind: u64| {
            let may_be = end.is_none() && expected > acknowledged;
            Ok::<bool, StoreError>(may_be && !Reader::new(segment, read_to).find(behind)?)
        };
        loop {
            match reader.next()? {
                Found::End => return Ok(()),
                Found::Frame(at, frame) => {
                    let len = frame.header.len().unwrap_or(0);
                    if frame.header.number != expected {
                        found_bad(self, at..at, "a frame has the wrong number", nothing())?;
                    }
                    let read_values = end.is_none() || self.reads_values;
                    let bad_values = match read_values {
                        true => bad_values(segment, at, &frame, &mut buffer)?,
                        false => Vec::new(),
                    };
                    for (bytes, record) in bad_values {
                        if never_finished(frame.header.number, at + 1)? {
                            return Ok(());
                        }
                        found_bad(self, bytes, BAD_VALUE, vec![record])?;
                    }
                    if !self.state.apply(segment.number, at, &frame) {
                        let what = "a frame has records that are not known";
                        found_bad(self, at..at + len, what, nothing())?;
                    }
                    self.last_frame = self.last_frame.max(frame.header.number);
                    expected = frame.header.number + 1;
                }
                Found::Bad(what) => {
                    let at = reader.at();
                    if never_finished(expected, at + 1)? {
                        return Ok(());
                    }
                    let goes_on = reader.find(at + 1)?;
                    let next = if goes_on { reader.at() } else { read_to };
                    found_bad(self, at..next, what, lost_records(segment, at..next)?)?;
                    if !goes_on {
                        return Ok(());
                    }
                    // The gap has been reported already.
                    expected = reader.peek_number()?.unwrap_or(expected);
                }
            }
        }
    }

    /// Prepares the directory for writing, and creates the engine.
    pub fn start(
        mut self,
        disk: Arc<dyn Disk>,
        sizes: Sizes,
        reserve: u64,
    ) -> Result<Engine, StoreError> {
        for name in &self.leftovers {
            disk.remove(name).map_err(|error| StoreError::io("remove", &disk.path(name), error))?;
        }
        if self.state.tallies().is_empty() {
            let number = self.next_number;
            let (mark, first_frame) = (random_mark(), self.last_frame + 1);
            let segment = Segment::create(&*disk, None, number, mark, first_frame, 0)?;
            self.state.add(Arc::new(segment), Bits::default());
        }
        let (number, tally) = self.state.active();
        let segment = &self.state.segments()[&number];
        segment
            .file
            .truncate(tally.end)
            .and_then(|()| segment.file.sync())
            .map_err(|error| StoreError::io("cut", &segment.path, error))?;
        let mark = match self.is_damaged {
            true => CommitMark::create(&*disk, self.last_frame)?,
            false => CommitMark::open(&*disk)?,
        };
        let engine = Engine::new(disk, sizes, reserve, self.state, self.last_frame + 1, mark);
        if self.is_damaged {
            // The rewrite keeps an accepted loss from being found again.
            engine.evacuate(&self.damaged)?;
        }
        Ok(engine)
    }
}
