//! What Linux reports about the process.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// What Linux reports about the process at one moment. A value that it does not report is `None`.
#[derive(Debug, Default)]
pub struct Usage {
    /// User and system CPU time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<f64>,
    /// Virtual memory, in bytes.
    pub virtual_bytes: Option<f64>,
    /// Number of open file descriptors.
    pub open_descriptors: Option<u64>,
    /// Maximum number of open file descriptors.
    pub max_descriptors: Option<u64>,
}

impl Usage {
    /// Asks Linux.
    pub fn now() -> Self {
        let [resident_bytes, virtual_bytes] = memory();
        Self {
            cpu_seconds: cpu_seconds(),
            resident_bytes,
            virtual_bytes,
            open_descriptors: open_descriptors(),
            max_descriptors: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Returns the user and system CPU time, in seconds.
pub fn cpu_seconds() -> Option<f64> {
    let ticks = cpu_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the resident memory, in bytes.
pub fn resident_bytes() -> Option<f64> {
    memory()[0]
}

/// Returns the resident and the virtual memory, in bytes.
fn memory() -> [Option<f64>; 2] {
    let statm = fs::read_to_string("/proc/self/statm").ok();
    let pages = |place| statm.as_deref().and_then(|statm| field(statm, place));
    [1, 0].map(|place| pages(place).map(|pages| pages as f64 * rustix::param::page_size() as f64))
}

/// Returns the number in a place of a list.
fn field(list: &str, place: usize) -> Option<u64> {
    list.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Adds fields 14 and 15 of `stat`, counted from behind the command's name, which may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(field(rest, 11)? + field(rest, 12)?)
}

/// Returns the number of open descriptors. Linux reports it as the size of the directory since version 6.2; before, the
/// entries have to be counted.
fn open_descriptors() -> Option<u64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_reports_is_read() {
        assert_eq!(
            cpu_ticks("7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 3 0"),
            Some(300)
        );
        assert_eq!(cpu_ticks("7 (a"), None);
        let usage = Usage::now();
        assert!(usage.open_descriptors.is_some_and(|count| count >= 3));
        assert!(usage.resident_bytes.is_some_and(|bytes| bytes > 100_000.0));
        assert!(usage.virtual_bytes >= usage.resident_bytes);
    }
}
