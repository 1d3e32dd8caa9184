//! Keys of AMQP clients.

use std::fmt;
use std::net::SocketAddr;

use serde::Deserialize;

/// A shared access key: who signs with it may do what its rights say.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name, `{tenant}/{name}` or, for the tenant `default`, without a slash.
    pub name: String,
    /// The secret, as clients have it in their connection strings (it is not decoded).
    pub secret: Secret,
    /// What it allows.
    pub rights: Vec<Right>,
    /// The one entity that it is for, or what its path begins with; none: all of the tenant.
    pub entity: Option<String>,
}

impl Key {
    /// Whether it gives a right. To manage includes the others.
    pub(super) fn allows(&self, right: Right) -> bool {
        self.rights.contains(&right) || self.rights.contains(&Right::Manage)
    }
}

/// What a key allows.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Right {
    /// To send to queues and topics.
    Send,
    /// To receive from queues and subscriptions.
    Listen,
    /// To change rules; and all the rest.
    Manage,
}

/// A text that is not shown.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
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

/// The keys that there are now.
pub trait Keys: Send + Sync + fmt::Debug {
    /// The key of this name, with or without its tenant, for a client of the listener at this address.
    fn find(&self, listener: SocketAddr, name: &str) -> Option<Key>;

    /// Whether a tenant has keys.
    fn are_in(&self, tenant: &str) -> bool;
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
