//! The keys of a user, or keys that stand in for them.

use crate::password::{Cost, KEY_LEN, ScramVerifier, hmac_sha256, scram_iterations, scram_keys};

/// The keys with which the proof of a client is verified.
#[derive(Debug)]
pub struct Keys {
    pub(super) verifier: ScramVerifier,
    /// Whether no proof is right.
    pub(super) is_mock: bool,
}

/// Length of a salt, in bytes, if nothing says how long the salts of users are.
const SALT_BYTES: usize = 16;

impl Keys {
    /// Returns the keys in a password hash: a SCRAM-SHA-256 verifier, or a `$pbkdf2-sha256$` hash of 32 bytes.
    /// `None`: the hash is of another kind, so its user can only log in with the password itself.
    pub fn of(hash: &str) -> Option<Self> {
        scram_keys(hash).map(|verifier| Self { verifier, is_mock: false })
    }

    /// Returns keys for a user who does not exist, or whose hash has no keys: no proof is right, and the
    /// server's messages are like those for a user (RFC 5802, section 9). The salt of a name is always the
    /// same, and nobody without `secret` can tell it from a random one. `secret` must survive a restart, or a
    /// salt that changes shows that there is no user.
    ///
    /// `like`: the hash of any user, whose number of iterations and length of the salt are taken. If it has no
    /// keys either, these are as in new verifiers.
    pub fn mock(secret: &[u8; KEY_LEN], user: &str, like: Option<&str>) -> Self {
        let like = like.and_then(scram_keys);
        let iterations =
            like.as_ref().map_or_else(|| scram_iterations(Cost::Person), |like| like.iterations);
        let salt_len = like.map_or(SALT_BYTES, |like| like.salt.len());
        let mut salt = Vec::with_capacity(salt_len);
        for block in 0_u32.. {
            let missing = salt_len - salt.len();
            if missing == 0 {
                break;
            }
            let bytes = derive(secret, "salt", block, user);
            salt.extend_from_slice(&bytes[..missing.min(KEY_LEN)]);
        }
        let verifier = ScramVerifier {
            iterations,
            salt: salt.into(),
            stored_key: derive(secret, "StoredKey", 0, user),
            server_key: derive(secret, "ServerKey", 0, user),
        };
        Self { verifier, is_mock: true }
    }
}

fn derive(secret: &[u8; KEY_LEN], what: &str, block: u32, user: &str) -> [u8; KEY_LEN] {
    let mut text = format!("{what} {block} ").into_bytes();
    text.extend_from_slice(user.as_bytes());
    hmac_sha256(secret, &text)
}
