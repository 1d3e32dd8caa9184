//! The verification of a token with the keys that may have signed it.

use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode};

use super::keys::{KeySet, NoKey};
use super::object::Object;

/// A token, and the keys with which it is tried.
pub(super) struct Trial {
    pub(super) text: Box<str>,
    /// As in the token (`kid`).
    pub(super) key_id: Option<String>,
    pub(super) keys: Arc<KeySet>,
    /// Allows the algorithm of the token, and no other.
    pub(super) validation: Validation,
}

impl Trial {
    /// Whether this takes microseconds: a single HMAC.
    pub(super) fn is_fast(&self) -> bool {
        use Algorithm::{HS256, HS384, HS512};
        self.validation.algorithms.iter().all(|one| matches!(one, HS256 | HS384 | HS512))
    }

    /// Verifies the signature of a token, and the claims that say when and for whom it is valid.
    pub(super) fn verify(&self) -> Result<Object, &'static str> {
        let [algorithm] = self.validation.algorithms[..] else { return Err(MALFORMED) };
        let keys = self.keys.find(self.key_id.as_deref(), algorithm).map_err(describe_missing)?;
        let mut wrong = "the signature of the token is wrong";
        for key in keys {
            match decode(&*self.text, &key.key, &self.validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {}
                Err(error) => wrong = describe(error.kind()),
            }
        }
        Err(wrong)
    }
}

/// Returns the reason for a token for which there is no key.
pub(super) fn describe_missing(reason: NoKey) -> &'static str {
    match reason {
        NoKey::UnknownId => "the issuer has no key with the token's key identifier",
        NoKey::OtherAlgorithm => "no key may be used with the token's algorithm",
        NoKey::TooMany => "the token has no key identifier, and there are too many keys to try",
    }
}

const MALFORMED: &str = "the token is malformed";

/// The reason for a token with an audience that the settings do not name.
pub(super) const OTHER_AUDIENCE: &str = "the token is for another audience";

fn describe(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid at this time (`nbf`)",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAudience => OTHER_AUDIENCE,
        ErrorKind::MissingRequiredClaim(claim) => match &**claim {
            "exp" => "the token has no valid expiry (`exp`)",
            "aud" => "the token is for no audience (`aud`)",
            _ => "the token lacks a required claim",
        },
        ErrorKind::InvalidClaimFormat(_) => "a time in the token is not a number",
        _ => MALFORMED,
    }
}
