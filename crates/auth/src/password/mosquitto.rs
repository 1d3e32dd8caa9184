//! The hashes of mosquitto's password files: `$7$iterations$salt$output`, PBKDF2 with HMAC-SHA-512, and
//! `$6$salt$output`, one SHA-512 of the password followed by the salt. Salt and output are in Base64 with padding.

use data_encoding::BASE64;
use ring::digest;
use subtle::ConstantTimeEq as _;

use super::pbkdf2::{Hmac, Stored};
use super::phc::number;

/// Length of the output of SHA-512, in bytes.
const OUTPUT_LEN: usize = 64;

/// A salted hash without iterations, as mosquitto before 2.0 wrote it by default.
pub(super) struct SaltedSha512 {
    salt: Box<[u8]>,
    output: Box<[u8]>,
}

pub(super) fn read_pbkdf2(text: &str) -> Result<Stored, &'static str> {
    const INVALID: &str = "not a valid $7$ hash of mosquitto_passwd";
    let (iterations, rest) = text.split_once('$').ok_or(INVALID)?;
    let iterations = number(iterations).and_then(std::num::NonZeroU32::new).ok_or(INVALID)?;
    let [salt, output] = salt_and_output(rest).ok_or(INVALID)?;
    Stored::new(Hmac::Sha512, iterations, salt, output)
}

pub(super) fn read_salted(text: &str) -> Result<SaltedSha512, &'static str> {
    let invalid = "not a valid $6$ hash of mosquitto_passwd; those of crypt(3) are different";
    let [salt, output] = salt_and_output(text).ok_or(invalid)?;
    Ok(SaltedSha512 { salt, output })
}

fn salt_and_output(text: &str) -> Option<[Box<[u8]>; 2]> {
    let (salt, output) = text.split_once('$')?;
    let salt = BASE64.decode(salt.as_bytes()).ok()?;
    let output = BASE64.decode(output.as_bytes()).ok()?;
    let is_fit = !salt.is_empty() && output.len() == OUTPUT_LEN;
    is_fit.then(|| [salt.into(), output.into()])
}

impl SaltedSha512 {
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(password);
        context.update(&self.salt);
        context.finish().as_ref().ct_eq(&self.output).into()
    }
}
