//! Reads a log from its files.
//!
//! Nothing is changed until all has been read and found intact: a log that is refused is as it was.

use super::bits::Bits;
use super::commit_mark::CommitMark;
use super::disk::{Disk, TEMPORARY};
use super::engine::{Engine, Sizes};
use super::reader::{Found, Reader, bad_value};
use super::roster::Roster;
use super::segment::{self, Segment};
use super::state::State;
use crate::StoreError;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is done about damage.
pub(super) enum Damage<'a> {
    /// The log is refused.
    Refuse,
    /// It is reported, and the log is read as far as it can be. All values are read as well.
    Report(&'a mut dyn FnMut(StoreError)),
}

impl Damage<'_> {
    fn found(&mut self, error: StoreError) -> Result<(), StoreError> {
        match self {
            Damage::Refuse => return Err(error),
            Damage::Report(report) => report(error),
        }
        Ok(())
    }

    /// The value that there is, or one that stands for what is damaged.
    fn or<T>(&mut self, value: Result<T, StoreError>, or: impl FnOnce() -> T) -> Result<T, StoreError> {
        match value {
            Err(error) => self.found(error).map(|()| or()),
            value => value,
        }
    }

    fn reads_values(&self) -> bool {
        matches!(self, Damage::Report(_))
    }
}

/// What was read.
pub(super) struct Recovered {
    pub state: State,
    /// The number of the last frame.
    pub last_frame: u64,
    /// Segments of which something is missing.
    damaged: BTreeSet<u32>,
    /// Files that nobody needs any more.
    leftovers: Vec<String>,
}

/// Reads the log in a directory.
pub(super) fn read(
    disk: &dyn Disk,
    keyspaces: usize,
    mut damage: Damage<'_>,
) -> Result<Recovered, StoreError> {
    let names =
        disk.list().map_err(|error| StoreError::io("read", &disk.path(""), error))?;
    let acknowledged = damage.or(CommitMark::read(disk), || 0)?;
    let found = segment::numbers(&names);
    let roster = damage.or(Roster::read(disk, &names), Roster::default)?;
    let is_wanted = |&number: &u32| number >= roster.next || roster.listed.contains_key(&number);
    let (wanted, unwanted): (Vec<u32>, Vec<u32>) = found.into_iter().partition(is_wanted);
    let newest = wanted.last().copied().unwrap_or(roster.next).max(roster.next);
    for number in roster.listed.keys().copied().chain(roster.next..=newest) {
        if wanted.binary_search(&number).is_err() {
            damage.found(StoreError::damaged(&disk.path(&segment::name(number)), "it is missing"))?;
        }
    }
    let leftovers = names.iter().filter(|name| name.ends_with(TEMPORARY)).cloned();
    let mut recovered = Recovered {
        state: State::new(keyspaces),
        last_frame: 0,
        damaged: BTreeSet::new(),
        leftovers: leftovers.chain(unwanted.into_iter().map(segment::name)).collect(),
    };
    let mut next = None;
    for (index, &number) in wanted.iter().enumerate() {
        let segment = match next.take() {
            Some(segment) => segment,
            None => match Segment::open(disk, number) {
                Ok(segment) => segment,
                Err(error) => {
                    damage.found(error)?;
                    recovered.leftovers.push(segment::name(number));
                    continue;
                }
            },
        };
        // Where the segment ends is said by the roster or by the next segment, which is opened for it.
        let listed = roster.listed.get(&number);
        let follower = wanted.get(index + 1).copied();
        if let Some(follower) = follower {
            next = damage.or(Segment::open(disk, follower).map(Some), || None)?;
        }
        let said_by_next =
            next.as_ref().filter(|next| next.number == number + 1).map(|next| next.end_before);
        let end = listed.map(|listed| listed.end).or(said_by_next);
        let dead = listed.map(|listed| listed.dead.clone()).unwrap_or_default();
        recovered.replay(Arc::new(segment), dead, end, follower.is_none(), &mut damage)?;
    }
    if recovered.last_frame < acknowledged {
        let what = format!(
            "frames after {} and before {} are missing",
            recovered.last_frame,
            acknowledged + 1
        );
        damage.found(StoreError::damaged(&disk.path(""), &what))?;
        recovered.last_frame = acknowledged;
    }
    Ok(recovered)
}

impl Recovered {
    /// Reads a segment. Where the newest ends is seen; where others end is known, and to be so.
    fn replay(
        &mut self,
        segment: Arc<Segment>,
        dead: Bits,
        end: Option<u64>,
        newest: bool,
        damage: &mut Damage<'_>,
    ) -> Result<(), StoreError> {
        let number = segment.number;
        let file_len =
            segment.file.len().map_err(|error| StoreError::io("read", &segment.path, error))?;
        if end.is_some_and(|end| end > file_len) {
            damage.found(segment.damaged(file_len, "the file ends too early"))?;
            self.damaged.insert(number);
        }
        if segment.first_frame <= self.last_frame {
            damage.found(segment.damaged(0, "its frames are older than those before it"))?;
        }
        self.state.add(segment.clone(), dead);
        let mut expected = segment.first_frame;
        let mut buffer = Vec::new();
        let mut reader = Reader::new(&segment, end.unwrap_or(file_len).min(file_len));
        let bad = |damage: &mut Damage<'_>, damaged: &mut BTreeSet<u32>, at, what| {
            damaged.insert(number);
            damage.found(segment.damaged(at, what))
        };
        loop {
            let found = reader.next()?;
            let (at, what) = match found {
                Found::End => break,
                Found::Frame(at, frame) => {
                    if frame.header.number != expected {
                        bad(damage, &mut self.damaged, at, "a frame has the wrong number")?;
                    }
                    expected = frame.header.number + 1;
                    // Of the newest, the last frame may have come to the disk without its values.
                    let whole = newest || damage.reads_values();
                    let bad_value =
                        if whole { bad_value(&segment, at, &frame, &mut buffer)? } else { None };
                    match bad_value {
                        Some(value_at) if newest => {
                            // Is it the last one?
                            let (at, frame_number) = (at, frame.header.number);
                            let _ = (value_at, frame_number);
                            (at, "the checksum of a value is wrong")
                        }
                        Some(value_at) => {
                            bad(damage, &mut self.damaged, value_at, "the checksum of a value is wrong")?;
                            self.apply(&segment, at, &frame, damage)?;
                            continue;
                        }
                        None => {
                            self.apply(&segment, at, &frame, damage)?;
                            continue;
                        }
                    }
                }
                Found::Bad(what) => (reader.at(), what),
            };
            let more = reader.find_next()?;
            if !more && newest && end.is_none() {
                break;
            }
            bad(damage, &mut self.damaged, at, what)?;
            if !more {
                break;
            }
        }
        Ok(())
    }
}
