//! The sender of a question to a back end, which waits for its turn.

use std::net::{IpAddr, Ipv4Addr};

/// The sender of a question to a back end. Askers that wait for the same connections or threads take turns, by tenant and then by
/// address.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The tenant of a client that logs in, as [`Credentials::asker`](crate::Credentials::asker) tells it.
    pub(crate) tenant: &'a str,
    /// The address of the client.
    pub(crate) address: IpAddr,
}

impl Asker<'_> {
    /// The broker itself, which looks up the users of connected clients after a change. It takes turns as one
    /// more tenant: thousands of look-ups after a change of everybody do not hold up logins, and a flood of
    /// logins does not hold up these look-ups.
    pub const BROKER: Asker<'static> = Asker {
        // No tenant has a slash in its name.
        tenant: "/",
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
}
