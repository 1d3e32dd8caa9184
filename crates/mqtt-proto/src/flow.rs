//! State that a connection keeps besides its session: tables without I/O, which are given the time.

mod inbound_aliases;
mod keep_alive;
mod outbound_aliases;

pub use inbound_aliases::InboundAliases;
pub use keep_alive::KeepAlive;
pub use outbound_aliases::{AliasUse, OutboundAliases};
