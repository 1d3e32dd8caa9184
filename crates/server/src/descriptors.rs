//! File descriptors: the limit of the process, and the reserve that clients leave to the broker itself.
//!
//! The kernel gives a new descriptor the lowest free number. The broker closes every client connection whose
//! number is at or above a threshold. So the numbers from the threshold up to the limit stay free for other
//! uses: the store's next segment, certificates on a reload, a backup. Open descriptors need not be counted.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One of this many descriptors is reserved for the broker's own files. The reserve is at least
/// [`RESERVE_MIN`] and at most [`RESERVE_MAX`] descriptors, but never more than half of the limit.
const RESERVED_OF: u64 = 8;
const RESERVE_MIN: u64 = 32;
const RESERVE_MAX: u64 = 512;

/// The file descriptor limit of the process, and its division between clients and the broker's own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Maximum number of open descriptors; `None`: only the kernel limits them.
    limit: Option<u64>,
}

impl Descriptors {
    /// Raises the soft limit of the process to its hard limit. The soft limit is 1,024 almost everywhere, for
    /// the sake of programs that use `select`.
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let is_raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        Self { limit: if is_raised { maximum } else { current } }
    }

    /// Maximum number of open descriptors; `None`: only the kernel limits them.
    pub fn limit(self) -> Option<u64> {
        self.limit
    }

    /// Number of descriptors that client connections cannot use.
    pub fn reserve(self) -> u64 {
        let limit = self.limit.unwrap_or(u64::MAX);
        (limit / RESERVED_OF).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 2)
    }

    /// Whether a client connection may keep its descriptor.
    pub fn are_enough_for_client(self, connection: &impl AsRawFd) -> bool {
        self.are_enough(connection.as_raw_fd(), self.reserve())
    }

    /// Whether a connection to the admin address may keep its descriptor. Such connections may use half of
    /// the reserve, so operators can examine a broker whose clients have taken all other descriptors.
    pub fn are_enough_for_operator(self, connection: &impl AsRawFd) -> bool {
        self.are_enough(connection.as_raw_fd(), self.reserve() / 2)
    }

    fn are_enough(self, descriptor: RawFd, reserve: u64) -> bool {
        let number = u64::try_from(descriptor).unwrap_or(u64::MAX);
        self.limit.is_none_or(|limit| number < limit - reserve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(limit: u64) -> Descriptors {
        Descriptors { limit: Some(limit) }
    }

    #[test]
    fn clients_leave_some_and_operators_leave_half_of_them() {
        for (limit, reserve) in
            [(1_048_576, 512), (4_096, 512), (1_024, 128), (128, 32), (20, 10), (0, 0)]
        {
            assert_eq!(with(limit).reserve(), reserve, "{limit}");
        }
        let descriptors = with(1_024);
        assert!(descriptors.are_enough(895, descriptors.reserve()));
        assert!(!descriptors.are_enough(896, descriptors.reserve()));
        assert!(descriptors.are_enough(959, descriptors.reserve() / 2));
        assert!(Descriptors { limit: None }.are_enough(i32::MAX, 512));
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let raised = Descriptors::raise();
        assert_eq!(raised.limit(), getrlimit(Resource::Nofile).current);
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(raised.are_enough_for_client(&socket) && raised.are_enough_for_operator(&socket));
    }
}
