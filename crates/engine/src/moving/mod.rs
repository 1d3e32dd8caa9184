//! Moving of a slot to another broker of the cluster, with all that is in it: the stored sessions of its clients, and the
//! state stores, entities and bindings of its tenants.
//!
//! ```text
//!  the broker that has the slot                        the broker that gets it
//!    Leaving::begin   clients are disconnected
//!    (nothing is published anywhere: Hold)
//!    Leaving::leave   the contents are in the store only
//!    Leaving::read    ──── records ────►               (kept in a file)
//!    (the map of slots changes)
//!    forget                                            adopt
//!    (everybody knows where the slot is, and publishes again)
//!                                                      check_watches
//!    remove
//! ```
//!
//! When and over which link is the caller's business.
//!
//! | file | what is there |
//! | --- | --- |
//! | `records.rs` | the records of a slot, on their way from one broker to another |
//! | `watches.rs` | the watches of keys, on their way with them |
//! | `leaving.rs` | the contents of a slot leave memory, are read from the store, and are forgotten |
//! | `adopting.rs` | the contents of a slot come into the store and into memory |

mod adopting;
mod leaving;
mod records;
#[cfg(test)]
mod tests;
mod watches;

pub use adopting::{AdoptError, Watches, adopt, check_watches, stay};
pub use leaving::{Leaving, ReadError, forget, homes_have_changed, occupied, remove};
pub use records::{Damaged, Records};
