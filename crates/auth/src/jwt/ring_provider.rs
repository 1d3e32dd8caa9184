//! The verification of signatures for `jsonwebtoken`, with the cryptography that Barid uses for TLS.
//!
//! The library comes with two other providers. One would link a second library of cryptography in C, and the
//! other an implementation of RSA with the advisory RUSTSEC-2023-0071. Nothing is signed here.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, RsaParameters, UnparsedPublicKey, VerificationAlgorithm};
use ring::{error, hmac};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        // With a public key as the secret of an HMAC anybody could sign.
        if algorithm.family() != key.family() {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` verify signatures with ring, in the whole process.
pub(super) fn install() {
    // An error means that it was installed before.
    let _ = PROVIDER.install_default();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let verified = match self.key.kind() {
            DecodingKeyKind::SecretOrDer(key) => self.with_bytes(key, message, signature),
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                self.with_components(PublicKeyComponents { n, e }, message, signature)
            }
        };
        verified.map_err(|error::Unspecified| Error::new())
    }
}

impl RingVerifier {
    fn with_bytes(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), error::Unspecified> {
        let with_secret =
            |algorithm| hmac::verify(&hmac::Key::new(algorithm, key), message, signature);
        let with_public_key = |algorithm: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        match self.algorithm {
            Algorithm::HS256 => with_secret(hmac::HMAC_SHA256),
            Algorithm::HS384 => with_secret(hmac::HMAC_SHA384),
            Algorithm::HS512 => with_secret(hmac::HMAC_SHA512),
            Algorithm::ES256 => with_public_key(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => with_public_key(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => with_public_key(&signature::ED25519),
            _ => Err(error::Unspecified),
        }
    }

    fn with_components(
        &self,
        key: PublicKeyComponents<&[u8]>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), error::Unspecified> {
        let parameters: &RsaParameters = match self.algorithm {
            Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
            _ => return Err(error::Unspecified),
        };
        key.verify(parameters, message, signature)
    }
}
