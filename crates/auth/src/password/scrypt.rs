//! scrypt in PHC string format, as passlib and the libraries of Rust write it.

use ::scrypt::Params;
use subtle::ConstantTimeEq as _;

use super::phc::Phc;

/// Maximum of `128 · N · r · p`, in bytes: 512 MiB. With `p` = 1 this is the memory, and in any case the work, for
/// which a small machine needs about three seconds.
const WORK_MAX: u128 = 512 << 20;

pub(super) struct Stored {
    parameters: Params,
    salt: Box<[u8]>,
    output: Box<[u8]>,
}

pub(super) fn read(text: &str) -> Result<Stored, &'static str> {
    const INVALID: &str = "not a valid scrypt hash";
    let phc = Phc::read(text).ok_or(INVALID)?;
    if phc.version.is_some() {
        return Err(INVALID);
    }
    let [log_n, r, p] = phc.values(["ln", "r", "p"]).ok_or(INVALID)?;
    let log_n = u8::try_from(log_n).ok().filter(|log_n| (1..64).contains(log_n)).ok_or(INVALID)?;
    if 128 * (1_u128 << log_n) * u128::from(r) * u128::from(p) > WORK_MAX {
        return Err("verifying this hash takes too long: 128·N·r·p of scrypt is more than 512 MiB");
    }
    let parameters = Params::new(log_n, r, p, phc.output.len()).map_err(|_| INVALID)?;
    Ok(Stored { parameters, salt: phc.salt, output: phc.output })
}

impl Stored {
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut output = [0; super::OUTPUT_MAX];
        let output = &mut output[..self.output.len()];
        ::scrypt::scrypt(password, &self.salt, &self.parameters, output).is_ok()
            && bool::from(output.ct_eq(&self.output))
    }
}
