//! Shared access signatures: tokens that prove possession of a key without revealing it.
//!
//! `SharedAccessSignature sr=<scope>&sig=<signature>&se=<seconds since 1970>&skn=<name of the key>`, with the
//! fields in any order. The signature is HMAC-SHA256 over the scope, a line feed and the expiry, with the text of
//! the key.

use std::time::Duration;

use barid_core::time::WallTime;
use data_encoding::BASE64;
use percent_encoding::percent_decode_str;
use ring::hmac;
use thiserror::Error;

const PREFIX: &str = "SharedAccessSignature ";

/// Maximum length of a token, in bytes. A longer one counts as malformed.
const TOKEN_MAX: usize = 4 * 1024;

/// A token as a client has sent it. Its signature may be wrong.
#[derive(Debug)]
pub struct Token<'a> {
    /// The scope, still percent-encoded, because this form was signed.
    scope: &'a str,
    signature: Vec<u8>,
    /// The expiry as text, because this form was signed.
    expiry: &'a str,
    expires_at: WallTime,
    /// The name of the key, `{tenant}/{name}` or `{name}`.
    pub key_name: String,
}

/// Reason for which a token is not accepted. Reveals nothing about the key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidToken {
    /// The text is not a shared access signature.
    #[error("the token is not a shared access signature")]
    Malformed,
    /// The token has expired. It was signed with the right key.
    #[error("the token has expired")]
    Expired,
    /// There is no such key, or the signature was made with another one.
    #[error("the signature is invalid, or the key is unknown")]
    Signature,
}

impl<'a> Token<'a> {
    /// Parses a token.
    ///
    /// # Errors
    /// [`InvalidToken::Malformed`].
    pub fn parse(text: &'a str) -> Result<Self, InvalidToken> {
        let fields = text.strip_prefix(PREFIX).filter(|_| text.len() <= TOKEN_MAX);
        let (mut scope, mut signature, mut expiry, mut key_name) = (None, None, None, None);
        for field in fields.ok_or(InvalidToken::Malformed)?.split('&') {
            let (name, value) = field.split_once('=').ok_or(InvalidToken::Malformed)?;
            let place = match name {
                "sr" => &mut scope,
                "sig" => &mut signature,
                "se" => &mut expiry,
                "skn" => &mut key_name,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(InvalidToken::Malformed);
            }
        }
        let all = (|| Some((scope?, signature?, expiry?, key_name?)))();
        let (scope, signature, expiry, key_name) = all.ok_or(InvalidToken::Malformed)?;
        let seconds: u64 = expiry.parse().map_err(|_| InvalidToken::Malformed)?;
        let signature: Vec<u8> = percent_decode_str(signature).collect();
        Ok(Self {
            scope,
            signature: BASE64.decode(&signature).map_err(|_| InvalidToken::Malformed)?,
            expiry,
            expires_at: WallTime::default().after(Duration::from_secs(seconds)),
            key_name: name_of(key_name)?,
        })
    }

    /// Checks that the token was signed with `key`. Returns the time until which it is valid.
    ///
    /// # Errors
    /// [`InvalidToken::Signature`]; [`InvalidToken::Expired`].
    pub fn verify(&self, key: &str, now: WallTime) -> Result<WallTime, InvalidToken> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        let signed = format!("{}\n{}", self.scope, self.expiry);
        hmac::verify(&key, signed.as_bytes(), &self.signature)
            .map_err(|_| InvalidToken::Signature)?;
        if self.expires_at <= now {
            return Err(InvalidToken::Expired);
        }
        Ok(self.expires_at)
    }

    /// Returns the decoded scope.
    ///
    /// # Errors
    /// [`InvalidToken::Malformed`].
    pub fn scope(&self) -> Result<String, InvalidToken> {
        decode(self.scope)
    }
}

/// Decodes the name of a key. Some clients encode it twice; no name contains a percent sign.
fn name_of(text: &str) -> Result<String, InvalidToken> {
    let name = decode(text)?;
    if name.contains('%') { decode(&name) } else { Ok(name) }
}

/// Decodes a field. Some clients write a space as a plus sign; all clients percent-encode a plus sign.
fn decode(text: &str) -> Result<String, InvalidToken> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| InvalidToken::Malformed)?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "SAS_KEY_VALUE";

    fn token(scope: &str, expiry: u64, key: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        let signature = hmac::sign(&key, format!("{scope}\n{expiry}").as_bytes());
        let signature = BASE64.encode(signature.as_ref());
        let signature = signature.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D");
        format!("SharedAccessSignature sr={scope}&sig={signature}&se={expiry}&skn=acme%2Fworkers")
    }

    fn at(seconds: u64) -> WallTime {
        WallTime::from_millis(seconds * 1_000)
    }

    #[test]
    fn who_has_the_key_signs_for_a_scope_and_a_time() {
        for scope in ["sb%3A%2F%2Flocalhost%2Fsq", "sb%3a%2f%2flocalhost%2fsq"] {
            let text = token(scope, 2_000, KEY);
            let token = Token::parse(&text).unwrap();
            assert_eq!(token.key_name, "acme/workers");
            assert_eq!(token.scope().unwrap(), "sb://localhost/sq");
            assert_eq!(token.verify(KEY, at(1_999)), Ok(at(2_000)));
            assert_eq!(token.verify(KEY, at(2_000)), Err(InvalidToken::Expired));
            assert_eq!(token.verify("another", at(1_999)), Err(InvalidToken::Signature));
        }
    }

    #[test]
    fn what_was_signed_cannot_be_changed() {
        let text = token("sb%3A%2F%2Flocalhost%2Fsq", 2_000, KEY);
        for (from, to) in [("sq&", "other&"), ("se=2000", "se=3000")] {
            let forged = text.replace(from, to);
            assert_ne!(forged, text);
            let token = Token::parse(&forged).unwrap();
            assert_eq!(token.verify(KEY, at(1_999)), Err(InvalidToken::Signature));
        }
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let long = format!("SharedAccessSignature sr={}&sig=&se=1&skn=k", "x".repeat(TOKEN_MAX));
        for text in [
            "",
            "jwt",
            "SharedAccessSignature ",
            "SharedAccessSignature sr=a&sig=AA%3D%3D&se=1",
            "SharedAccessSignature sr=a&sig=AA%3D%3D&se=x&skn=k",
            "SharedAccessSignature sr=a&sig=!&se=1&skn=k",
            "SharedAccessSignature sr=a&sr=b&sig=AA%3D%3D&se=1&skn=k",
            "SharedAccessSignature sr=a&sig=AA%3D%3D&se=1&skn=%ff",
            "SharedAccessSignature sr=a&sig=AA%3D%3D&se=1&skn=%25ff",
            &long,
        ] {
            assert_eq!(Token::parse(text).unwrap_err(), InvalidToken::Malformed, "{text:.60}");
        }
    }
}
