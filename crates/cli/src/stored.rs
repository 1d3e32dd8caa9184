//! What the store has to be told to read a data directory or a backup of this version of Barid.

use barid_core::durable::keys;
use barid_store::Options;
use rustix::fs::Mode;
use rustix::process::umask;

/// As the broker opens it, for one pass over everything.
pub fn options() -> Options<'static> {
    Options { keyspaces: &keys::NAMES, ..Options::default() }
}

/// Has all files that this process makes readable by their owner only, also those that the engines make by
/// themselves.
pub fn make_private() {
    umask(Mode::RWXG | Mode::RWXO);
}
