//! Frees disk space: deletes segments without live records, and moves the live records out of segments that have few of
//! them.
//!
//! Moved records are appended to the end of the log like any commit. A moved record is the newest value of its key at
//! that moment, because nobody else writes meanwhile. So the order of the records stays the order of the values. Why a
//! segment can be deleted together with the removals in it: see [`roster`](super::roster).
//!
//! A queue that is emptied from the front needs no moves: its segments lose their last live record by themselves.
//! Otherwise the segment with the largest share of dead bytes is rewritten next. Rewriting begins only when more than
//! half of all sealed bytes are dead. So more than half of that segment is dead, and less is moved than is freed.

use super::engine::Engine;
use super::frame::{Content, Encoder};
use super::reader::{Found, Reader};
use super::roster::{Listed, Roster};
use super::segment::{self, Segment};
use super::state::{State, Tally};
use crate::{Batch, Keyspace, StoreError};
use std::collections::BTreeSet;

/// The progress of rewriting a segment.
#[derive(Default)]
pub(super) struct Tidy {
    victim: Option<Victim>,
    /// Records to be moved, and their numbers.
    batch: Batch,
    ordinals: Vec<u32>,
}

struct Victim {
    number: u32,
    /// Offset of the frame to continue with.
    at: u64,
    /// Number of the record to continue with.
    ordinal: u32,
    /// Whether all live records have been gathered.
    is_done: bool,
}

/// The next kind of work.
enum Work {
    /// Seal the active segment: it has no live records, and is long enough for that to be worthwhile.
    Seal,
    Delete,
    Move,
}

impl Engine {
    /// Returns whether [`tidy`](Self::tidy) has anything to do.
    pub fn is_untidy(&self) -> bool {
        self.work().is_some()
    }

    /// Does one step of work. Returns false if there was nothing to do.
    pub fn tidy(&self, tidy: &mut Tidy) -> Result<bool, StoreError> {
        match self.work() {
            _ if tidy.victim.is_some() => {
                self.gather(tidy)?;
                self.move_gathered(tidy)?;
            }
            Some(Work::Seal) => self.seal_dead()?,
            Some(Work::Delete) => self.delete_dead()?,
            Some(Work::Move) => tidy.victim = self.choose(),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn work(&self) -> Option<Work> {
        let state = self.state.read();
        if state.sealed().any(|(_, tally)| tally.live == 0) {
            return Some(Work::Delete);
        }
        if self.is_dead_weight(state.active().1) {
            return Some(Work::Seal);
        }
        let sums =
            |(live, all), (_, tally): (u32, &Tally)| (live + tally.live_len, all + tally.end);
        let (live, all) = state.sealed().filter(|(_, tally)| !tally.stuck).fold((0, 0), sums);
        (all - live > live.max(self.sizes.garbage)).then_some(Work::Move)
    }

    fn is_dead_weight(&self, active: &Tally) -> bool {
        active.live == 0 && active.end >= self.sizes.segment_min / 2
    }

    fn seal_dead(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if self.is_dead_weight(self.state.read().active().1) {
            self.seal(&mut writer)?;
        }
        Ok(())
    }

    fn delete_dead(&self) -> Result<(), StoreError> {
        let (roster, dead) = {
            let state = self.state.read();
            let dead: Vec<u32> = state
                .sealed()
                .filter(|(_, tally)| tally.live == 0)
                .map(|(number, _)| number)
                .collect();
            (roster_of(&state), dead)
        };
        self.delete(&roster, &dead)
    }

    /// Writes the roster, and deletes segments that are not in it.
    pub fn delete(&self, roster: &Roster, numbers: &[u32]) -> Result<(), StoreError> {
        roster.write(&*self.disk)?;
        for &number in numbers {
            self.state.write().forget(number);
            // If the removal fails, the file is not listed, and is removed at the next start.
            let _ = self.disk.remove(&segment::name(number));
        }
        Ok(())
    }

    /// Chooses the sealed segment with the largest share of dead bytes.
    fn choose(&self) -> Option<Victim> {
        let state = self.state.read();
        let share = |tally: &Tally| tally.live_len as f64 / tally.end as f64;
        let movable = state.sealed().filter(|(_, tally)| !tally.stuck);
        let (number, _) = movable.min_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
        Some(Victim { number, at: segment::HEADER_LEN, ordinal: 0, is_done: false })
    }

    /// Collects the live records of the next part of the victim.
    fn gather(&self, tidy: &mut Tidy) -> Result<(), StoreError> {
        let Some(mut victim) = tidy.victim.take() else { return Ok(()) };
        let (segment, tally) = {
            let state = self.state.read();
            // The segment was deleted meanwhile, or has nothing left to move.
            let Some(tally) = state.tallies().get(&victim.number) else { return Ok(()) };
            if tally.live == 0 {
                return Ok(());
            }
            (state.segments()[&victim.number].clone(), tally.clone())
        };
        tidy.batch.clear();
        tidy.ordinals.clear();
        if let Err(error) = gather(&segment, &tally, &mut victim, self.sizes.step, tidy) {
            // The segment keeps its space on disk. The damage is reported to whoever reads it.
            if let Some(tally) = self.state.write().tally_mut(victim.number) {
                tally.stuck = true;
            }
            return Err(error);
        }
        tidy.victim = Some(victim);
        Ok(())
    }

    /// Appends the gathered records to the end of the log.
    fn move_gathered(&self, tidy: &mut Tidy) -> Result<(), StoreError> {
        let Some(victim) = tidy.victim.take() else { return Ok(()) };
        let mut writer = self.writer();
        writer.encoder.begin();
        self.push_live(victim.number, tidy, &mut writer.encoder);
        if !writer.encoder.is_empty() {
            self.append(&mut writer)?;
        }
        tidy.victim = (!victim.is_done).then_some(victim);
        Ok(())
    }

    /// Pushes the gathered records that are still live.
    fn push_live(&self, number: u32, tidy: &Tidy, encoder: &mut Encoder) {
        let state = self.state.read();
        let Some(tally) = state.tallies().get(&number) else { return };
        for (change, &ordinal) in tidy.batch.iter().zip(&tidy.ordinals) {
            if !tally.dead.contains(ordinal) {
                encoder.push(&change);
            }
        }
    }

    /// Moves all readable records out of damaged segments, removes the keys of the others, and deletes the segments.
    pub fn evacuate(&self, damaged: &BTreeSet<u32>) -> Result<(), StoreError> {
        // The active segment may be one of the damaged ones.
        self.seal(&mut self.writer())?;
        let (keyspaces, segments) = {
            let state = self.state.read();
            (state.keyspaces().to_vec(), state.segments().clone())
        };
        let mut batch = Batch::new();
        let write = |batch: &mut Batch| {
            let mut writer = self.writer();
            writer.encoder.begin();
            batch.iter().for_each(|change| writer.encoder.push(&change));
            batch.clear();
            self.append(&mut writer)
        };
        for (keyspace, index) in (0..).map(Keyspace).zip(&keyspaces) {
            for leaf in index.leaves(b"", None) {
                for entry in (0..leaf.len()).map(|at| leaf.entry(at)) {
                    if !damaged.contains(&entry.place.segment) {
                        continue;
                    }
                    match super::read(&segments, entry.place.segment, &entry.value) {
                        Ok(value) => batch.put(keyspace, entry.key, &value),
                        Err(_) => batch.remove(keyspace, entry.key),
                    }
                    if batch.bytes() as u64 >= self.sizes.step {
                        write(&mut batch)?;
                    }
                }
            }
        }
        if !batch.is_empty() {
            write(&mut batch)?;
        }
        let roster = roster_of(&self.state.read());
        let damaged: Vec<u32> = damaged.iter().copied().collect();
        self.delete(&roster, &damaged)
    }
}

/// Makes a roster of all sealed segments with live records.
fn roster_of(state: &State) -> Roster {
    let counts = state.sealed().filter(|(_, tally)| tally.live > 0);
    let list = |(number, tally): (u32, &Tally)| {
        (number, Listed { end: tally.end, dead: tally.dead.clone() })
    };
    Roster { next: state.active().0, listed: counts.map(list).collect() }
}

/// Collects live records, from the record to continue with, until there are enough for a step.
fn gather(
    segment: &Segment,
    tally: &Tally,
    victim: &mut Victim,
    step: u64,
    tidy: &mut Tidy,
) -> Result<(), StoreError> {
    let mut reader = Reader::new(segment, tally.end);
    reader.seek(victim.at);
    loop {
        let (at, frame) = match reader.next()? {
            Found::Frame(at, frame) => (at, frame),
            Found::End => break,
            Found::Bad(what) => return Err(segment.damaged(victim.at, what)),
        };
        victim.at = at;
        for (record, ordinal) in frame.records(at).zip(frame.header.first_record..) {
            if ordinal < victim.ordinal || tally.dead.contains(ordinal) {
                continue;
            }
            let (keyspace, key) = (record.keyspace, record.key);
            match record.content {
                Content::Removed => continue,
                Content::Held(value) => tidy.batch.put(keyspace, key, value),
                Content::Stored { at, len, checksum } => {
                    tidy.batch.put(keyspace, key, &segment.read_value(at, len, checksum)?);
                }
            }
            tidy.ordinals.push(ordinal);
            victim.ordinal = ordinal + 1;
            if tidy.batch.bytes() as u64 >= step {
                return Ok(());
            }
        }
    }
    victim.is_done = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::new_log;
    use super::*;

    #[test]
    fn what_is_removed_while_it_is_moved_stays_removed() {
        let (_disk, engine) = new_log(1);
        let key = |number: u8| [number];
        for number in 0..30 {
            let mut batch = Batch::new();
            batch.put(Keyspace(0), &key(number), &[number; 400]);
            (number % 3 > 0).then(|| batch.remove(Keyspace(0), &key(number)));
            engine.commit(&batch).unwrap();
        }
        let mut tidy = Tidy::default();
        while tidy.victim.is_none() {
            assert!(engine.tidy(&mut tidy).unwrap());
        }
        engine.gather(&mut tidy).unwrap();
        assert!(!tidy.ordinals.is_empty());
        let mut batch = Batch::new();
        (0..30).for_each(|number| batch.remove(Keyspace(0), &key(number)));
        engine.commit(&batch).unwrap();
        engine.move_gathered(&mut tidy).unwrap();
        assert!((0..30).all(|number| engine.get(Keyspace(0), &key(number)).unwrap().is_none()));
    }
}
