//! Shared access keys of AMQP clients.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use barid_engine::amqp::{Right, Secret};
use serde::Deserialize;

use super::Settings;

/// Name and secret of the key in the connection string of Microsoft's emulator.
const EMULATOR_KEY: (&str, &str) = ("RootManageSharedAccessKey", "SAS_KEY_VALUE");

/// A shared access key. A client that signs with it has its rights.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Name: `{tenant}/{name}`, or a name without a slash for the tenant `default`.
    pub name: String,
    /// The secret, as clients have it in their connection strings (it is not decoded). The code that reads
    /// the configuration stores the contents of `key_file` here.
    pub key: Option<Secret>,
    /// Path of a file that holds the secret. White space around the secret is ignored.
    pub key_file: Option<PathBuf>,
    /// Rights that the key grants.
    pub rights: Vec<Right>,
    /// Path that the key is limited to: valid are the entity with this path, and entities below it. `None`: all
    /// entities of the tenant.
    pub entity: Option<String>,
}

impl Settings {
    /// Returns the keys that are valid for connections to a listener at this address: those of the
    /// configuration. Without any, the well-known key of the emulator is valid on loopback addresses, and no
    /// key elsewhere.
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
