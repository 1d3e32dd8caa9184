//! Finds the process that holds a lock, as far as the operating system reveals it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of characters of a command line that are reported.
const COMMAND_MAX: usize = 80;

/// A process that holds a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub process: u32,
    /// The command line of the process; empty if it cannot be read.
    pub command: String,
}

/// Returns the process that holds an exclusive or shared `flock` on an open file, or `None` if no visible process does.
pub(super) fn of(file: &File) -> Option<Holder> {
    let metadata = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let took = took_it(&locks, &metadata)
        .filter(|process| has_open(*process, &metadata) || is_another_users(*process));
    // The process that took the lock may have ended and left the lock to a child, or `/proc/locks` may have another
    // device number for the file.
    let process = took.or_else(|| processes().find(|process| has_open(*process, &metadata)))?;
    Some(Holder { process, command: command(process) })
}

/// Returns the process that took a `flock`, from the lines of `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 4711 08:02:123456 0 EOF`.
fn took_it(locks: &str, file: &Metadata) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let process = words.nth(2)?;
        let (_, inode) = words.next()?.rsplit_once(':')?;
        (inode.parse() == Ok(file.ino())).then(|| process.parse().ok())?
    })
}

/// All visible processes but this one.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|process| *process != std::process::id())
}

fn has_open(process: u32, file: &Metadata) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| fs::metadata(descriptor.path()).ok())
        .any(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
}

fn is_another_users(process: u32) -> bool {
    fs::read_dir(format!("/proc/{process}/fd"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn command(process: u32) -> String {
    let directory = Path::new("/proc").join(process.to_string());
    let arguments = fs::read(directory.join("cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    match text.char_indices().nth(COMMAND_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_a_lock_is_found_by_the_inode() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let inode = metadata.ino();
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 1 08:02:{inode} 0 EOF\n\
             2: FLOCK  ADVISORY  WRITE 2 08:02:{} 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE 4711 08:02:{inode} 0 EOF\n\
             3: -> FLOCK  ADVISORY  WRITE 3 08:02:{inode} 0 EOF\n\
             nonsense\n",
            inode + 1
        );
        assert_eq!(took_it(&locks, &metadata), Some(4711));
        assert_eq!(took_it("", &metadata), None);
    }

    #[test]
    fn a_lock_of_this_process_is_found() {
        let (directory, other) = (tempfile::tempdir().unwrap(), std::process::id());
        let path = directory.path().join("lock");
        let held = File::create(&path).unwrap();
        held.lock().unwrap();
        let holder = of(&File::open(&path).unwrap()).unwrap();
        assert_eq!(holder.process, other);
        assert!(!holder.command.is_empty());
    }
}
