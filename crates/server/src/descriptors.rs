//! File descriptors: how many the process may have, and that clients leave some for the broker itself.
//!
//! A new descriptor has the lowest number that is free. So when all connections below a number are closed that
//! get a higher one, the numbers from there up to the limit stay free for whoever else opens something: the
//! store for its next segment, a reload for certificates, a backup. Nobody has to count what is open.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of how many descriptors one is kept for the broker's own files, and how many at least and at most.
const RESERVED_OF: u64 = 8;
const RESERVE_MIN: u64 = 32;
const RESERVE_MAX: u64 = 512;

/// How the descriptors of the process are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// As many as there may be; `None`: as the kernel likes.
    limit: Option<u64>,
}

impl Descriptors {
    /// Takes as many as the process is allowed: the soft limit, which is 1,024 almost everywhere for the sake of
    /// programs that use `select`, becomes the hard one.
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let is_raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        Self { limit: if is_raised { maximum } else { current } }
    }

    /// How many there may be; `None`: there is no limit but the kernel's.
    pub fn limit(self) -> Option<u64> {
        self.limit
    }

    /// How many no client gets.
    pub fn reserve(self) -> u64 {
        let limit = self.limit.unwrap_or(u64::MAX);
        (limit / RESERVED_OF).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 2)
    }

    /// Whether a connection of a client may keep the descriptor that it has got.
    pub fn are_enough_for_client(self, connection: &impl AsRawFd) -> bool {
        self.are_enough(connection.as_raw_fd(), self.reserve())
    }

    /// Whether a connection to the admin address may keep the descriptor that it has got: operators find out what
    /// is going on when clients have taken all of theirs.
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
