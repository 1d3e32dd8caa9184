//! What the store has to be told to read a data directory or a backup of this version of Barid.

use barid_core::durable::keys;
use barid_store::Options;

/// As the broker opens it, for one pass over everything.
pub fn options() -> Options<'static> {
    Options { keyspaces: &keys::NAMES, ..Options::default() }
}
