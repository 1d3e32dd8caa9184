//! What the brokers of a cluster say to each other, and what follows from it, without IO.
//!
//! The frames are those of `barid-peers`. Who is connected with whom, and the handshake of a connection, are the caller's
//! business.
//!
//! | file | what is there |
//! | --- | --- |
//! | `membership.rs` | the members of the cluster, and what follows when one of them is up, down or back |
//! | `control.rs` | control links: heartbeats, and the topic filters of the speaker's clients |
//! | `carrying.rs` | message links |

mod carrying;
mod control;
mod membership;

pub use carrying::{Carrier, CarrierError, Handled, Side};
pub use control::Speaker;
pub use membership::{Membership, NewLife, Watcher};
