//! bcrypt in the format of crypt(3), as OpenBSD, PHP, Python, htpasswd and EMQX write it.

use ::bcrypt::HashParts;

/// Maximum cost: 2^15 rounds. A small machine needs about three seconds for that.
const COST_MAX: u32 = 15;

/// Minimum cost that the algorithm allows.
const COST_MIN: u32 = 4;

pub(super) struct Stored(String);

pub(super) fn read(hash: &str) -> Result<Stored, &'static str> {
    // Hashes of PHP before 5.3.7, which are wrong for characters outside ASCII.
    if hash.starts_with("$2x$") {
        return Err("a bcrypt hash of the faulty kind $2x$");
    }
    let parts: HashParts = hash.parse().map_err(|_| "not a valid bcrypt hash")?;
    match parts.get_cost() {
        ..COST_MIN => Err("the cost of this bcrypt hash is less than 4"),
        COST_MIN..=COST_MAX => Ok(Stored(hash.into())),
        _ => Err("verifying this hash takes too long: the cost of bcrypt is more than 15"),
    }
}

impl Stored {
    /// As everywhere else, only the first 72 bytes of a password count. With a zero byte no password is right:
    /// the algorithm ends a password with one and repeats it, so `ab\0ab` would be the same as `ab`.
    pub fn verify(&self, password: &[u8]) -> bool {
        !password.contains(&0) && ::bcrypt::verify(password, &self.0).unwrap_or(false)
    }
}
