//! CPU time and memory of processes, as Linux reports them.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Processes on this machine: a broker, or the brokers of a cluster.
#[derive(Clone, Debug)]
pub struct Process(Vec<u32>);

/// Resources that the processes have used so far, together.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
}

impl Process {
    /// Returns the processes `pids`; `None`: there are none.
    ///
    /// # Errors
    /// One does not run, or this is not Linux.
    pub fn all(pids: &[u32]) -> anyhow::Result<Option<Self>> {
        for pid in pids {
            usage(*pid).with_context(|| {
                format!("--pid {pid}: there is no such process on this machine")
            })?;
        }
        Ok((!pids.is_empty()).then(|| Self(pids.to_vec())))
    }

    /// Returns the CPU time of this process so far, if the system reports it.
    pub fn own_cpu() -> Option<Duration> {
        usage(std::process::id()).map(|usage| usage.cpu)
    }

    /// Returns the resources used so far; `None` if one of the processes is gone.
    pub fn usage(&self) -> Option<Usage> {
        let nothing = Usage { cpu: Duration::ZERO, rss_bytes: 0 };
        self.0.iter().try_fold(nothing, |sum, pid| {
            let Usage { cpu, rss_bytes } = usage(*pid)?;
            Some(Usage { cpu: sum.cpu + cpu, rss_bytes: sum.rss_bytes + rss_bytes })
        })
    }
}

fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ticks = cpu_ticks(&stat)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Usage {
        cpu: Duration::from_secs_f64(ticks as f64 / per_second as f64),
        rss_bytes: rss_kib(&status)? * 1_024,
    })
}

/// Adds fields 14 and 15, counted from behind the command's name, which may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_moves_nothing() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 3 0";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(rss_kib("VmPeak:\t 1 kB\nVmRSS:\t    5120 kB\n"), Some(5_120));
    }
}
