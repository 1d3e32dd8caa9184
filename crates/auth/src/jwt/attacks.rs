//! Tokens that somebody has forged, and tokens that make trouble.

use jsonwebtoken::decode;
use jsonwebtoken::errors::ErrorKind;
use serde_json::{Value, json};

use super::signing_for_tests::{Signer, claims, file, with, with_public_key, with_secret};
use super::*;
use crate::for_tests::credentials;

/// Returns why a token is not accepted.
async fn why_not(jwt: &Jwt, token: impl AsRef<[u8]>) -> &'static str {
    match jwt.decide(&credentials(Some("ada"), token)).await {
        Answer::Refused(reason) => reason,
        Answer::Unknown => "unknown",
        other => panic!("{other:?}"),
    }
}

async fn is_accepted(jwt: &Jwt, token: impl AsRef<[u8]>) -> bool {
    matches!(jwt.decide(&credentials(Some("ada"), token)).await, Answer::Accepted(_))
}

fn signed(claims: &str) -> String {
    Signer::secret().token_with(&json!({"alg": "HS256"}), claims)
}

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let rsa = Signer::rsa();
    for jwt in [with_secret(json!({})), with_public_key(&rsa, &["RS256"])] {
        for algorithm in ["none", "None", "NONE", "nOnE", " none", "none ", "", "null"] {
            let signed = Signer::secret().token(algorithm, &claims(json!({})));
            let (unsigned, _) = signed.rsplit_once('.').unwrap();
            for token in [format!("{unsigned}."), signed.clone()] {
                let reason = why_not(&jwt, token).await;
                assert_eq!(reason, "the token has no signature, or one of an unknown kind");
            }
            assert_eq!(why_not(&jwt, unsigned).await, "unknown", "two parts are no token");
        }
    }
    // A signature may not be left out under an algorithm that is allowed either.
    let signed = signed(&claims(json!({})).to_string());
    let (unsigned, _) = signed.rsplit_once('.').unwrap();
    let reason = why_not(&with_secret(json!({})), format!("{unsigned}.")).await;
    assert_eq!(reason, "the signature of the token is wrong");
}

/// A public key is not secret, so an HMAC with it as the secret says nothing (key confusion).
#[tokio::test]
async fn a_public_key_is_not_a_secret() {
    for (signer, algorithm) in [(Signer::rsa(), "RS256"), (Signer::p256(), "ES256")] {
        let jwt = with_public_key(&signer, &[algorithm]);
        let pem = signer.public_pem();
        for secret in [pem.as_bytes(), pem.trim().as_bytes(), b""] {
            let forger = Signer::Secret(secret.to_vec());
            for hmac in ["HS256", "HS384", "HS512"] {
                let reason = why_not(&jwt, forger.token(hmac, &claims(json!({})))).await;
                assert_eq!(reason, "the token's algorithm is not in `algorithms`");
            }
        }
    }
    // Should such a setting come through, the provider refuses the key.
    ring_provider::install();
    let token = Signer::Secret(b"key".to_vec()).token("HS256", &claims(json!({})));
    let key = jsonwebtoken::DecodingKey::from_ec_der(b"key");
    let decoded = decode::<Object>(token, &key, &Validation::default());
    assert_eq!(*decoded.unwrap_err().kind(), ErrorKind::InvalidAlgorithm);
}

#[tokio::test]
async fn an_algorithm_that_is_not_listed_is_refused() {
    let rsa = Signer::rsa();
    let jwt = with_public_key(&rsa, &["RS256"]);
    assert!(is_accepted(&jwt, rsa.token("RS256", &claims(json!({})))).await);
    for other in ["RS384", "RS512", "PS256", "PS384", "PS512"] {
        let reason = why_not(&jwt, rsa.token(other, &claims(json!({})))).await;
        assert_eq!(reason, "the token's algorithm is not in `algorithms`", "{other}");
    }
    // The algorithm is part of what is signed.
    let token = rsa.token("RS256", &claims(json!({})));
    let (_, rest) = token.split_once('.').unwrap();
    let both = with_public_key(&rsa, &["RS256", "PS256"]);
    let header = data_encoding::BASE64URL_NOPAD.encode(br#"{"alg":"PS256","typ":"JWT"}"#);
    assert_eq!(
        why_not(&both, format!("{header}.{rest}")).await,
        "the signature of the token is wrong"
    );
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_is_not_used() {
    let (own, evil) = (Signer::p256(), Signer::p256());
    let jwt = with_public_key(&own, &["ES256"]);
    for header in [
        json!({"alg": "ES256", "jwk": evil.public_jwk("a")}),
        json!({"alg": "ES256", "jku": "http://127.0.0.1:1/keys", "kid": "a"}),
        json!({"alg": "ES256", "x5u": "http://127.0.0.1:1/chain"}),
        json!({"alg": "ES256", "x5c": ["AAAA"], "x5t": "a"}),
        json!({"alg": "ES256", "kid": "/dev/null"}),
        json!({"alg": "ES256", "kid": "../../../../etc/passwd"}),
        json!({"alg": "ES256", "kid": "a' UNION SELECT 'key' --"}),
        json!({"alg": "ES256", "kid": "a\u{0}b"}),
    ] {
        let token = evil.token_with(&header, &claims(json!({})).to_string());
        assert_eq!(why_not(&jwt, token).await, "the signature of the token is wrong", "{header}");
    }
    // These headers do not harm either.
    let header =
        json!({"alg": "ES256", "jwk": evil.public_jwk("a"), "jku": "x", "kid": "/etc/passwd"});
    assert!(is_accepted(&jwt, own.token_with(&header, &claims(json!({})).to_string())).await);
}

#[tokio::test]
async fn a_signature_over_something_else_is_wrong() {
    let jwt = with_secret(json!({}));
    let (ada, root) = (signed(&claims(json!({})).to_string()), claims(json!({"sub": "root"})));
    let parts: Vec<_> = ada.split('.').collect();
    let other = data_encoding::BASE64URL_NOPAD.encode(root.to_string().as_bytes());
    let reason = why_not(&jwt, format!("{}.{other}.{}", parts[0], parts[2])).await;
    assert_eq!(reason, "the signature of the token is wrong");
    let long = format!("{ada}{}", "A".repeat(4));
    assert_eq!(why_not(&jwt, long).await, "the signature of the token is wrong");
    let p256 = Signer::p256();
    let jwt = with_public_key(&p256, &["ES256"]);
    let token = p256.token("ES256", &claims(json!({})));
    let (message, _) = token.rsplit_once('.').unwrap();
    // CVE-2022-21449: some implementations accept the signature 0, 0.
    let zeros = data_encoding::BASE64URL_NOPAD.encode(&[0; 64]);
    assert_eq!(
        why_not(&jwt, format!("{message}.{zeros}")).await,
        "the signature of the token is wrong"
    );
}

#[tokio::test]
async fn times_are_checked() {
    let jwt = with_secret(json!({"leeway": 60}));
    let now = get_current_timestamp();
    for (more, reason) in [
        (json!({"exp": now - 120}), "the token has expired"),
        (json!({"exp": 0}), "the token has expired"),
        (json!({"exp": now as f64 - 120.5}), "the token has expired"),
        (json!({"nbf": now + 120}), "the token is not valid at this time (`nbf`)"),
        (json!({"nbf": 1e18}), "the token is not valid at this time (`nbf`)"),
        (json!({"iat": now + 120}), "the token was issued in the future"),
        (json!({"iat": 1e300}), "the token was issued in the future"),
        (json!({"iat": "now"}), "a time in the token is not a number"),
        (json!({"nbf": "now"}), "a time in the token is not a number"),
        (json!({"nbf": null}), "a time in the token is not a number"),
        (json!({"exp": (now + 60).to_string()}), "the token has no valid expiry (`exp`)"),
        (json!({"exp": null}), "the token has no valid expiry (`exp`)"),
        (json!({"exp": true}), "the token has no valid expiry (`exp`)"),
        (json!({"exp": [now + 60]}), "the token has no valid expiry (`exp`)"),
        (json!({"exp": {"a": 1}}), "the token is malformed"),
        (json!({"exp": -1}), "the token has no valid expiry (`exp`)"),
        (json!({"exp": 1e300}), "the token has no valid expiry (`exp`)"),
    ] {
        let refused = why_not(&jwt, signed(&claims(more.clone()).to_string())).await;
        assert!(refused == reason || refused == "the token is malformed", "{more}: {refused}");
        // What is malformed is not taken for something that is absent.
        let lax = with_secret(json!({"require_expiry": false}));
        assert!(!is_accepted(&lax, signed(&claims(more.clone()).to_string())).await, "{more}");
    }
    for fine in [
        json!({"exp": now - 30}),
        json!({"exp": now as f64 + 0.5}),
        json!({"nbf": now + 30, "iat": now + 30}),
        json!({"exp": u64::MAX}),
        json!({"exp": 1e17, "iat": -1, "nbf": 0}),
    ] {
        assert!(is_accepted(&jwt, signed(&claims(fine.clone()).to_string())).await, "{fine}");
    }
    let none = signed(r#"{"sub":"ada"}"#);
    assert_eq!(why_not(&jwt, &none).await, "the token has no valid expiry (`exp`)");
    assert!(is_accepted(&with_secret(json!({"require_expiry": false})), &none).await);
}

#[tokio::test]
async fn issuer_and_audience_are_checked() {
    let jwt = with_secret(json!({"issuer": "me", "audience": ["mqtt", "amqp"]}));
    let answer = async |more: Value| why_not(&jwt, signed(&claims(more).to_string())).await;
    for fine in [json!("mqtt"), json!(["other", "amqp"])] {
        assert!(
            is_accepted(&jwt, signed(&claims(json!({"iss": "me", "aud": fine})).to_string())).await
        );
    }
    for other in [json!("you"), json!("Me"), json!(["me"]), json!(null), json!(5)] {
        assert_eq!(answer(json!({"iss": other, "aud": "mqtt"})).await, "unknown");
    }
    assert_eq!(answer(json!({"aud": "mqtt"})).await, "unknown", "no issuer");
    for other in [json!("http"), json!(["http"]), json!([])] {
        assert_eq!(
            answer(json!({"iss": "me", "aud": other})).await,
            "the token is for another audience"
        );
    }
    for none in
        [json!({"iss": "me"}), json!({"iss": "me", "aud": 5}), json!({"iss": "me", "aud": null})]
    {
        assert_eq!(answer(none).await, "the token is for no audience (`aud`)");
    }
    // Whoever is not named must not accept a token with an audience (RFC 7519, 4.1.3).
    let nobody = with_secret(json!({}));
    for aud in [json!("mqtt"), json!([]), json!(5), json!(null)] {
        let refused = why_not(&nobody, signed(&claims(json!({"aud": aud})).to_string())).await;
        assert_eq!(refused, "the token is for another audience");
    }
    assert!(is_accepted(&nobody, signed(&claims(json!({"iss": "anybody"})).to_string())).await);
}

#[tokio::test]
async fn a_claim_that_occurs_twice_is_refused() {
    let jwt = with_secret(json!({}));
    let later = get_current_timestamp() + 60;
    for twice in [
        format!(r#"{{"sub":"ada","exp":{later},"sub":"root"}}"#),
        format!(r#"{{"sub":"root","exp":{later},"sub":"ada"}}"#),
        format!(r#"{{"sub":"ada","exp":1,"exp":{later}}}"#),
        format!(r#"{{"sub":"ada","exp":{later},"s\u0075b":"root"}}"#),
        format!(r#"{{"sub":"ada","exp":{later},"barid":{{}},"barid":{{}}}}"#),
    ] {
        assert_eq!(why_not(&jwt, signed(&twice)).await, "the claims of the token are malformed");
    }
    let nested =
        format!(r#"{{"sub":"ada","exp":{later},"barid":{{"publish":[],"publish":["a"]}}}}"#);
    assert!(
        why_not(&jwt, signed(&nested)).await.starts_with("the rights in the token are invalid")
    );
    let headers = r#"{"alg":"HS256","kid":"a","kid":"b"}"#;
    let token = Signer::secret().token_with(&headers, &claims(json!({})).to_string());
    assert_eq!(why_not(&jwt, token).await, "the header of the token is malformed");
}

#[tokio::test]
async fn a_token_cannot_make_work() {
    let jwt = with_secret(json!({}));
    let filled = |len| signed(&claims(json!({"x": "x".repeat(len)})).to_string());
    let fits = filled(PASSWORD_MAX / 4 * 3 - 200);
    assert!(fits.len() <= PASSWORD_MAX && is_accepted(&jwt, &fits).await);
    let long = filled(PASSWORD_MAX);
    assert_eq!(why_not(&jwt, &long).await, "the token is too long");
    assert_eq!(why_not(&jwt, "x".repeat(PASSWORD_MAX + 1)).await, "the token is too long");
    assert_eq!(why_not(&jwt, ".".repeat(PASSWORD_MAX)).await, "unknown");
    // Parsers that call themselves run out of stack.
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for claims in [
        format!(r#"{{"sub":{deep}}}"#),
        format!(r#"{{"barid":{deep}}}"#),
        format!(r#"{{"iss":{deep}}}"#),
        format!(r#"{{"aud":{deep}}}"#),
        format!(r#"{{"x":{deep}}}"#),
        deep.clone(),
    ] {
        assert!(!is_accepted(&jwt, signed(&claims)).await);
    }
    for name in ["alg", "kid", "jwk", "x", "crit"] {
        let header = format!(r#"{{"alg":"HS256","{name}":{deep}}}"#);
        let token = Signer::secret().token_with(&header, &claims(json!({})).to_string());
        assert!(!is_accepted(&jwt, token).await, "{name}");
    }
    let many: Vec<_> = (0..1_000).map(|number| format!(r#""{number}":0"#)).collect();
    let later = get_current_timestamp() + 60;
    let many = format!(r#"{{"sub":"ada","exp":{later},{}}}"#, many.join(","));
    assert!(is_accepted(&jwt, signed(&many)).await);
}

/// The log gets the reasons, and Debug output may get there by mistake.
#[tokio::test]
async fn secrets_are_not_shown() {
    let (_directory, key) = file(super::signing_for_tests::SECRET);
    let jwt = with(json!({"secret_file": key, "algorithms": ["HS256"]}), json!({}));
    let shown = format!("{jwt:?}");
    assert!(!shown.contains("thirty-two") && !shown.contains("97, 32, 115"), "{shown}");
}

proptest::proptest! {
    /// Whatever a client sends, the back end has an answer, and lets nobody in.
    #[test]
    fn nothing_that_was_not_signed_is_accepted(
        header in "[ -~]{0,40}",
        claims in "[ -~]{0,60}",
        signature in "[A-Za-z0-9_-]{0,50}",
        cut in 0..200_usize,
    ) {
        let encode = |text: &str| data_encoding::BASE64URL_NOPAD.encode(text.as_bytes());
        let whole = format!("{}.{}.{signature}", encode(&header), encode(&claims));
        let shown = &whole[..cut.min(whole.len())];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let jwt = with_secret(json!({}));
        for token in [&whole, shown, &header] {
            proptest::prop_assert!(!runtime.block_on(is_accepted(&jwt, token)));
        }
    }
}
