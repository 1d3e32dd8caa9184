//! Keys in files.

use std::fs;
use std::path::Path;

use data_encoding::BASE64;
use jsonwebtoken::{Algorithm, DecodingKey};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use spki::der::asn1::{BitStringRef, UintRef};
use spki::der::{Decode, Reader, SliceReader};
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

use super::keys::{Key, KeySet, PublicKey};
use super::settings::{JwtSettings, KeySource, SecretEncoding};

/// Minimum length of a secret, in bytes: that of the shortest signature (RFC 7518, 3.2). A shorter secret could
/// be guessed by anybody who has a token.
const SECRET_MIN: usize = 32;

/// Maximum length of a file with keys, in bytes.
const FILE_MAX: u64 = 256 * 1024;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// Reads the keys in the file that the settings name. There are none if they name a URL.
///
/// # Errors
/// A sentence that names the file. It contains nothing of a secret.
pub(super) fn read(settings: &JwtSettings) -> Result<KeySet, String> {
    let keys = match settings.key_source()? {
        KeySource::Secret(file) => {
            vec![
                read_secret(file, settings)
                    .map_err(|error| in_file("secret_file", file, &error))?,
            ]
        }
        KeySource::PublicKeys(file) => read_public_keys(file, &settings.algorithms)
            .map_err(|error| in_file("public_key_file", file, &error))?,
        KeySource::Url(_) => Vec::new(),
    };
    Ok(KeySet::new(keys))
}

fn in_file(key: &str, file: &Path, error: &str) -> String {
    format!("`{key}`: {}: {error}", file.display())
}

fn read_bounded(file: &Path) -> Result<Vec<u8>, String> {
    let len = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if len > FILE_MAX {
        return Err(format!("the file has more than {FILE_MAX} bytes"));
    }
    fs::read(file).map_err(|error| error.to_string())
}

fn read_secret(file: &Path, settings: &JwtSettings) -> Result<Key, String> {
    let bytes = read_bounded(file)?;
    let text = bytes.trim_ascii();
    if text.starts_with(b"-----BEGIN") {
        // As a secret, a public key would let anybody sign.
        return Err("the file contains a key in PEM; use `public_key_file`".into());
    }
    let secret = match settings.secret_encoding {
        SecretEncoding::Text => text.to_vec(),
        SecretEncoding::Base64 => {
            BASE64.decode(text).map_err(|_| "not Base64 with padding".to_owned())?
        }
    };
    if secret.len() < SECRET_MIN {
        return Err(format!(
            "the secret has {} bytes, and the minimum is {SECRET_MIN}; the output of \
             `openssl rand -hex 32` is a good secret",
            secret.len()
        ));
    }
    let key = DecodingKey::from_secret(&secret);
    Ok(Key { id: None, algorithms: settings.algorithms.clone(), key })
}

fn read_public_keys(file: &Path, allowed: &[Algorithm]) -> Result<Vec<Key>, String> {
    let bytes = read_bounded(file)?;
    let mut keys = Vec::new();
    for key in SubjectPublicKeyInfoDer::pem_slice_iter(&bytes) {
        let key = key.map_err(|error| format!("not PEM: {error}"))?;
        keys.push(read_public_key(&key, allowed)?);
    }
    if keys.is_empty() {
        return Err("the file contains no `PUBLIC KEY`; `openssl x509 -pubkey -noout -in FILE` prints that of a \
                    certificate, and `openssl rsa -RSAPublicKey_in -pubout -in FILE` converts an \
                    `RSA PUBLIC KEY`"
            .into());
    }
    Ok(keys)
}

fn read_public_key(der: &[u8], allowed: &[Algorithm]) -> Result<Key, String> {
    let malformed = |error: spki::der::Error| format!("a public key is malformed: {error}");
    let info = SubjectPublicKeyInfoRef::from_der(der).map_err(malformed)?;
    let key: BitStringRef<'_> = info.subject_public_key;
    let bytes =
        key.as_bytes().ok_or("a public key has a length in bits that is not one in bytes")?;
    let curve = || info.algorithm.parameters_oid().ok();
    let (modulus, exponent);
    let key = match info.algorithm.oid {
        RSA => {
            (modulus, exponent) = rsa_components(bytes).map_err(malformed)?;
            PublicKey::Rsa { modulus: modulus.as_bytes(), exponent: exponent.as_bytes() }
        }
        EC if matches!(curve(), Some(P256 | P384)) => PublicKey::Point(bytes),
        ED25519 => PublicKey::Ed25519(bytes),
        _ => {
            return Err("a public key is of another kind than RSA, P-256, P-384 and Ed25519".into());
        }
    };
    Key::new(None, key, allowed)
        .ok_or_else(|| "a public key fits none of `algorithms`, or is too short".to_owned())
}

fn rsa_components(der: &[u8]) -> spki::der::Result<(UintRef<'_>, UintRef<'_>)> {
    let mut reader = SliceReader::new(der)?;
    let read = |inner: &mut _| -> spki::der::Result<_> {
        Ok((UintRef::decode(inner)?, UintRef::decode(inner)?))
    };
    let components = reader.sequence(read)?;
    reader.finish()?;
    Ok(components)
}
