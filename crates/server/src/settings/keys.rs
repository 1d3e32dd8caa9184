//! Keys of AMQP clients.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use barid_engine::amqp::{Right, Secret};
use serde::Deserialize;

use super::Settings;

/// The key that the connection string of Microsoft's emulator names.
const EMULATOR_KEY: (&str, &str) = ("RootManageSharedAccessKey", "SAS_KEY_VALUE");

/// A shared access key: who signs with it may do what its rights say.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The name, `{tenant}/{name}` or, for the tenant `default`, without a slash.
    pub name: String,
    /// The secret, as clients have it in their connection strings (it is not decoded). Whoever reads the
    /// configuration puts what `key_file` holds here.
    pub key: Option<Secret>,
    /// A file that holds the secret; white space around it does not count.
    pub key_file: Option<PathBuf>,
    /// What it allows.
    pub rights: Vec<Right>,
    /// The one entity that it is for, or what its path begins with; none: all of the tenant.
    pub entity: Option<String>,
}

impl Settings {
    /// The keys that count for connections to a listener at this address: those of the configuration. If
    /// there are none, the well-known one of the emulator on loopback, and none elsewhere.
    pub fn keys_or_emulator(&self, listener: SocketAddr) -> Cow<'_, [Key]> {
        if !self.keys.is_empty() || !listener.ip().to_canonical().is_loopback() {
            return Cow::Borrowed(&self.keys);
        }
        let (name, secret) = EMULATOR_KEY;
        Cow::Owned(vec![Key {
            name: name.into(),
            key: Some(Secret::new(secret)),
            key_file: None,
            rights: vec![Right::Send, Right::Listen, Right::Manage],
            entity: None,
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_emulator_is_for_loopback_and_for_nobody_else() {
        let settings = Settings::default();
        for loopback in ["127.0.0.1:5672", "[::1]:5672", "[::ffff:127.0.0.1]:5672"] {
            let keys = settings.keys_or_emulator(loopback.parse().unwrap());
            assert_eq!(keys[0].key.as_ref().unwrap().expose(), "SAS_KEY_VALUE");
        }
        for elsewhere in ["0.0.0.0:5672", "192.0.2.1:5672", "[::]:5672"] {
            assert!(settings.keys_or_emulator(elsewhere.parse().unwrap()).is_empty());
        }
        let key = Key {
            rights: vec![Right::Send],
            ..settings.keys_or_emulator(([127, 0, 0, 1], 1).into())[0].clone()
        };
        let own = Settings { keys: vec![key.clone()], ..Settings::default() };
        assert_eq!(*own.keys_or_emulator(([127, 0, 0, 1], 1).into()), [key]);
    }
}
