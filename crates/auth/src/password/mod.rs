//! Passwords of users as hashes: which hashes are accepted, what their verification costs, and how new ones are
//! created.
//!
//! The parameters in a hash set the cost of each login. So they bound how many logins a core can verify per
//! second, and how many passwords an attacker with a stolen hash can try.
//! `docs/operating/tenants-and-users.md` has the figures, and the formats with the systems that write them.
//!
//! A hash may come from a database or a service that other people run. Its length and the cost of its
//! verification are therefore bounded: what [`check`] refuses, [`verify`] does not verify.

mod argon2;
mod bcrypt;
mod mosquitto;
mod pbkdf2;
mod phc;
mod scram_verifier;
mod scrypt;
#[cfg(test)]
mod tests;

use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};

pub(crate) use scram_verifier::{
    KEY_LEN, ScramVerifier, hmac_sha256, iterations as scram_iterations, sha256,
};

/// Maximum length of a hash, in bytes. The longest in use has fewer than 300: mosquitto's argon2id, whose salt
/// and output have 64 bytes each.
const HASH_MAX: usize = 1024;

/// Minimum and maximum length of the output in a hash, in bytes. A shorter one could be hit by chance, and for
/// PBKDF2 a longer one costs more. No system in use writes others.
const OUTPUT_MIN: usize = 16;
const OUTPUT_MAX: usize = 64;

/// Number of random bytes in a secret of [`random_secret`]: 144 bits, which are 24 characters in Base64 without
/// padding.
const SECRET_BYTES: usize = 18;

/// The kind of password, which determines the parameters of its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// A password chosen by a person, as costly as OWASP recommends: for argon2id 19 MiB and two passes, for
    /// SCRAM-SHA-256 600,000 iterations.
    #[default]
    Person,
    /// A random secret of 128 bits or more, which cannot be guessed at any cost: for argon2id 256 KiB, which
    /// fits in the cache of a core, and one pass; for SCRAM-SHA-256 4,096 iterations, the minimum.
    Device,
}

/// A hash, read, whose verification costs no more than the bounds allow.
enum Stored {
    Argon2(argon2::Stored),
    Bcrypt(bcrypt::Stored),
    Scrypt(scrypt::Stored),
    Pbkdf2(pbkdf2::Stored),
    SaltedSha512(mosquitto::SaltedSha512),
    Scram(ScramVerifier),
}

/// Returns the argon2id hash of a password in PHC string format, for the configuration.
pub fn hash(password: &str, cost: Cost) -> String {
    argon2::hash(password, cost)
}

/// Returns the SCRAM-SHA-256 verifier of a password, in the format of PostgreSQL. A client can log in with SCRAM
/// then, or with the password itself.
pub fn scram(password: &str, cost: Cost) -> String {
    let mut salt = [0; 16];
    fill_with_random(&mut salt);
    ScramVerifier::of_password(password.as_bytes(), scram_iterations(cost), &salt).to_string()
}

/// Returns a random secret for a device: 144 bits in the URL-safe Base64 alphabet, which needs no quotation in
/// shells, configuration files and URLs.
pub fn random_secret() -> String {
    let mut secret = [0; SECRET_BYTES];
    fill_with_random(&mut secret);
    data_encoding::BASE64URL_NOPAD.encode(&secret)
}

/// Checks that passwords can be verified against a hash, at a bearable cost.
///
/// # Errors
/// A sentence that states the reason why they cannot.
pub fn check(hash: &str) -> Result<(), &'static str> {
    read(hash).map(drop)
}

/// Whether `password` is the password that was hashed. Takes as long as the parameters of the hash require. No
/// password fits to a hash that [`check`] refuses.
pub fn verify(hash: &str, password: &[u8]) -> bool {
    match read(hash) {
        Ok(Stored::Argon2(stored)) => stored.verify(password),
        Ok(Stored::Bcrypt(stored)) => stored.verify(password),
        Ok(Stored::Scrypt(stored)) => stored.verify(password),
        Ok(Stored::Pbkdf2(stored)) => stored.verify(password),
        Ok(Stored::SaltedSha512(stored)) => stored.verify(password),
        Ok(Stored::Scram(stored)) => stored.verify(password),
        Err(_) => false,
    }
}

/// Returns a digest of the stored hash, as [`Principal::proof`](crate::Principal::proof): it changes with the
/// password, and is the same in each process and version.
pub fn proof(hash: &str) -> u64 {
    let digest = digest::digest(&digest::SHA256, hash.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest.as_ref()[..8]);
    u64::from_be_bytes(first)
}

/// Returns the keys that SCRAM-SHA-256 needs. `None`: the hash is of another kind, or [`check`] refuses it.
pub(crate) fn scram_keys(hash: &str) -> Option<ScramVerifier> {
    match read(hash) {
        Ok(Stored::Scram(verifier)) => Some(verifier),
        Ok(Stored::Pbkdf2(stored)) => stored.scram_verifier(),
        _ => None,
    }
}

fn read(hash: &str) -> Result<Stored, &'static str> {
    if hash.len() > HASH_MAX {
        return Err("the password hash has more than 1,024 bytes");
    }
    let mut parts = hash.splitn(3, '$');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("SCRAM-SHA-256"), Some(_), Some(_)) => ScramVerifier::read(hash).map(Stored::Scram),
        (Some(""), Some(name), Some(rest)) => match name {
            "argon2id" | "argon2i" | "argon2d" => argon2::read(name, rest).map(Stored::Argon2),
            "2a" | "2b" | "2x" | "2y" => bcrypt::read(hash).map(Stored::Bcrypt),
            "scrypt" => scrypt::read(rest).map(Stored::Scrypt),
            "pbkdf2-sha256" | "pbkdf2-sha512" => pbkdf2::read(name, rest).map(Stored::Pbkdf2),
            "6" => mosquitto::read_salted(rest).map(Stored::SaltedSha512),
            "7" => mosquitto::read_pbkdf2(rest).map(Stored::Pbkdf2),
            _ => Err("a password hash of an unknown kind"),
        },
        _ => Err("not a password hash; the password itself must not be stored"),
    }
}

fn fill_with_random(bytes: &mut [u8]) {
    // Also fails if the machine has no source of randomness at all: nothing is safe then.
    SystemRandom::new().fill(bytes).expect("the operating system has random numbers");
}
