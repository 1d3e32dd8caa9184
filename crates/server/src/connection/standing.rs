//! What changes of users and bans mean for a connected client.

use std::net::IpAddr;

use barid_auth::Revocable;

use crate::logins::Changes;
use crate::shared::Shared;

/// The consequence of a change for a connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The client is disconnected: it is banned, or it needs a user now and has none.
    Ends,
    /// The client is disconnected: its certificate is revoked.
    Revoked,
    /// The user of the client is looked up again.
    Renewed {
        /// Whether a user that cannot be looked up without its credentials has to log in again.
        must_log_in: bool,
    },
}

/// A connected client, as changes see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connected<'a> {
    pub tenant: &'a str,
    /// The user, as `{tenant}/{client}`.
    pub user: Option<&'a str>,
    /// The MQTT client identifier or the AMQP container id.
    pub client_id: &'a str,
    pub address: IpAddr,
    /// What revocation lists say of the client's certificate, if it has shown one.
    pub certificate: Option<Revocable>,
    /// Whether a client without a user may be there because of a shared access key.
    pub has_key: bool,
}

impl Connected<'_> {
    /// Returns the consequence of changes for the client; `None`: it goes on as before.
    pub(super) fn consequence(&self, shared: &Shared, changes: &Changes) -> Option<Consequence> {
        let Self { tenant, user, client_id, address, certificate, has_key } = *self;
        if certificate.is_some_and(|certificate| changes.revoke(&certificate)) {
            return Some(Consequence::Revoked);
        }
        if changes.are_of_bans() && shared.bans.check(user, tenant, client_id, address).is_some() {
            return Some(Consequence::Ends);
        }
        match user {
            Some(user) => {
                changes.concern(user).map(|must_log_in| Consequence::Renewed { must_log_in })
            }
            None if has_key || !changes.concern_all_of(tenant) => None,
            None => {
                let may_stay = shared.logins.authenticator.allows_anybody(tenant);
                (!may_stay).then_some(Consequence::Ends)
            }
        }
    }
}
