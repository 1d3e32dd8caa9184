//! Makes tokens, for tests.

use std::path::PathBuf;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use jsonwebtoken::get_current_timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
};
use ring::{hmac, rsa};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Jwt, JwtSettings};
use crate::hashing::Hashing;

pub(super) const SECRET: &str = "a secret of at least thirty-two bytes";

/// A key that signs tokens.
pub(super) enum Signer {
    Secret(Vec<u8>),
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    pub(super) fn secret() -> Self {
        Self::Secret(SECRET.into())
    }

    /// An RSA key takes too long to be made in a test, so this is always the same.
    pub(super) fn rsa() -> Self {
        let pem = include_bytes!("rsa-key-for-tests.pem");
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap())
    }

    pub(super) fn p256() -> Self {
        Self::P256(ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING))
    }

    pub(super) fn p384() -> Self {
        Self::P384(ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING))
    }

    pub(super) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Secret(secret) => {
                let algorithm = match algorithm {
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(algorithm, secret), message).as_ref().into()
            }
            Self::Rsa(key) => {
                let encoding: &dyn RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(key) | Self::P384(key) => {
                key.sign(&random, message).unwrap().as_ref().into()
            }
            Self::Ed25519(key) => key.sign(message).as_ref().into(),
        }
    }

    /// Returns a token with these claims.
    pub(super) fn token(&self, algorithm: &str, claims: &Value) -> String {
        self.token_with(&json!({"alg": algorithm, "typ": "JWT"}), &claims.to_string())
    }

    /// Returns a token with this header and these claims, signed with the algorithm in the header.
    pub(super) fn token_with(&self, header: &dyn ToString, claims: &str) -> String {
        let header = header.to_string();
        let algorithm: Value = serde_json::from_str(&header).unwrap_or_default();
        let algorithm = algorithm["alg"].as_str().unwrap_or_default().to_owned();
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.sign(&algorithm, message.as_bytes());
        format!("{message}.{}", BASE64URL_NOPAD.encode(&signature))
    }

    /// Returns the public key in PEM.
    pub(super) fn public_pem(&self) -> String {
        let (algorithm, key): (&[u8], _) = match self {
            Self::Secret(_) => panic!("a secret has no public key"),
            Self::Rsa(key) => {
                (b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00", key.public().as_ref())
            }
            Self::P256(key) => (
                b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
                key.public_key().as_ref(),
            ),
            Self::P384(key) => (
                b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22",
                key.public_key().as_ref(),
            ),
            Self::Ed25519(key) => (b"\x06\x03\x2b\x65\x70", key.public_key().as_ref()),
        };
        let key = [&[0], key].concat();
        let info = der(0x30, &[der(0x30, algorithm), der(0x03, &key)].concat());
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(&info))
    }

    /// Returns the public key as a JSON Web Key with this identifier.
    pub(super) fn public_jwk(&self, id: &str) -> Value {
        let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let point = |curve: &str, key: &EcdsaKeyPair| {
            let (x, y) =
                key.public_key().as_ref()[1..].split_at(key.public_key().as_ref().len() / 2);
            json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y), "kid": id})
        };
        match self {
            Self::Secret(secret) => json!({"kty": "oct", "k": encode(secret), "kid": id}),
            Self::Rsa(key) => {
                let rsa::PublicKeyComponents { n, e } =
                    rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encode(&n), "e": encode(&e), "kid": id, "use": "sig"})
            }
            Self::P256(key) => point("P-256", key),
            Self::P384(key) => point("P-384", key),
            Self::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref()), "kid": id})
            }
        }
    }
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap()
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap();
    let [high, low] = len.to_be_bytes();
    let head = if len < 128 { vec![tag, low] } else { vec![tag, 0x82, high, low] };
    // Lengths from 128 to 255 have a shorter form in DER.
    let head = if (128..256).contains(&len) { vec![tag, 0x81, low] } else { head };
    [head, content.to_vec()].concat()
}

/// Returns claims of the user `ada` that are valid for an hour, with `more` claims.
pub(super) fn claims(more: Value) -> Value {
    let mut claims = json!({"sub": "ada", "exp": get_current_timestamp() + 3_600});
    let Value::Object(more) = more else { panic!("claims are an object") };
    claims.as_object_mut().unwrap().extend(more);
    claims
}

/// A file with a key, which is removed with its directory.
pub(super) fn file(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, content).unwrap();
    (directory, file)
}

/// Returns a back end whose tokens are signed with [`SECRET`]. `toml`: more settings, as JSON.
pub(super) fn with_secret(more: Value) -> Jwt {
    let (_directory, file) = file(SECRET);
    with(json!({"secret_file": file, "algorithms": ["HS256"]}), more)
}

/// Returns a back end whose tokens are signed with a private key.
pub(super) fn with_public_key(signer: &Signer, algorithms: &[&str]) -> Jwt {
    let (_directory, file) = file(signer.public_pem());
    with(json!({"public_key_file": file, "algorithms": algorithms}), json!({}))
}

/// Returns a back end with these settings, which may contain files that are read at once.
pub(super) fn with(settings: Value, more: Value) -> Jwt {
    let (mut settings, more) = (settings, more);
    let Value::Object(more) = more else { panic!("settings are an object") };
    settings.as_object_mut().unwrap().extend(more);
    let settings: JwtSettings = serde_json::from_value(settings).unwrap();
    Jwt::new("jwt", settings, Hashing::new(1)).unwrap()
}
