//! The operations on files that the log is made of, so that tests can put a disk under it that
//! forgets, tears and fails.
//!
//! What the log relies on: what was written before a [`File::sync`] that succeeded is there after a
//! crash; so is every name that was made, changed or removed before a [`Disk::sync`]. Of the rest any
//! part may be there, in any order. A rename is all or nothing.

use crate::private;
use crate::space::free_bytes;
use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, pread, pwritev, retry_on_intr};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

/// A directory with files.
pub(super) trait Disk: Send + Sync {
    /// Where a file is, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// An empty file, in place of any that has the name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, and takes the name from the file that had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name. Whoever has the file open can go on reading it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free(&self) -> io::Result<u64>;
}

/// An open file.
pub(super) trait File: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads from `at` on, as many bytes as fit or as there are.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `parts`, one behind the other, from `at` on.
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()>;
    /// Makes the file `len` bytes long, with zeros where nothing was written, and has the space for
    /// them set aside if the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Cuts the file.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Makes a file with these bytes, in place of any that has the name. After a crash the file has
/// either all of them, or is what it was before.
pub(super) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn File>> {
    finish(disk, begin(disk, name)?, name, bytes)
}

/// Opens a file that [`finish`] gives a name. After a crash it is a leftover.
pub(super) fn begin(disk: &dyn Disk, name: &str) -> io::Result<Arc<dyn File>> {
    disk.create(&temporary(name))
}

/// Gives an empty file these bytes and its name, as [`replace`] does.
pub(super) fn finish(
    disk: &dyn Disk,
    file: Arc<dyn File>,
    name: &str,
    bytes: &[u8],
) -> io::Result<Arc<dyn File>> {
    let written = file
        .write_at(0, &[bytes])
        .and_then(|()| file.sync())
        .and_then(|()| disk.rename(&temporary(name), name));
    if written.is_err() {
        // Gives its space back, at a time when there may be none.
        abandon(disk, name);
    }
    written?;
    disk.sync()?;
    Ok(file)
}

/// Removes a file that was begun and will not be finished.
pub(super) fn abandon(disk: &dyn Disk, name: &str) {
    // What stays is a leftover, which the next start removes.
    let _ = disk.remove(&temporary(name));
}

fn temporary(name: &str) -> String {
    format!("{name}{TEMPORARY}")
}

/// How the names of files end that were never finished.
pub(super) const TEMPORARY: &str = ".tmp";

/// All of a small file.
pub(super) fn read_all(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// A directory of the operating system.
pub(super) struct Directory {
    path: PathBuf,
    handle: fs::File,
}

impl Directory {
    /// A directory that exists.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Ok(Directory { path: path.to_path_buf(), handle: fs::File::open(path)? })
    }
}

impl Disk for Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = private::options();
        let file =
            options.read(true).write(true).create(true).truncate(true).open(self.path(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        free_bytes(&self.path)
    }
}

struct OsFile(fs::File);

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match retry_on_intr(|| pread(&self.0, &mut buffer[done..], at + done as u64))? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    fn write_at(&self, mut at: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let written = retry_on_intr(|| pwritev(&self.0, rest, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match retry_on_intr(|| fallocate(&self.0, FallocateFlags::empty(), 0, len)) {
            // Then the file grows as it is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| ftruncate(&self.0, len))?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fdatasync(&self.0))?)
    }
}
