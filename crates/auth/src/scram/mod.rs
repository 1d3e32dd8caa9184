//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without IO.
//!
//! ```text
//! client-first ──► ClientFirst::read ──► the caller looks up the keys of ClientFirst::user
//! server-first ◄── ClientFirst::challenge(keys, nonce) ──► Challenged
//! client-final ──► Challenged::finish ──► server-final, or a Failure
//! ```
//!
//! The password does not leave the client, and the server stores nothing with which a client could log in.
//! There is no channel binding: the client says `n` or `y`, and one that insists on it (`p=`) is refused.

mod failure;
mod keys;
#[cfg(test)]
mod tests;

pub use failure::Failure;
pub use keys::Keys;

use data_encoding::BASE64;
use subtle::ConstantTimeEq as _;

use crate::password::{KEY_LEN, hmac_sha256, sha256};

/// The name of the mechanism, as an authentication method of MQTT 5 and in SASL.
pub const METHOD: &str = "SCRAM-SHA-256";

/// Maximum length of a message from a client, in bytes. A user name may have several thousand; everything else
/// is short.
const MESSAGE_MAX: usize = 8 * 1024;

/// Maximum length of a client's nonce, in bytes. Clients send 18 to 64.
const NONCE_MAX: usize = 256;

/// Number of random bytes in the server's part of the nonce: 144 bits, so that no two are the same.
pub const NONCE_BYTES: usize = 18;

/// The first message of a client, which names the user.
#[derive(Debug)]
pub struct ClientFirst {
    user: String,
    nonce: Box<str>,
    /// The message before `bare`: the flag for channel binding, and the identity to act as.
    gs2_header: Box<str>,
    /// The part of the message that the proof covers.
    bare: Box<str>,
}

/// An exchange in which the client has to prove next that it knows the password.
#[derive(Debug)]
pub struct Challenged {
    keys: Keys,
    /// The nonce of the client, and that of the server.
    nonce: String,
    gs2_header: Box<str>,
    /// The AuthMessage so far: the bare first message of the client, and that of the server.
    so_far: String,
}

impl ClientFirst {
    /// Reads the first message of a client.
    ///
    /// # Errors
    /// The message is not one, or asks for what the server does not have.
    pub fn read(message: &[u8]) -> Result<Self, Failure> {
        let message = text_of(message)?;
        let (flag, rest) = message.split_once(',').ok_or(Failure::Malformed)?;
        match flag {
            // `y`: the client has channel binding, and believes that the server has not. It is right.
            "n" | "y" => {}
            _ if flag.starts_with("p=") => return Err(Failure::ChannelBinding),
            _ => return Err(Failure::Malformed),
        }
        let (identity, bare) = rest.split_once(',').ok_or(Failure::Malformed)?;
        let mut attributes = bare.split(',');
        let name = attributes.next().ok_or(Failure::Malformed)?;
        if name.starts_with("m=") {
            return Err(Failure::Extension);
        }
        let user = decode_name(name.strip_prefix("n=").ok_or(Failure::Malformed)?)?;
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let nonce = nonce.filter(|nonce| is_nonce(nonce)).ok_or(Failure::Malformed)?;
        attributes.try_for_each(check_extension)?;
        if !identity.is_empty() {
            let identity = identity.strip_prefix("a=").ok_or(Failure::Malformed)?;
            if decode_name(identity)? != user {
                return Err(Failure::OtherIdentity);
            }
        }
        let gs2_header = &message[..message.len() - bare.len()];
        Ok(Self { user, nonce: nonce.into(), gs2_header: gs2_header.into(), bare: bare.into() })
    }

    /// Returns the user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the server's first message. `keys` are those of the user; `nonce` are fresh random bytes.
    pub fn challenge(self, keys: Keys, nonce: [u8; NONCE_BYTES]) -> (Challenged, String) {
        self.challenge_with(keys, &BASE64.encode(&nonce))
    }

    fn challenge_with(self, keys: Keys, nonce: &str) -> (Challenged, String) {
        let nonce = format!("{}{nonce}", self.nonce);
        let salt = BASE64.encode(&keys.verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", keys.verifier.iterations);
        let so_far = format!("{},{server_first}", self.bare);
        (Challenged { keys, nonce, gs2_header: self.gs2_header, so_far }, server_first)
    }
}

impl Challenged {
    /// Verifies the proof in the last message of a client. Returns the server's last message, by which the
    /// client sees that the server knows its keys.
    ///
    /// # Errors
    /// The client has not proved that it knows the password, or there is no such user: a client cannot tell
    /// which.
    pub fn finish(self, message: &[u8]) -> Result<String, Failure> {
        let message = text_of(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(Failure::Malformed)?;
        let proof = BASE64.decode(proof.as_bytes()).map_err(|_| Failure::Malformed)?;
        let proof = <[u8; KEY_LEN]>::try_from(proof).map_err(|_| Failure::Malformed)?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let (Some(binding), Some(nonce)) = (binding, nonce) else { return Err(Failure::Malformed) };
        attributes.try_for_each(check_extension)?;
        if binding != BASE64.encode(self.gs2_header.as_bytes()) {
            return Err(Failure::OtherHeader);
        }
        if nonce != self.nonce {
            return Err(Failure::OtherNonce);
        }
        let auth_message = format!("{},{without_proof}", self.so_far);
        let keys = &self.keys.verifier;
        let signature = hmac_sha256(&keys.stored_key, auth_message.as_bytes());
        let client_key: [u8; KEY_LEN] = std::array::from_fn(|at| proof[at] ^ signature[at]);
        let is_proved = bool::from(sha256(&client_key).ct_eq(&keys.stored_key));
        let server_signature = hmac_sha256(&keys.server_key, auth_message.as_bytes());
        if is_proved && !self.keys.is_mock {
            Ok(format!("v={}", BASE64.encode(&server_signature)))
        } else {
            Err(Failure::Proof)
        }
    }
}

fn text_of(message: &[u8]) -> Result<&str, Failure> {
    if message.len() > MESSAGE_MAX {
        return Err(Failure::TooLong);
    }
    std::str::from_utf8(message)
        .ok()
        .filter(|message| !message.contains('\0'))
        .ok_or(Failure::Malformed)
}

/// Decodes a user name, in which `=2C` stands for a comma and `=3D` for an equals sign (RFC 5802, section 5.1).
fn decode_name(text: &str) -> Result<String, Failure> {
    let mut parts = text.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match part.split_at_checked(2) {
            Some(("2C", rest)) => (',', rest),
            Some(("3D", rest)) => ('=', rest),
            _ => return Err(Failure::UserName),
        };
        name.push(character);
        name.push_str(rest);
    }
    if name.is_empty() { Err(Failure::UserName) } else { Ok(name) }
}

fn is_nonce(text: &str) -> bool {
    let is_printable = |byte| matches!(byte, 0x21..=0x2b | 0x2d..=0x7e);
    !text.is_empty() && text.len() <= NONCE_MAX && text.bytes().all(is_printable)
}

/// Checks an attribute behind those that the server knows. It is ignored, unless it says that it must not be.
fn check_extension(attribute: &str) -> Result<(), Failure> {
    match attribute.as_bytes() {
        [b'm', b'=', ..] => Err(Failure::Extension),
        [letter, b'=', _, ..] if letter.is_ascii_alphabetic() => Ok(()),
        _ => Err(Failure::Malformed),
    }
}
