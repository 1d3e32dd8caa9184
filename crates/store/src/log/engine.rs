//! The log itself: commits are appended to its end, and reads look into the state.
//!
//! What must hold: at most one frame is not durable, the last one, because the next frame is begun only after it. A
//! frame whose write failed is overwritten by the next one. After a failed sync it is not known which part of the file
//! is on the disk; then nothing more is written to this segment, and the next segment says where it ends. The state
//! changes only when the frame is durable.

use super::bits::Bits;
use super::commit_mark::CommitMark;
use super::disk::{Disk, File};
use super::frame::Encoder;
use super::segment::{HEADER_LEN, Segment, random_mark};
use super::state::State;
use crate::space::FreeSpace;
use crate::{Batch, StoreError};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::{io, sync::Arc};

/// The sizes that control the engine, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// A segment is sealed at this length, or at a sixteenth of all live bytes if that is more. So there are few files,
    /// and a segment that cannot be deleted yet holds back little space.
    pub segment_min: u64,
    /// Maximum length at which a segment is sealed.
    pub segment_max: u64,
    /// Disk space that is reserved at once for a growing segment.
    pub allocation: u64,
    /// Sealed segments are rewritten when they have more dead bytes than live ones, and more dead bytes than this.
    pub garbage: u64,
    /// Bytes that are moved in one step. Commits wait during a step.
    pub step: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            segment_min: 16 << 20,
            segment_max: 256 << 20,
            allocation: 4 << 20,
            garbage: 16 << 20,
            step: 1 << 20,
        }
    }
}

pub(super) struct Engine {
    pub disk: Arc<dyn Disk>,
    pub sizes: Sizes,
    pub state: RwLock<State>,
    writer: Mutex<Writer>,
}

/// The end of the log.
pub(super) struct Writer {
    segment: Arc<Segment>,
    /// Offset and number of the next frame.
    end: u64,
    next_frame: u64,
    /// Offset up to which disk space is reserved.
    allocated: u64,
    /// Whether the next frame must go to another segment.
    spent: bool,
    /// The file of the next segment, if it could be opened. It is opened in advance because at the time of need there
    /// may be no descriptor for it, for example while the process is at its limit of open files.
    begun: Option<Arc<dyn File>>,
    pub encoder: Encoder,
    mark: CommitMark,
    space: FreeSpace,
}

impl Engine {
    /// Creates an engine that appends after everything in `state`.
    pub fn new(
        disk: Arc<dyn Disk>,
        sizes: Sizes,
        reserve: u64,
        state: State,
        next_frame: u64,
        mark: CommitMark,
    ) -> Engine {
        let (number, tally) = state.active();
        let writer = Writer {
            segment: state.segments()[&number].clone(),
            end: tally.end,
            next_frame,
            allocated: tally.end,
            spent: false,
            begun: Segment::begin(&*disk, number.saturating_add(1)).ok(),
            encoder: Encoder::default(),
            mark,
            space: FreeSpace::new(reserve),
        };
        Engine { disk, sizes, state: RwLock::new(state), writer: Mutex::new(writer) }
    }

    pub fn room(&self) -> Result<(), StoreError> {
        self.writer.lock().space.ask(0, || self.free())
    }

    fn free(&self) -> Result<u64, StoreError> {
        let fail = |error| StoreError::io("ask for the free space of", &self.disk.path(""), error);
        self.disk.free().map_err(fail)
    }

    pub fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if batch.needs_room() {
            writer.space.ask(batch.bytes(), || self.free())?;
        }
        writer.encoder.begin();
        for change in batch.iter() {
            writer.encoder.push(&change);
        }
        self.append(&mut writer)
    }

    /// Locks the writer, to append something other than a batch: fill the encoder, then call [`append`](Self::append).
    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// Makes the frame in the encoder durable, and applies it to the state.
    pub fn append(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.spent || writer.end >= self.segment_len() {
            self.seal(writer)?;
        }
        let (number, at) = (writer.segment.number, writer.end);
        let first_record = self.state.read().active().1.records;
        writer.write(first_record, self.sizes.allocation)?;
        let mut state = self.state.write();
        let known = state.apply(number, at, &writer.encoder.frame());
        debug_assert!(known, "what is written can be read");
        drop(state);
        self.begin_next(writer);
        Ok(())
    }

    /// Seals the active segment, and begins the next one.
    pub fn seal(&self, writer: &mut Writer) -> Result<(), StoreError> {
        // If this fails, the next segment may exist all the same. Then nothing may be appended to this one.
        writer.spent = true;
        let number = writer.segment.number.checked_add(1).expect("2^32 segments are never written");
        let (mark, first_frame) = (random_mark(), writer.next_frame);
        let begun = writer.begun.take();
        let next = Segment::create(&*self.disk, begun, number, mark, first_frame, writer.end)?;
        // This only frees the reserved space: the next segment says where this one ends.
        let _ = writer.segment.file.truncate(writer.end);
        writer.segment = Arc::new(next);
        writer.end = HEADER_LEN;
        writer.allocated = writer.end;
        writer.spent = false;
        self.state.write().add(writer.segment.clone(), Bits::default());
        self.begin_next(writer);
        Ok(())
    }

    /// Opens the file of the next segment in advance, unless it is open.
    fn begin_next(&self, writer: &mut Writer) {
        if writer.begun.is_none() {
            let next = writer.segment.number.saturating_add(1);
            writer.begun = Segment::begin(&*self.disk, next).ok();
        }
    }

    /// Returns the length at which a segment is sealed.
    fn segment_len(&self) -> u64 {
        let Sizes { segment_min, segment_max, .. } = self.sizes;
        (self.state.read().live_len() / 16).clamp(segment_min, segment_max)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let writer = self.writer.get_mut();
        if writer.begun.take().is_some() {
            Segment::abandon(&*self.disk, writer.segment.number.saturating_add(1));
        }
    }
}

impl Writer {
    fn write(&mut self, first_record: u32, allocation: u64) -> Result<(), StoreError> {
        if !self.encoder.fits(self.end) {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "the batch has 4 GiB or more");
            return Err(StoreError::io("write to", &self.segment.path, error));
        }
        let end = self.end + self.encoder.len();
        if let Err(error) = self.try_write(end, first_record, allocation) {
            // The next frame overwrites this one. Truncating only frees its space.
            let _ = self.segment.file.truncate(self.end);
            self.allocated = self.end;
            return Err(StoreError::io("write to", &self.segment.path, error));
        }
        if let Err(error) = self.segment.file.sync() {
            // It is not known what is on the disk now, and another sync would not tell.
            self.spent = true;
            return Err(StoreError::io("sync", &self.segment.path, error));
        }
        // The frame is durable already. Without the mark, only a later loss would go unnoticed, until the next commit
        // writes it.
        let _ = self.mark.write(self.next_frame);
        self.end = end;
        self.next_frame += 1;
        Ok(())
    }

    fn try_write(&mut self, end: u64, first_record: u32, allocation: u64) -> io::Result<()> {
        let file = &self.segment.file;
        if end > self.allocated {
            let len = end.next_multiple_of(allocation);
            file.allocate(len)?;
            self.allocated = len;
        }
        let frame = self.encoder.finish(self.segment.mark, self.next_frame, first_record);
        file.write_at(self.end, &frame)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.segment.file.truncate(self.end);
        // The mark is in the page cache already, which is enough if only the process ends.
        let _ = self.mark.sync();
    }
}
