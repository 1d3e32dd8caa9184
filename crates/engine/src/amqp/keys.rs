//! Shared access keys of AMQP clients.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// A shared access key. A client that signs with it has its rights.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name, `{tenant}/{name}` or, for the tenant `default`, without a slash.
    pub name: String,
    /// The secret, as it stands in the connection strings of clients; it is not decoded.
    pub secret: Secret,
    /// The rights that the key gives.
    pub rights: Vec<Right>,
    /// The path of the entity that the key is limited to; longer paths that begin with all its segments are
    /// included. `None`: all entities of the tenant.
    pub entity: Option<String>,
}

impl Key {
    /// Whether the key gives a right. [`Right::Manage`] includes the others.
    pub(super) fn allows(&self, right: Right) -> bool {
        self.rights.contains(&right) || self.rights.contains(&Right::Manage)
    }
}

/// A right that a key gives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Right {
    /// Sending to queues and topics.
    Send,
    /// Receiving from queues and subscriptions.
    Listen,
    /// Changing rules, and all that the other rights allow.
    Manage,
}

/// A text that `Debug` does not show.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The keys that are valid at present, and the clients that are banned.
pub trait Keys: Send + Sync + fmt::Debug {
    /// Returns the key with this name, with or without its tenant, for a client of the listener at this address.
    fn find(&self, listener: SocketAddr, name: &str) -> Option<Key>;

    /// Whether a tenant has keys or users, so that failed logins are counted for it.
    fn are_in(&self, tenant: &str) -> bool;

    /// Whether tenants have homes: brokers of a cluster that have their entities.
    fn know_homes(&self) -> bool {
        false
    }

    /// Returns the name of the broker that has the entities of a tenant, if that is another one.
    fn home_elsewhere(&self, tenant: &str) -> Option<Box<str>> {
        let _ = tenant;
        None
    }

    /// Returns why a client is banned, for the log: its user, its container id in the tenant, or its address.
    /// `None`: it is not banned. An empty container id is not known yet.
    fn ban(
        &self,
        user: Option<&str>,
        tenant: &str,
        container_id: &str,
        address: IpAddr,
    ) -> Option<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_manage_includes_the_rest_and_a_secret_is_not_shown() {
        let (name, secret) = ("all".into(), Secret::new("hidden"));
        let mut key = Key { name, secret, rights: vec![Right::Manage], entity: None };
        assert!(key.allows(Right::Send) && key.allows(Right::Listen));
        key.rights = vec![Right::Listen];
        assert!(!key.allows(Right::Send) && !key.allows(Right::Manage));
        assert!(!format!("{key:?}").contains("hidden"));
    }
}
