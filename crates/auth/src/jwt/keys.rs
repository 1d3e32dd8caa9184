//! The keys with which tokens are verified.

use std::ops::RangeInclusive;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys of a set. The largest providers have a few dozens.
const KEYS_MAX: usize = 100;

/// Maximum number of keys with which one token is tried. With the slowest algorithm, ES384, all together take as long as
/// a costly password hash, and [take turns](crate::Hashing) like one.
const TRIALS_MAX: usize = 8;

/// Lengths of the modulus of an RSA key, in bytes: 2048 to 8192 bits, which is what ring accepts.
const MODULUS: RangeInclusive<usize> = 256..=1024;

/// The keys with which tokens are verified.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

/// A key, with the algorithms that it may be used with.
#[derive(Debug)]
pub(super) struct Key {
    /// The identifier (`kid`); `None`: the key is for tokens with any identifier.
    pub(super) id: Option<String>,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
}

/// A public key, by its parts.
#[derive(Clone, Copy)]
pub(super) enum PublicKey<'a> {
    Rsa {
        modulus: &'a [u8],
        exponent: &'a [u8],
    },
    /// A point on the curve P-256 or P-384, uncompressed.
    Point(&'a [u8]),
    Ed25519(&'a [u8]),
}

/// Reason for which a set has no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// No key has the identifier.
    UnknownId,
    /// No key may be used with the algorithm.
    OtherAlgorithm,
    /// The token has no identifier, and too many keys could be tried.
    TooMany,
}

impl KeySet {
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self(keys)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads a JSON Web Key Set (RFC 7517). Keys that are not for the verification of `allowed` algorithms
    /// are left out: the set of a provider may contain keys for anything.
    ///
    /// # Errors
    /// A sentence that says why this is not a key set.
    pub(super) fn of_json(json: &[u8], allowed: &[Algorithm]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Jwks {
            keys: Vec<Value>,
        }
        let Jwks { keys } =
            serde_json::from_slice(json).map_err(|error| format!("not a key set: {error}"))?;
        if keys.len() > KEYS_MAX {
            return Err(format!("{} keys are too many: a set has at most {KEYS_MAX}", keys.len()));
        }
        let keys = keys
            .into_iter()
            .filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.key(allowed));
        Ok(Self(keys.collect()))
    }

    /// Returns the keys with which a token is tried.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Vec<&Key>, NoKey> {
        let has_id = |key: &&Key| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        let named: Vec<_> = self.0.iter().filter(has_id).collect();
        if named.is_empty() && id.is_some() {
            return Err(NoKey::UnknownId);
        }
        let fit: Vec<_> =
            named.into_iter().filter(|key| key.algorithms.contains(&algorithm)).collect();
        match fit.len() {
            0 => Err(NoKey::OtherAlgorithm),
            1..=TRIALS_MAX => Ok(fit),
            _ => Err(NoKey::TooMany),
        }
    }
}

impl Key {
    /// Returns `None` if the key is malformed, or may not be used with any of the `allowed` algorithms.
    pub(super) fn new(
        id: Option<String>,
        key: PublicKey<'_>,
        allowed: &[Algorithm],
    ) -> Option<Self> {
        let (key, own): (_, &[Algorithm]) = match key {
            PublicKey::Rsa { modulus, exponent } => {
                let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
                if !MODULUS.contains(&modulus.len()) {
                    return None;
                }
                use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
                let key = DecodingKey::from_rsa_raw_components(modulus, exponent);
                (key, &[RS256, RS384, RS512, PS256, PS384, PS512])
            }
            PublicKey::Point(point) => {
                let algorithm: &[_] = match (point.len(), point.first()) {
                    (65, Some(4)) => &[Algorithm::ES256],
                    (97, Some(4)) => &[Algorithm::ES384],
                    _ => return None,
                };
                (DecodingKey::from_ec_der(point), algorithm)
            }
            PublicKey::Ed25519(key) if key.len() == 32 => {
                (DecodingKey::from_ed_der(key), &[Algorithm::EdDSA])
            }
            PublicKey::Ed25519(_) => return None,
        };
        let algorithms: Vec<_> =
            own.iter().copied().filter(|algorithm| allowed.contains(algorithm)).collect();
        (!algorithms.is_empty()).then_some(Self { id, algorithms, key })
    }
}

/// A JSON Web Key with a public key. Secret keys (`oct`) have no place at a URL, and are not read.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn key(self, allowed: &[Algorithm]) -> Option<Key> {
        let is_for_signatures = self.r#use.is_none_or(|usage| usage == "sig")
            && self.key_ops.is_none_or(|all| all.iter().any(|one| one == "verify"));
        if !is_for_signatures {
            return None;
        }
        let allowed = match self.alg {
            None => allowed.to_vec(),
            Some(own) => {
                let own: Algorithm = own.parse().ok()?;
                allowed.iter().copied().filter(|algorithm| *algorithm == own).collect()
            }
        };
        let decode = |text: Option<String>| BASE64URL_NOPAD.decode(text?.as_bytes()).ok();
        match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (decode(self.n)?, decode(self.e)?);
                Key::new(self.kid, PublicKey::Rsa { modulus: &n, exponent: &e }, &allowed)
            }
            ("EC", Some(curve @ ("P-256" | "P-384"))) => {
                let (x, y) = (decode(self.x)?, decode(self.y)?);
                let len = if curve == "P-256" { 32 } else { 48 };
                let point = [&[4], &*x, &*y].concat();
                let is_whole = x.len() == len && y.len() == len;
                is_whole.then(|| Key::new(self.kid, PublicKey::Point(&point), &allowed))?
            }
            ("OKP", Some("Ed25519")) => {
                Key::new(self.kid, PublicKey::Ed25519(&decode(self.x)?), &allowed)
            }
            _ => None,
        }
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::signing_for_tests::Signer;
    use super::*;

    const ALL: [Algorithm; 5] =
        [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];

    fn set(keys: &[Value]) -> KeySet {
        KeySet::of_json(json!({"keys": keys, "more": 1}).to_string().as_bytes(), &ALL).unwrap()
    }

    fn changed(mut key: Value, more: &Value) -> Value {
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let (rsa, p256, p384) = (Signer::rsa(), Signer::p256(), Signer::p384());
        let key = rsa.public_jwk("a");
        let short = Value::from(BASE64URL_NOPAD.encode(&[0xff; 255]));
        let long = Value::from(BASE64URL_NOPAD.encode(&[0xff; 1_025]));
        for other in [
            changed(key.clone(), &json!({"use": "enc"})),
            changed(key.clone(), &json!({"key_ops": ["encrypt", "sign"]})),
            changed(key.clone(), &json!({"alg": "RSA-OAEP"})),
            changed(key.clone(), &json!({"alg": "RS512"})),
            changed(key.clone(), &json!({"alg": "HS256"})),
            changed(key.clone(), &json!({"n": short})),
            changed(key.clone(), &json!({"n": long})),
            changed(key.clone(), &json!({"n": "not Base64url"})),
            changed(key.clone(), &json!({"e": null})),
            changed(key.clone(), &json!({"kty": "oct", "k": "AAAA"})),
            changed(key.clone(), &json!({"kty": "PQ"})),
            changed(key.clone(), &json!({"kid": 5})),
            changed(p256.public_jwk("a"), &json!({"crv": "P-384"})),
            changed(p384.public_jwk("a"), &json!({"crv": "P-256"})),
            changed(p256.public_jwk("a"), &json!({"crv": "secp256k1"})),
            changed(p256.public_jwk("a"), &json!({"x": "AAAA"})),
            changed(Signer::ed25519().public_jwk("a"), &json!({"x": "AAAA"})),
            changed(Signer::ed25519().public_jwk("a"), &json!({"crv": "X25519"})),
            Signer::secret().public_jwk("a"),
            json!({}),
            json!("key"),
            json!(null),
        ] {
            let keys = set(&[other.clone(), p256.public_jwk("b")]);
            assert_eq!(keys.len(), 1, "{other}");
            assert_eq!(keys.find(Some("a"), Algorithm::ES256).err(), Some(NoKey::UnknownId));
        }
        let zeros = [&[0, 0][..], &[0xff; 256]].concat();
        let padded = changed(key, &json!({"n": BASE64URL_NOPAD.encode(&zeros)}));
        assert_eq!(set(&[padded]).len(), 1);
    }

    #[test]
    fn a_key_is_for_the_algorithms_that_it_names() {
        let key = Signer::rsa().public_jwk("a");
        let fits = |key: &Value, algorithm| {
            set(std::slice::from_ref(key)).find(Some("a"), algorithm).is_ok()
        };
        assert!(fits(&key, Algorithm::RS256) && fits(&key, Algorithm::PS256));
        assert!(!fits(&key, Algorithm::RS384), "not allowed by the settings");
        assert!(!fits(&key, Algorithm::HS256) && !fits(&key, Algorithm::ES256));
        let only = changed(key, &json!({"alg": "PS256", "key_ops": ["verify"]}));
        assert!(fits(&only, Algorithm::PS256) && !fits(&only, Algorithm::RS256));
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let key =
            |id: usize| changed(Signer::p256().public_jwk(""), &json!({"kid": id.to_string()}));
        let keys: Vec<_> = (0..=TRIALS_MAX).map(key).collect();
        let all = set(&keys);
        assert_eq!(all.find(None, Algorithm::ES256).err(), Some(NoKey::TooMany));
        assert_eq!(all.find(Some("3"), Algorithm::ES256).map(|found| found.len()), Ok(1));
        let fewer = set(&keys[1..]);
        assert_eq!(fewer.find(None, Algorithm::ES256).map(|found| found.len()), Ok(TRIALS_MAX));
        let many = json!({"keys": vec![json!(null); KEYS_MAX + 1]}).to_string();
        assert!(KeySet::of_json(many.as_bytes(), &ALL).unwrap_err().contains("too many"));
        for other in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":5}"#] {
            assert!(KeySet::of_json(other.as_bytes(), &ALL).is_err(), "{other}");
        }
    }
}
