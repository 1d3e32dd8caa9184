//! Files and directories that only their owner can access, because they hold messages, keys and user names.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permissions of new directories and files.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The permission bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Creates a directory whose parent exists.
///
/// # Errors
/// The errors of the operating system, also if the directory exists already.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Creates a directory and its missing parents.
///
/// # Errors
/// The errors of the operating system.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).recursive(true).create(path)
}

/// Returns options for opening a file that make it private if the call creates it.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// The access that others had to a directory before `tighten`, and whether they still have it.
#[derive(Debug, Default)]
pub enum Exposure {
    /// Only the owner could access it.
    #[default]
    None,
    /// Others could access it, by these permission bits. They cannot any more.
    Ended(u32),
    /// Others can access it, by these permission bits. Changing the bits failed with this error.
    Stays(u32, io::Error),
}

/// Removes the permissions of everybody but the owner from a directory and everything in it.
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
    // Nobody else can reach the content through the directory now. The content is tightened as well, because it could
    // be moved or copied elsewhere.
    tighten_below(directory);
    exposure
}

fn tighten_below(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        // Changing the permissions of a symbolic link would change its target, which may belong to anybody.
        if metadata.is_symlink() {
            continue;
        }
        let _ = take_away(&entry.path(), metadata.mode() & 0o7777);
        if metadata.is_dir() {
            tighten_below(&entry.path());
        }
    }
}

/// Removes the permission bits of others from `path`. Returns whether there were any.
fn take_away(path: &Path, mode: u32) -> io::Result<bool> {
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)).map(|()| true)
}
