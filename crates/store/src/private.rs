//! Files and directories that only their owner can reach: they hold messages, keys and names of users.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permissions of directories and files that are made.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Makes a directory whose parent exists.
///
/// # Errors
/// Those of the operating system, also if it exists.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Makes a directory and those above it, as far as they do not exist.
///
/// # Errors
/// Those of the operating system.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).recursive(true).create(path)
}

/// Options for opening a file, which is private if it is made.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Who could reach a directory before `tighten`, and whether they still can.
#[derive(Debug, Default)]
pub enum Exposure {
    /// Only the owner.
    #[default]
    None,
    /// Others as well, by these permission bits; not any more.
    Ended(u32),
    /// Others as well, by these permission bits, which cannot be changed for this reason.
    Stays(u32, io::Error),
}

/// Takes a directory, and all that is in it, away from everybody but its owner.
pub(crate) fn tighten(directory: &Path) -> Exposure {
    let mode = match fs::metadata(directory) {
        Ok(metadata) => metadata.mode() & 0o7777,
        Err(error) => return Exposure::Stays(0, error),
    };
    let exposure = match take_away(directory, mode) {
        Ok(false) => Exposure::None,
        Ok(true) => Exposure::Ended(mode),
        Err(error) => return Exposure::Stays(mode, error),
    };
    // Nobody else comes through the directory now. What is in it could still be moved or copied elsewhere.
    tighten_below(directory);
    exposure
}

fn tighten_below(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        // Of a symbolic link the target would be changed, which may be anybody's.
        if metadata.is_symlink() {
            continue;
        }
        let _ = take_away(&entry.path(), metadata.mode() & 0o7777);
        if metadata.is_dir() {
            tighten_below(&entry.path());
        }
    }
}

/// Whether there was anything to take away.
fn take_away(path: &Path, mode: u32) -> io::Result<bool> {
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)).map(|()| true)
}
