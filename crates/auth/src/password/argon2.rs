//! argon2 in PHC string format, as libargon2, PHP, Python, mosquitto 2.1 and `barid passwd` write it.

use ::argon2::password_hash::rand_core::OsRng;
use ::argon2::password_hash::{PasswordHasher as _, SaltString};
use ::argon2::{Algorithm, Argon2, Params, Version};
use subtle::ConstantTimeEq as _;

use super::Cost;
use super::phc::Phc;

/// Maximum memory for the verification of one password, in KiB: 1 GiB. Each thread that verifies passwords may need
/// as much at once.
const MEMORY_MAX_KIB: u32 = 1 << 20;

/// Maximum of memory times passes, in KiB: 2 GiB. A small machine needs several seconds for that. A user whose
/// hash costs more would occupy a core with a few wrong logins.
const WORK_MAX_KIB: u64 = 2 << 20;

/// Version of the algorithm in a hash that does not state it: libargon2 did not write it before there were two.
const FIRST_VERSION: u32 = 0x10;

pub(super) struct Stored {
    algorithm: Algorithm,
    version: Version,
    parameters: Params,
    salt: Box<[u8]>,
    output: Box<[u8]>,
}

fn parameters(cost: Cost) -> Params {
    match cost {
        Cost::Person => Params::default(),
        Cost::Device => Params::new(256, 1, 1, None).expect("the parameters are valid"),
    }
}

pub(super) fn hash(password: &str, cost: Cost) -> String {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::new(Algorithm::Argon2id, Version::default(), parameters(cost))
        .hash_password(password.as_bytes(), &salt)
        .expect("the parameters are valid")
        .to_string()
}

pub(super) fn read(name: &str, text: &str) -> Result<Stored, &'static str> {
    const INVALID: &str = "not a valid argon2 hash";
    let phc = Phc::read(text).ok_or(INVALID)?;
    let algorithm = Algorithm::new(name).map_err(|_| INVALID)?;
    let version = Version::try_from(phc.version.unwrap_or(FIRST_VERSION)).map_err(|_| INVALID)?;
    let [memory, passes, lanes] = phc.values(["m", "t", "p"]).ok_or(INVALID)?;
    if memory > MEMORY_MAX_KIB {
        return Err("verifying this hash takes more than 1 GiB of memory for each login");
    }
    if u64::from(memory) * u64::from(passes) > WORK_MAX_KIB {
        return Err("verifying this hash takes too long: memory times passes is more than 2 GiB");
    }
    let parameters =
        Params::new(memory, passes, lanes, Some(phc.output.len())).map_err(|_| INVALID)?;
    if phc.salt.len() < ::argon2::MIN_SALT_LEN {
        return Err(INVALID);
    }
    Ok(Stored { algorithm, version, parameters, salt: phc.salt, output: phc.output })
}

impl Stored {
    pub fn verify(&self, password: &[u8]) -> bool {
        let argon2 = Argon2::new(self.algorithm, self.version, self.parameters.clone());
        let mut output = [0; super::OUTPUT_MAX];
        let output = &mut output[..self.output.len()];
        argon2.hash_password_into(password, &self.salt, output).is_ok()
            && bool::from(output.ct_eq(&self.output))
    }
}
