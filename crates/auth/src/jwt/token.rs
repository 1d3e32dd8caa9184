//! A token before its signature is verified. Nothing that it says is believed here.

use std::str;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::Algorithm;

use super::object::Object;

/// The parts of a token that decide who verifies it, and how.
#[derive(Debug)]
pub(super) struct Unverified<'a> {
    pub(super) text: &'a str,
    pub(super) algorithm: Algorithm,
    /// Identifier under which the key is looked up (`kid`).
    pub(super) key_id: Option<String>,
    /// The issuer (`iss`), if there is one.
    pub(super) issuer: Option<String>,
}

/// Reason for which a text is not used as a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It is something else, such as a password.
    NoToken,
    /// It is a token that nobody could verify. The text is for the log.
    Refused(&'static str),
}

impl<'a> Unverified<'a> {
    /// Takes a token apart. A token is three parts in Base64url, the first of which is a JSON object.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Unusable> {
        let text = str::from_utf8(bytes).map_err(|_| Unusable::NoToken)?;
        let mut parts = text.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Unusable::NoToken);
        };
        let decode =
            |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| Unusable::NoToken);
        let (header, claims) = (decode(header)?, decode(claims)?);
        decode(signature)?;
        if !header.trim_ascii_start().starts_with(b"{") {
            return Err(Unusable::NoToken);
        }
        let refused = Unusable::Refused;
        let header: Object = serde_json::from_slice(&header)
            .map_err(|_| refused("the header of the token is malformed"))?;
        let claims: Object = serde_json::from_slice(&claims)
            .map_err(|_| refused("the claims of the token are malformed"))?;
        // Extensions that must be understood. None of them is (RFC 7515, 4.1.11).
        if header.has("crit") || header.has("b64") {
            return Err(refused("the token has an extension that must be understood"));
        }
        let name: Option<String> =
            header.get("alg").map_err(|_| refused("the token's algorithm is malformed"))?;
        let algorithm = name.and_then(|name| name.parse().ok());
        Ok(Self {
            text,
            algorithm: algorithm
                .ok_or(refused("the token has no signature, or one of an unknown kind"))?,
            key_id: header
                .get("kid")
                .map_err(|_| refused("the token's key identifier is malformed"))?,
            issuer: claims.get("iss").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        format!("{}.{}.{}", encode(header), encode(claims), encode("x"))
    }

    #[test]
    fn what_is_not_a_token_is_left_to_others() {
        for text in [
            "",
            "password",
            "a.b",
            "..",
            "a.b.c.d",
            "eyJhbGciOiJIUzI1NiJ9.e30",
            "eyJhbGciOiJIUzI1NiJ9.e30=.AA",
            "eyJhbGciOiJIUzI1NiJ9. e30.AA",
            "eyJhbGciOiJIUzI1NiJ9.e30.AA.AA.AA",
            "$argon2id$v=19$m=1.e30.AA",
        ] {
            let parsed = Unverified::parse(text.as_bytes()).map(|token| token.algorithm);
            assert_eq!(parsed, Err(Unusable::NoToken), "{text}");
        }
        for header in ["", "[]", "1", "\"{}\""] {
            let text = token(header, "{}");
            assert_eq!(
                Unverified::parse(text.as_bytes()).err(),
                Some(Unusable::NoToken),
                "{header}"
            );
        }
        assert_eq!(Unverified::parse(b"\xff.\xff.\xff").err(), Some(Unusable::NoToken));
    }

    #[test]
    fn what_nobody_could_verify_is_refused() {
        for (header, claims) in [
            ("{}", "{}"),
            (r#"{"alg":"none"}"#, "{}"),
            (r#"{"alg":"None"}"#, "{}"),
            (r#"{"alg":"nOnE"}"#, "{}"),
            (r#"{"alg":""}"#, "{}"),
            (r#"{"alg":"hs256"}"#, "{}"),
            (r#"{"alg":null}"#, "{}"),
            (r#"{"alg":["HS256"]}"#, "{}"),
            (r#"{"alg":"HS256","alg":"none"}"#, "{}"),
            (r#"{"alg":"HS256","kid":5}"#, "{}"),
            (r#"{"alg":"HS256","kid":["a"]}"#, "{}"),
            (r#"{"alg":"HS256","crit":["exp"]}"#, "{}"),
            (r#"{"alg":"HS256","crit":[]}"#, "{}"),
            (r#"{"alg":"HS256","b64":false}"#, "{}"),
            (r#"{"alg":"HS256""#, "{}"),
            (r#"{"alg":"HS256"}"#, "[]"),
            (r#"{"alg":"HS256"}"#, r#"{"a":1,"a":2}"#),
            (r#"{"alg":"HS256"}"#, ""),
        ] {
            let text = token(header, claims);
            let parsed = Unverified::parse(text.as_bytes());
            assert!(matches!(parsed, Err(Unusable::Refused(_))), "{header} {claims}: {parsed:?}");
        }
    }

    #[test]
    fn only_what_is_needed_is_read() {
        let text = token(
            r#"{"alg":"RS256","kid":"../../etc/passwd","jku":"http://evil/","jwk":{},"typ":5}"#,
            r#"{"iss":"me","exp":"x"}"#,
        );
        let token = Unverified::parse(text.as_bytes()).unwrap();
        assert_eq!(token.algorithm, Algorithm::RS256);
        assert_eq!(token.key_id.as_deref(), Some("../../etc/passwd"));
        assert_eq!(token.issuer.as_deref(), Some("me"));
    }
}
