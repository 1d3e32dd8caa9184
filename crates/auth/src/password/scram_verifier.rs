//! SCRAM-SHA-256 verifiers in the format of PostgreSQL,
//! `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, with Base64.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use data_encoding::BASE64;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq as _;

use super::Cost;
use super::pbkdf2::{ITERATIONS_MAX, TOO_LONG};
use super::phc::number;

const NAME: &str = "SCRAM-SHA-256";

/// Length of the keys, in bytes: that of an output of SHA-256.
pub(crate) const KEY_LEN: usize = 32;

/// What a server stores of a password for SCRAM-SHA-256 (RFC 5802, section 5).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ScramVerifier {
    pub iterations: NonZeroU32,
    pub salt: Box<[u8]>,
    pub stored_key: [u8; KEY_LEN],
    pub server_key: [u8; KEY_LEN],
}

/// Returns the number of iterations of new verifiers. Each login costs the client as many.
pub(crate) fn iterations(cost: Cost) -> NonZeroU32 {
    let iterations = match cost {
        Cost::Person => 600_000,
        // The minimum that clients accept (RFC 7677, section 4).
        Cost::Device => 4096,
    };
    NonZeroU32::new(iterations).expect("it is not 0")
}

impl ScramVerifier {
    pub fn of_password(password: &[u8], iterations: NonZeroU32, salt: &[u8]) -> Self {
        let mut salted = [0; KEY_LEN];
        let prepared = prepare(password);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, &prepared, &mut salted);
        Self::of_salted_password(&salted, iterations, salt)
    }

    pub fn of_salted_password(salted: &[u8; KEY_LEN], iterations: NonZeroU32, salt: &[u8]) -> Self {
        let client_key = hmac_sha256(salted, b"Client Key");
        Self {
            iterations,
            salt: salt.into(),
            stored_key: sha256(&client_key),
            server_key: hmac_sha256(salted, b"Server Key"),
        }
    }

    pub fn read(text: &str) -> Result<Self, &'static str> {
        let verifier = Self::parse(text).ok_or("not a valid SCRAM-SHA-256 verifier")?;
        if verifier.iterations.get() > ITERATIONS_MAX { Err(TOO_LONG) } else { Ok(verifier) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix(NAME)?.strip_prefix('$')?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let bytes = |text: &str| BASE64.decode(text.as_bytes()).ok();
        let salt = bytes(salt).filter(|salt| !salt.is_empty())?;
        Some(Self {
            iterations: NonZeroU32::new(number(iterations)?)?,
            salt: salt.into(),
            stored_key: bytes(stored_key)?.try_into().ok()?,
            server_key: bytes(server_key)?.try_into().ok()?,
        })
    }

    /// Whether this is the verifier of `password`.
    pub fn verify(&self, password: &[u8]) -> bool {
        let own = Self::of_password(password, self.iterations, &self.salt);
        own.stored_key.ct_eq(&self.stored_key).into()
    }
}

impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored_key, server_key] =
            [&*self.salt, &self.stored_key, &self.server_key].map(|bytes| BASE64.encode(bytes));
        write!(f, "{NAME}${}:{salt}${stored_key}:{server_key}", self.iterations)
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// Prepares a password with SASLprep. One that cannot be prepared is used as it is, as PostgreSQL and its
/// clients do.
fn prepare(password: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(password).map(stringprep::saslprep) {
        Ok(Ok(Cow::Owned(prepared))) => Cow::Owned(prepared.into_bytes()),
        _ => Cow::Borrowed(password),
    }
}

pub(crate) fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; KEY_LEN] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("an output of SHA-256 has 32 bytes")
}

pub(crate) fn sha256(text: &[u8]) -> [u8; KEY_LEN] {
    let digest = digest::digest(&digest::SHA256, text);
    digest.as_ref().try_into().expect("an output of SHA-256 has 32 bytes")
}
