//! The secret of the cluster: HMAC-SHA256 proves that a broker knows it.

use barid_peers::{PROOF, Proofs};
use ring::hmac;

/// The secret.
pub struct Secret(hmac::Key);

impl Secret {
    /// Takes the secret as it is in the settings.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl Proofs for Secret {
    fn prove(&self, text: &[u8]) -> [u8; PROOF] {
        let tag = hmac::sign(&self.0, text);
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn is_proof(&self, text: &[u8], proof: &[u8; PROOF]) -> bool {
        hmac::verify(&self.0, text, proof).is_ok()
    }
}
