//! PBKDF2 with HMAC-SHA-256 or HMAC-SHA-512, in PHC string format (`i=…,l=…`) and as passlib writes it (only the
//! number of iterations). `mosquitto.rs` reads a third form.

use std::num::NonZeroU32;

use ring::pbkdf2;

use super::ScramVerifier;
use super::phc::{Phc, number};

/// Maximum number of iterations, for all blocks of the output together. A small machine needs about two seconds
/// for that with SHA-256, and four with SHA-512. OWASP recommends 600,000 and 210,000.
pub(super) const ITERATIONS_MAX: u32 = 3_000_000;

/// The reason that `check` states for a hash that exceeds [`ITERATIONS_MAX`].
pub(super) const TOO_LONG: &str =
    "verifying this hash takes too long: it has more than 3,000,000 iterations";

/// The hash function below HMAC.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hmac {
    Sha256,
    Sha512,
}

pub(super) struct Stored {
    hmac: Hmac,
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    output: Box<[u8]>,
}

pub(super) fn read(name: &str, text: &str) -> Result<Stored, &'static str> {
    const INVALID: &str = "not a valid PBKDF2 hash";
    let hmac = if name == "pbkdf2-sha256" { Hmac::Sha256 } else { Hmac::Sha512 };
    let phc = Phc::read(text).filter(|phc| phc.version.is_none()).ok_or(INVALID)?;
    let with_length = || {
        let [iterations, length] = phc.values(["i", "l"])?;
        (usize::try_from(length) == Ok(phc.output.len())).then_some(iterations)
    };
    let alone = || phc.values(["i"]).map(|[iterations]| iterations);
    let iterations = number(phc.parameters).or_else(with_length).or_else(alone);
    let iterations = iterations.and_then(NonZeroU32::new).ok_or(INVALID)?;
    Stored::new(hmac, iterations, phc.salt, phc.output)
}

impl Stored {
    pub fn new(
        hmac: Hmac,
        iterations: NonZeroU32,
        salt: Box<[u8]>,
        output: Box<[u8]>,
    ) -> Result<Self, &'static str> {
        let blocks = output.len().div_ceil(hmac.output_len());
        if iterations.get() as usize * blocks > ITERATIONS_MAX as usize {
            return Err(TOO_LONG);
        }
        Ok(Self { hmac, iterations, salt, output })
    }

    /// Takes time that does not depend on where the outputs differ.
    pub fn verify(&self, password: &[u8]) -> bool {
        let algorithm = self.hmac.algorithm();
        pbkdf2::verify(algorithm, self.iterations, &self.salt, password, &self.output).is_ok()
    }

    /// Returns the keys of SCRAM-SHA-256 for the same password, whose SaltedPassword is a PBKDF2 output of 32
    /// bytes with HMAC-SHA-256 (RFC 5802, section 2.2).
    pub fn scram_verifier(&self) -> Option<ScramVerifier> {
        let salted = <&[u8; 32]>::try_from(&*self.output).ok()?;
        let is_fit = self.hmac == Hmac::Sha256;
        is_fit.then(|| ScramVerifier::of_salted_password(salted, self.iterations, &self.salt))
    }
}

impl Hmac {
    fn algorithm(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}
