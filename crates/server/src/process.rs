//! What Linux reports about the process and its host.

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

/// What Linux reports about the host at one moment, or about the container where that has a network of its own.
#[derive(Debug, Default)]
pub struct Host {
    /// CPU time of all processors that was used, and that was not, in seconds.
    pub cpu_seconds: Option<[f64; 2]>,
    /// Memory, and how much of it programs could still use, in bytes.
    pub memory_bytes: Option<[u64; 2]>,
    /// Bytes received and sent over IP, also over loopback.
    pub network_bytes: Option<[u64; 2]>,
}

impl Host {
    /// Asks Linux.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            cpu_seconds: read("/proc/stat").and_then(|stat| host_cpu(&stat)),
            memory_bytes: read("/proc/meminfo").and_then(|text| host_memory(&text)),
            network_bytes: read("/proc/self/net/netstat").and_then(|text| octets(&text)),
        }
    }
}

/// Reads the first line of `/proc/stat`: the fourth and fifth number are of idle processors.
fn host_cpu(stat: &str) -> Option<[f64; 2]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // The numbers behind these eight are parts of the first two.
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let busy = ticks.iter().sum::<u64>() - idle;
    let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Some([seconds(busy), seconds(idle)])
}

/// Reads two lines of `/proc/meminfo`, which are in KiB.
fn host_memory(meminfo: &str) -> Option<[u64; 2]> {
    let line = |name: &str| meminfo.lines().find_map(|line| line.strip_prefix(name));
    let bytes = |name: &str| Some(field(line(name)?, 0)? * 1024);
    Some([bytes("MemTotal:")?, bytes("MemAvailable:")?])
}

/// Reads the counters of IP in `/proc/net/netstat`: a line of names, and a line of numbers.
fn octets(netstat: &str) -> Option<[u64; 2]> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let place = names.split_ascii_whitespace().position(|name| name == wanted)?;
        field(numbers, place)
    };
    Some([value("InOctets")?, value("OutOctets")?])
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
        let host = Host::now();
        assert!(host.cpu_seconds.is_some_and(|[busy, idle]| busy > 0.0 && idle > 0.0));
        assert!(host.memory_bytes.is_some_and(|[all, rest]| all >= rest && rest > 0));
        assert!(host.network_bytes.is_some());
    }

    #[test]
    fn what_linux_reports_about_the_host_is_read() {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let stat = "cpu  10 1 20 300 7 2 3 4 99 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(host_cpu(stat).map(|all| all.map(|it| it * ticks)), Some([40.0, 307.0]));
        let memory = "MemTotal:       100 kB\nMemFree: 7 kB\nMemAvailable:    40 kB\n";
        assert_eq!(host_memory(memory), Some([102_400, 40_960]));
        let netstat = "TcpExt: InOctets\nTcpExt: 9\nIpExt: A InOctets OutOctets\nIpExt: 1 22 33\n";
        assert_eq!(octets(netstat), Some([22, 33]));
        for wrong in ["", "cpu", "IpExt: InOctets\n", "MemTotal: x kB\n"] {
            assert!(host_cpu(wrong).is_none() && host_memory(wrong).is_none());
            assert!(octets(wrong).is_none());
        }
    }
}
