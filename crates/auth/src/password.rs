//! Passwords of users as argon2id hashes: how they are created, and what their verification costs.
//!
//! The parameters in a hash set the cost of each login. So they bound how many logins a core can verify per
//! second, and how many passwords an attacker with a stolen hash can try.
//! `docs/operating/tenants-and-users.md` has the figures.

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};

/// Maximum memory for the verification of one password, in KiB: 1 GiB. As many logins are verified at once as
/// there are cores. [`check`] refuses hashes that need more.
const MEMORY_MAX_KIB: u32 = 1 << 20;

/// The kind of password, which determines the parameters of its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// A password chosen by a person: 19 MiB and two passes, as OWASP recommends for argon2id.
    #[default]
    Person,
    /// A random secret of 128 bits or more, which cannot be guessed at any cost: 256 KiB, which fits in the
    /// cache of a core, and one pass.
    Device,
}

impl Cost {
    fn params(self) -> Params {
        match self {
            Self::Person => Params::default(),
            Self::Device => Params::new(256, 1, 1, None).expect("the parameters are valid"),
        }
    }
}

/// Returns the hash of a password in PHC string format, for the configuration.
pub fn hash(password: &str, cost: Cost) -> String {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::new(Algorithm::Argon2id, Version::default(), cost.params())
        .hash_password(password.as_bytes(), &salt)
        .expect("the parameters are valid")
        .to_string()
}

/// Checks that passwords can be verified against a hash.
///
/// # Errors
/// A sentence that states the reason why they cannot.
pub fn check(hash: &str) -> Result<(), &'static str> {
    let Ok(parsed) = PasswordHash::new(hash) else {
        return Err("not an argon2id hash; the password itself must not be in the configuration");
    };
    if parsed.algorithm != argon2::ARGON2ID_IDENT || parsed.hash.is_none() {
        return Err("the hash is not an argon2id hash");
    }
    let is_known_version = parsed.version.is_none_or(|version| Version::try_from(version).is_ok());
    match Params::try_from(&parsed) {
        Ok(params) if params.m_cost() > MEMORY_MAX_KIB => {
            Err("verifying this hash takes more than 1 GiB of memory for each login")
        }
        Ok(_) if parsed.salt.is_some() && is_known_version => Ok(()),
        _ => Err("the parameters of this argon2id hash are invalid"),
    }
}

/// Whether `password` is the password that was hashed. Takes as long as the parameters of the hash require.
pub fn verify(hash: &str, password: &[u8]) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// Returns a digest of a stored hash, which changes with it.
pub fn proof(hash: &str) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, hash.as_bytes());
    let first = digest.as_ref().first_chunk().expect("a digest has 32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_verified_whatever_its_hash_costs() {
        for (cost, parameters) in
            [(Cost::Person, "$m=19456,t=2,p=1$"), (Cost::Device, "$m=256,t=1,p=1$")]
        {
            let hash = hash("secret", cost);
            assert!(hash.starts_with("$argon2id$v=19$") && hash.contains(parameters), "{hash}");
            assert_eq!(check(&hash), Ok(()));
            assert!(verify(&hash, b"secret") && !verify(&hash, b"Secret"));
        }
    }

    #[test]
    fn a_hash_that_no_password_has_is_told() {
        let hash = hash("secret", Cost::Device);
        for (from, to, expected) in [
            ("$argon2id", "argon2id", "not an argon2id hash"),
            ("argon2id", "argon2i", "the hash is not"),
            ("m=256", "m=1", "invalid"),
            ("t=1", "t=0", "invalid"),
            ("v=19", "v=20", "invalid"),
            ("m=256", "m=2000000", "1 GiB"),
        ] {
            let error = check(&hash.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(expected), "{from} {to}: {error}");
        }
        let without_output = &hash[..hash.rfind('$').unwrap()];
        assert!(check(without_output).is_err());
    }
}
