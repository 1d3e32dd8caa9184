//! Store options for data directories and backups of this version of Barid.

use barid_core::durable::keys;
use barid_store::Options;
use rustix::fs::Mode;
use rustix::process::umask;

/// Returns the options with which the broker opens the store, for one pass over all records.
pub fn options() -> Options<'static> {
    Options { keyspaces: &keys::NAMES, ..Options::default() }
}

/// Makes all files that this process creates readable by their owner only, including those that the
/// storage engines create.
pub fn make_private() {
    umask(Mode::RWXG | Mode::RWXO);
}
