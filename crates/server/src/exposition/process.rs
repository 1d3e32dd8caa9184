//! Metrics of the process: what Linux reports about it, under the names that Prometheus' own clients use.

use std::fmt::Write as _;
use std::fs;

use rustix::process::{Resource, getrlimit};

use super::header;
use crate::shared::Shared;

/// Appends the metrics. A value that the system does not report is left out.
pub fn process(text: &mut String, shared: &Shared) {
    let name = "barid_build_info";
    header(text, name, "gauge", "The version that runs; the value is always 1.");
    let _ = writeln!(text, "{name}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    let name = "barid_certificate_expires_timestamp_seconds";
    header(
        text,
        name,
        "gauge",
        "When the certificate of the TLS listeners expires, in seconds since 1970.",
    );
    if let Some(expires) = shared.certificate_expires() {
        let _ = writeln!(text, "{name} {}", expires.as_millis() / 1_000);
    }
    let clock = shared.engine.clock;
    let start = clock.wall().before(clock.uptime()).as_millis() as f64 / 1_000.0;
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let statm = fs::read_to_string("/proc/self/statm").ok();
    let pages = |place| statm.as_deref().and_then(|statm| field(statm, place));
    let bytes = |place| pages(place).map(|pages| pages as f64 * rustix::param::page_size() as f64);
    let all: [(&str, &str, &str, Option<f64>); 6] = [
        (
            "process_cpu_seconds_total",
            "counter",
            "User and system CPU time of the process.",
            stat.as_deref()
                .and_then(cpu_ticks)
                .map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
        ),
        ("process_resident_memory_bytes", "gauge", "Resident memory of the process.", bytes(1)),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", bytes(0)),
        (
            "process_open_fds",
            "gauge",
            "Open file descriptors of the process.",
            open_descriptors().map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970.",
            Some(start),
        ),
    ];
    for (name, kind, help, value) in all {
        header(text, name, kind, help);
        if let Some(value) = value {
            let _ = writeln!(text, "{name} {value}");
        }
    }
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
        assert!(open_descriptors().is_some_and(|count| count >= 3));
    }
}
