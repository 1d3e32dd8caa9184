//! The limit on open files, which is the limit on connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, and answers with it; `None` is no limit.
///
/// The soft limit is 1,024 almost everywhere, for the sake of programs that use `select`.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        maximum
    } else {
        current
    }
}
