//! The file operations that the log is built on. Tests replace them by a disk that forgets, tears and fails.
//!
//! What the log relies on: content that was written before a successful [`File::sync`] is there after a crash, and so
//! is every name that was created, changed or removed before a [`Disk::sync`]. Of everything else any part may be
//! there, in any order. A rename is atomic.

use crate::private;
use crate::space::free_bytes;
use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, pread, pwritev, retry_on_intr};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

/// A directory with files.
pub(super) trait Disk: Send + Sync {
    /// Returns the path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Lists the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Creates an empty file, and replaces any existing one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file, and replaces any existing file named `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name. Open handles of the file can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all changes of names durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns the number of bytes that can still be written.
    fn free(&self) -> io::Result<u64>;
}

/// An open file.
pub(super) trait File: Send + Sync {
    /// Returns the length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads from offset `at` until the buffer is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `parts`, one after the other, from offset `at`.
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()>;
    /// Makes the file `len` bytes long, with zeros where nothing was written. Reserves the disk space if the file
    /// system supports it.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Truncates the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Writes a file with these bytes, and replaces any existing one. After a crash the file has either all of the bytes or
/// its previous content.
pub(super) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn File>> {
    finish(disk, begin(disk, name)?, name, bytes)
}

/// Creates a file under a temporary name; [`finish`] gives it its name. After a crash it is a leftover.
pub(super) fn begin(disk: &dyn Disk, name: &str) -> io::Result<Arc<dyn File>> {
    disk.create(&temporary(name))
}

/// Writes these bytes to an empty file and gives it its name, as [`replace`] does.
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
        // Frees the disk space of the file, at a time when the disk may be full.
        abandon(disk, name);
    }
    written?;
    disk.sync()?;
    Ok(file)
}

/// Removes a file that was begun and will not be finished.
pub(super) fn abandon(disk: &dyn Disk, name: &str) {
    // If the removal fails, the file is a leftover, which the next start removes.
    let _ = disk.remove(&temporary(name));
}

fn temporary(name: &str) -> String {
    format!("{name}{TEMPORARY}")
}

/// Suffix of the names of unfinished files.
pub(super) const TEMPORARY: &str = ".tmp";

/// Reads all of a small file.
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
    /// Opens an existing directory.
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
            // Without `fallocate` the file grows as it is written.
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
