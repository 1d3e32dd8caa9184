use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use barid_core::time::WallTime;
use barid_engine::rights::Rights;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::signing_for_tests::{Signer, claims, file, with, with_public_key, with_secret};
use super::*;
use crate::for_tests::{credentials, serve};

/// Decides on a token in the password.
async fn decide(jwt: &Jwt, user: Option<&str>, token: impl AsRef<[u8]>) -> Answer {
    jwt.decide(&credentials(user, token)).await
}

async fn accepted(jwt: &Jwt, user: Option<&str>, token: impl AsRef<[u8]>) -> Accepted {
    match decide(jwt, user, token).await {
        Answer::Accepted(accepted) => *accepted,
        other => panic!("{other:?}"),
    }
}

async fn refused(jwt: &Jwt, user: Option<&str>, token: impl AsRef<[u8]>) -> &'static str {
    match decide(jwt, user, token).await {
        Answer::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// Returns a token signed with the secret.
fn token(more: Value) -> String {
    Signer::secret().token("HS256", &claims(more))
}

fn settings(json: Value) -> Result<(), String> {
    let settings: Result<JwtSettings, _> = serde_json::from_value(json);
    settings.map_err(|error| error.to_string())?.check()
}

#[tokio::test]
async fn every_algorithm_is_verified_with_its_key() {
    let (rsa, p256, p384, ed25519) =
        (Signer::rsa(), Signer::p256(), Signer::p384(), Signer::ed25519());
    for (signer, algorithms) in [
        (&rsa, &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"][..]),
        (&p256, &["ES256"]),
        (&p384, &["ES384"]),
        (&ed25519, &["EdDSA"]),
    ] {
        let jwt = with_public_key(signer, algorithms);
        for algorithm in algorithms {
            let token = signer.token(algorithm, &claims(json!({})));
            let accepted = accepted(&jwt, Some("ada"), &token).await;
            assert_eq!(&*accepted.user, "default/ada");
            let changed = format!("{}A", &token[..token.len() - 1]);
            let other = format!("{}B", &token[..token.len() - 1]);
            for forged in [changed, other].iter().filter(|forged| **forged != token) {
                let answer = decide(&jwt, Some("ada"), forged).await;
                assert!(!matches!(answer, Answer::Accepted(_)), "{algorithm}");
            }
        }
    }
    for algorithm in ["HS256", "HS384", "HS512"] {
        let jwt = with_secret(json!({"algorithms": [algorithm]}));
        let token = Signer::secret().token(algorithm, &claims(json!({})));
        accepted(&jwt, Some("ada"), token).await;
    }
}

/// The examples of RFC 7515, appendix A, which another implementation has signed. They have expired, which is
/// only checked if the signature is right.
#[tokio::test]
async fn the_examples_of_the_standard_are_verified() {
    const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let secret =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow==";
    let secret = secret.replace('-', "+").replace('_', "/");
    let (_directory, file) = file(secret);
    let settings =
        json!({"secret_file": file, "secret_encoding": "base64", "algorithms": ["HS256"]});
    let jwt = with(settings, json!({}));
    let signature = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let token = format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}.{signature}");
    assert_eq!(refused(&jwt, Some("joe"), token).await, "the token has expired");

    let set = json!({"keys": [
        {"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"},
        {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    ]});
    let (url, _) = serve(move |_| (200, set.to_string())).await;
    let jwt = with(json!({"jwks_url": url, "algorithms": ["RS256", "ES256"]}), json!({}));
    read_keys(&jwt).await;
    for (header, signature) in [
        (
            "eyJhbGciOiJSUzI1NiJ9",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            "eyJhbGciOiJFUzI1NiJ9",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ] {
        let token = format!("{header}.{CLAIMS}.{signature}");
        assert_eq!(refused(&jwt, Some("joe"), token).await, "the token has expired", "{header}");
    }
}

#[tokio::test]
async fn a_file_may_contain_several_public_keys() {
    let (old, new, other) = (Signer::p256(), Signer::p256(), Signer::p256());
    let (_directory, file) = file(old.public_pem() + &new.public_pem());
    let jwt = with(json!({"public_key_file": file, "algorithms": ["ES256"]}), json!({}));
    for signer in [&old, &new] {
        accepted(&jwt, None, signer.token("ES256", &claims(json!({})))).await;
    }
    let forged = other.token("ES256", &claims(json!({})));
    assert_eq!(refused(&jwt, None, forged).await, "the signature of the token is wrong");
}

#[tokio::test]
async fn the_user_is_that_of_the_token() {
    let jwt = with_secret(json!({}));
    assert_eq!(&*accepted(&jwt, None, token(json!({}))).await.user, "default/ada");
    assert_eq!(&*accepted(&jwt, Some("ada"), token(json!({}))).await.user, "default/ada");
    for (user, reason) in [
        ("bob", "the token is for another user than the user name"),
        ("default/Ada", "the token is for another user than the user name"),
        ("acme/ada", "the token is for another tenant than the user name"),
        ("default/acme/ada", "the token is for another user than the user name"),
    ] {
        assert_eq!(refused(&jwt, Some(user), token(json!({}))).await, reason, "{user}");
    }
    // A slash in the claim does not lead to another tenant.
    let slash = token(json!({"sub": "acme/ada"}));
    assert_eq!(&*accepted(&jwt, None, &slash).await.user, "default/acme/ada");
    assert!(refused(&jwt, Some("acme/ada"), &slash).await.contains("another tenant"));
    // Without the claim, the token is for all users of its tenant.
    let anybody = token(json!({"sub": null}));
    assert!(refused(&jwt, Some("bob"), &anybody).await.contains("not a text"));
    let mut anybody = claims(json!({}));
    anybody.as_object_mut().unwrap().remove("sub");
    let anybody = Signer::secret().token("HS256", &anybody);
    assert_eq!(&*accepted(&jwt, Some("bob"), &anybody).await.user, "default/bob");
    assert!(refused(&jwt, Some("acme/bob"), &anybody).await.contains("another tenant"));
    assert!(refused(&jwt, None, &anybody).await.contains("names a user"));
    for bad in [json!(""), json!("a\u{0}"), json!("a\nb"), json!(5)] {
        let reason = refused(&jwt, None, token(json!({"sub": bad}))).await;
        assert!(reason.contains("user claim"), "{reason}");
    }
    let reason = refused(&jwt, None, token(json!({"sub": ["ada"]}))).await;
    assert_eq!(reason, "the token is malformed");
}

#[tokio::test]
async fn the_user_need_not_be_that_of_the_token_if_so_configured() {
    let jwt = with_secret(json!({"verify_user": false, "user_claim": "name"}));
    let token = token(json!({"name": "ada"}));
    assert_eq!(&*accepted(&jwt, Some("bob"), &token).await.user, "default/bob");
    assert_eq!(&*accepted(&jwt, None, &token).await.user, "default/ada");
    assert!(refused(&jwt, Some("acme/ada"), &token).await.contains("another tenant"));
}

#[tokio::test]
async fn the_tenant_is_that_of_the_claim() {
    let jwt = with_secret(json!({"tenant_claim": "org"}));
    let acme = token(json!({"org": "acme"}));
    for user in [None, Some("acme/ada")] {
        assert_eq!(&*accepted(&jwt, user, &acme).await.user, "acme/ada");
    }
    for user in ["ada", "other/ada", "acme/bob", "acme/acme/ada"] {
        assert!(refused(&jwt, Some(user), &acme).await.contains("another"), "{user}");
    }
    for bad in [json!(""), json!("a/b"), json!("a b"), json!("+"), json!("t".repeat(65)), json!(7)]
    {
        let reason = refused(&jwt, None, token(json!({"org": bad}))).await;
        assert!(reason.contains("tenant claim"), "{reason}");
    }
    assert_eq!(refused(&jwt, None, token(json!({}))).await, "the token has no tenant claim");
}

#[tokio::test]
async fn the_tenant_is_the_configured_one_or_in_the_name() {
    let jwt = with_secret(json!({"tenant": "acme"}));
    assert_eq!(&*accepted(&jwt, Some("acme/ada"), token(json!({}))).await.user, "acme/ada");
    assert!(refused(&jwt, Some("ada"), token(json!({}))).await.contains("another tenant"));
    let jwt = with_secret(json!({"full_names": true}));
    let full = token(json!({"sub": "acme/ada"}));
    assert_eq!(&*accepted(&jwt, None, &full).await.user, "acme/ada");
    assert!(refused(&jwt, Some("other/ada"), &full).await.contains("another tenant"));
    for (bad, reason) in
        [("ada", "no tenant"), ("a b/ada", "valid tenant"), ("/ada", "valid tenant")]
    {
        let refused = refused(&jwt, None, token(json!({"sub": bad}))).await;
        assert!(refused.contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn the_token_may_be_the_user_name() {
    let jwt = with_secret(json!({"token": "username", "tenant_claim": "org"}));
    let shown = token(json!({"org": "acme"}));
    let accepted = accepted(&jwt, Some(&shown), "").await;
    assert_eq!(&*accepted.user, "acme/ada");
    for (user, password) in [(None, &*shown), (Some("acme/x"), &shown), (Some("ada"), &shown)] {
        assert_eq!(decide(&jwt, user, password).await, Answer::Unknown);
    }
    let with_tenant = format!("acme/{shown}");
    assert_eq!(decide(&jwt, Some(&with_tenant), "").await, Answer::Unknown);
}

#[tokio::test]
async fn the_client_identifier_may_be_in_the_token() {
    let jwt = with_secret(json!({"client_id_claim": "cid"}));
    accepted(&jwt, None, token(json!({}))).await;
    accepted(&jwt, None, token(json!({"cid": "c1"}))).await;
    for (bad, reason) in [
        (json!("c2"), "the token is for another client identifier"),
        (json!(""), "the token is for another client identifier"),
        (json!(1), "the client identifier claim is not a text"),
        (json!(null), "the client identifier claim is not a text"),
    ] {
        assert_eq!(refused(&jwt, None, token(json!({"cid": bad}))).await, reason);
    }
}

#[tokio::test]
async fn the_rights_are_those_of_the_token() {
    let jwt = with_secret(json!({}));
    let rights = async |more| accepted(&jwt, None, token(more)).await.rights;
    assert_eq!(rights(json!({})).await, Rights::default());
    let own = json!({"publish": ["up/%c"], "rules": [{"deny": "all", "topics": ["x"]}]});
    let expected: Rights = serde_json::from_value(own.clone()).unwrap();
    assert_eq!(rights(json!({"barid": own, "acl": {"pub": ["#"]}})).await, expected);
    let acl = json!([{"permission": "allow", "action": "publish", "topic": "up/${clientid}"}]);
    let expected: Rights =
        serde_json::from_value(json!({"rules": [{"allow": "publish", "topics": ["up/%c"]}]}))
            .unwrap();
    assert_eq!(rights(json!({"acl": acl})).await, expected);
    for bad in [
        json!({"barid": {"publsh": []}}),
        json!({"barid": []}),
        json!({"barid": null}),
        json!({"barid": {"publish": ["a/#/b"]}}),
        json!({"barid": {"publish": vec!["a"; 1_001]}}),
        json!({"acl": [{"permission": "deny", "action": "subscribe", "topic": "eq #"}]}),
        json!({"acl": "all"}),
        json!({"sub": "a+", "barid": {"publish": ["%u"]}}),
    ] {
        let reason = refused(&jwt, None, token(bad.clone())).await;
        assert!(reason.starts_with("the rights in the token are invalid"), "{bad}: {reason}");
    }
    let other = with_secret(json!({"rights_claim": "mine", "acl_claim": ""}));
    let shown = token(json!({"mine": {"publish": []}, "barid": 5, "acl": 5}));
    assert_eq!(accepted(&other, None, shown).await.rights.publish, Some(vec![]));
}

#[tokio::test]
async fn the_connection_ends_with_the_token() {
    let jwt = with_secret(json!({"leeway": 10}));
    let expiry = get_current_timestamp() + 100;
    let first = accepted(&jwt, None, token(json!({"exp": expiry}))).await;
    assert_eq!(first.expires, Some(WallTime::from_millis((expiry + 10) * 1_000)));
    let again = accepted(&jwt, None, token(json!({"exp": expiry}))).await;
    let other = accepted(&jwt, None, token(json!({"exp": expiry + 1}))).await;
    assert!(first.proof == again.proof && first.proof != other.proof);
    assert_eq!(jwt.renew("default/ada", first.proof).await, Renewal::LogInAgain);
}

/// Waits until the keys at the URL were read.
async fn read_keys(jwt: &Jwt) {
    jwt.start(&Handle::current());
    let Keys::AtUrl(jwks) = &jwt.keys else { panic!("the keys are in a file") };
    for _ in 0..200 {
        if !matches!(
            jwks.find(None, jsonwebtoken::Algorithm::HS256).await,
            Err(Missing::Unavailable(_))
        ) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the keys were not read");
}

fn set(signers: &[(&str, &Signer)]) -> String {
    let keys: Vec<_> = signers.iter().map(|(id, signer)| signer.public_jwk(id)).collect();
    json!({"keys": keys}).to_string()
}

fn token_with_id(signer: &Signer, algorithm: &str, id: &str) -> String {
    signer.token_with(&json!({"alg": algorithm, "kid": id}), &claims(json!({})).to_string())
}

/// Returns a back end that asks again after a moment.
fn at_url(url: &str, pause: Duration) -> Jwt {
    let settings = json!({"jwks_url": format!("{url}/keys?secret"), "timeout_ms": 1_000,
        "algorithms": ["RS256", "ES256", "ES384", "EdDSA"]});
    let mut jwt = with(settings, json!({}));
    let Keys::AtUrl(jwks) = &mut jwt.keys else { panic!("the keys are in a file") };
    Arc::get_mut(jwks).unwrap().pause = pause;
    jwt
}

#[tokio::test]
async fn keys_are_found_by_their_identifier() {
    let (rsa, p256, p384, ed25519, unnamed) =
        (Signer::rsa(), Signer::p256(), Signer::p384(), Signer::ed25519(), Signer::p256());
    let all = set(&[("a", &rsa), ("b", &p256), ("c", &p384), ("d", &ed25519), ("e", &unnamed)]);
    let (url, log) = serve(move |_| (200, all.clone())).await;
    let jwt = at_url(&url, Duration::from_secs(10));
    let token = token_with_id(&rsa, "RS256", "a");
    let unavailable = decide(&jwt, None, &token).await;
    let Answer::Unavailable(Unavailable(text)) = unavailable else { panic!("{unavailable:?}") };
    assert_eq!(text, format!("jwt: keys of {url}/keys: no answer"), "nothing has asked for them");
    read_keys(&jwt).await;
    for (signer, algorithm, id) in [
        (&rsa, "RS256", "a"),
        (&p256, "ES256", "b"),
        (&p384, "ES384", "c"),
        (&ed25519, "EdDSA", "d"),
    ] {
        accepted(&jwt, None, token_with_id(signer, algorithm, id)).await;
        accepted(&jwt, None, signer.token(algorithm, &claims(json!({})))).await;
    }
    let reason = refused(&jwt, None, token_with_id(&p256, "ES256", "e")).await;
    assert_eq!(reason, "the signature of the token is wrong");
    let reason = refused(&jwt, None, token_with_id(&p256, "ES256", "a")).await;
    assert_eq!(reason, "no key may be used with the token's algorithm");
    for id in ["", "x", "../../a", "a' OR '1'='1", "http://evil/keys"] {
        let reason = refused(&jwt, None, token_with_id(&p256, "ES256", id)).await;
        assert_eq!(reason, "the issuer has no key with the token's key identifier", "{id}");
    }
    assert_eq!(log.lock().len(), 1, "unknown identifiers cause no requests during the pause");
    assert_eq!(log.lock()[0].target, "/keys?secret");
}

#[tokio::test]
async fn an_unknown_identifier_causes_a_request() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let published = Arc::new(Mutex::new(set(&[("old", &old)])));
    let kept = Arc::clone(&published);
    let (url, log) = serve(move |_| (200, kept.lock().clone())).await;
    let jwt = at_url(&url, Duration::from_millis(100));
    read_keys(&jwt).await;
    *published.lock() = set(&[("new", &new)]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(log.lock().len(), 1);
    accepted(&jwt, None, token_with_id(&old, "ES256", "old")).await;
    accepted(&jwt, None, token_with_id(&new, "ES256", "new")).await;
    assert_eq!(log.lock().len(), 2);
    let reason = refused(&jwt, None, token_with_id(&old, "ES256", "old")).await;
    assert_eq!(reason, "the issuer has no key with the token's key identifier");
}

#[tokio::test]
async fn made_up_identifiers_cause_few_requests() {
    let (own, forger) = (Signer::p256(), Signer::p256());
    let answer = set(&[("own", &own)]);
    let (url, log) = serve(move |_| (200, answer.clone())).await;
    let jwt = at_url(&url, Duration::from_millis(100));
    read_keys(&jwt).await;
    let begin = Instant::now();
    for number in 0..200 {
        let token = token_with_id(&forger, "ES256", &number.to_string());
        refused(&jwt, None, token).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let most = begin.elapsed().as_millis() / 100 + 2;
    let count = log.lock().len();
    assert!(count > 2 && count as u128 <= most, "{count} requests, {most} allowed");
}

#[tokio::test]
async fn keys_are_kept_while_the_url_fails() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let answers = Arc::new(Mutex::new((200, set(&[("old", &old)]))));
    let kept = Arc::clone(&answers);
    let (url, log) = serve(move |_| kept.lock().clone()).await;
    let jwt = at_url(&url, Duration::from_millis(20));
    read_keys(&jwt).await;
    for failure in [
        (500, set(&[("new", &new)])),
        (200, "{}".into()),
        (200, "<html>".into()),
        (302, String::new()),
    ] {
        *answers.lock() = failure.clone();
        let count = log.lock().len();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let unavailable = decide(&jwt, None, token_with_id(&new, "ES256", "new")).await;
        assert!(matches!(unavailable, Answer::Unavailable(_)), "{failure:?}: {unavailable:?}");
        accepted(&jwt, None, token_with_id(&old, "ES256", "old")).await;
        assert!(log.lock().len() > count);
    }
    // No restart is needed.
    *answers.lock() = (200, set(&[("new", &new)]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    accepted(&jwt, None, token_with_id(&new, "ES256", "new")).await;
}

#[tokio::test]
async fn a_login_waits_for_the_first_keys() {
    let signer = Signer::p256();
    let keys = set(&[("a", &signer)]);
    let (url, log) = serve(move |_| {
        std::thread::sleep(Duration::from_millis(100));
        (200, keys.clone())
    })
    .await;
    let jwt = at_url(&url, Duration::from_secs(10));
    jwt.start(&Handle::current());
    accepted(&jwt, None, token_with_id(&signer, "ES256", "a")).await;
    assert_eq!(log.lock().len(), 1);
}

#[tokio::test]
async fn a_url_that_does_not_answer_blocks_nobody() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let jwt = at_url(&url, Duration::from_millis(20));
    jwt.start(&Handle::current());
    let begin = Instant::now();
    for _ in 0..100 {
        let answer = decide(&jwt, None, token_with_id(&Signer::p256(), "ES256", "a")).await;
        assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    }
    // Only the first request is waited for.
    assert!(begin.elapsed() < Duration::from_secs(2));
    // The text says what happened, after the timeout of the request.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let answer = decide(&jwt, None, token_with_id(&Signer::p256(), "ES256", "a")).await;
    let Answer::Unavailable(Unavailable(text)) = answer else { panic!("{answer:?}") };
    assert_eq!(text, format!("jwt: keys of {url}/keys: no answer within 1 s"));
}

#[tokio::test]
async fn reading_ends_with_the_back_end() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let (url, _) = serve(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        (500, String::new())
    })
    .await;
    let jwt = at_url(&url, Duration::from_millis(10));
    jwt.start(&Handle::current());
    jwt.start(&Handle::current());
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(jwt);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = count.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(before > 2 && count.load(Ordering::SeqCst) == before);
}

#[test]
fn settings_are_checked() {
    let (_secrets, secret) = file("a secret of at least thirty-two bytes\n");
    let (_shorts, short) = file("  thirty-one bytes are not enough  ");
    let (_pems, pem) = file(Signer::p256().public_pem());
    let (_others, other) = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let (_damaged, damaged) = file("-----BEGIN PUBLIC KEY-----\nMAAA\n-----END PUBLIC KEY-----\n");
    let (_directory, missing) = (0, "/no/such/file");
    assert_eq!(settings(json!({"secret_file": secret, "algorithms": ["HS256"]})), Ok(()));
    assert_eq!(settings(json!({"public_key_file": pem, "algorithms": ["ES256", "RS256"]})), Ok(()));
    assert_eq!(
        settings(json!({"jwks_url": "https://a/b", "algorithms": ["RS256"], "refresh": 60})),
        Ok(())
    );
    for (json, expected) in [
        (json!({}), "exactly one of"),
        (json!({"secret_file": secret, "jwks_url": "https://a/"}), "exactly one of"),
        (json!({"jwks_url": "file:///etc/passwd"}), "`jwks_url`: not a URL"),
        (json!({"jwks_url": "ftp://a/"}), "`jwks_url`: the URL must begin with"),
        (json!({"secret_file": secret}), "`algorithms` is missing"),
        (json!({"secret_file": secret, "algorithms": ["none"]}), "unknown variant `none`"),
        (json!({"secret_file": secret, "algorithms": ["RS256"]}), "RS256 is for public keys"),
        (
            json!({"public_key_file": pem, "algorithms": ["ES256", "HS256"]}),
            "HS256 is for a secret",
        ),
        (json!({"jwks_url": "https://a/", "algorithms": ["HS512"]}), "HS512 is for a secret"),
        (json!({"public_key_file": pem, "algorithms": ["RS256"]}), "fits none of"),
        (
            json!({"secret_file": short, "algorithms": ["HS256"]}),
            "has 31 bytes, and the minimum is 32",
        ),
        (json!({"secret_file": pem, "algorithms": ["HS256"]}), "a key in PEM"),
        (
            json!({"secret_file": secret, "secret_encoding": "base64", "algorithms": ["HS256"]}),
            "not Base64",
        ),
        (json!({"secret_file": missing, "algorithms": ["HS256"]}), "/no/such/file: No such file"),
        (json!({"public_key_file": secret, "algorithms": ["RS256"]}), "no `PUBLIC KEY`"),
        (json!({"public_key_file": other, "algorithms": ["RS256"]}), "no `PUBLIC KEY`"),
        (json!({"public_key_file": damaged, "algorithms": ["RS256"]}), "malformed"),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "leeway": 601}),
            "`leeway` is from",
        ),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "refresh": 9}),
            "`refresh` is from",
        ),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "timeout_ms": 0}),
            "`timeout_ms` is from",
        ),
        (json!({"secret_file": secret, "algorithms": ["HS256"], "ca_file": "x"}), "for `jwks_url`"),
        (
            json!({"jwks_url": "https://a/", "algorithms": ["RS256"], "ca_file": missing}),
            "`ca_file`: /no/such",
        ),
        (json!({"secret_file": secret, "algorithms": ["HS256"], "tenant": "a/b"}), "`tenant`: "),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "user_claim": ""}),
            "`user_claim` is empty",
        ),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "tenant": "a", "tenant_claim": "b"}),
            "exclude each other",
        ),
        (
            json!({"secret_file": secret, "algorithms": ["HS256"], "full_names": true, "tenant": "b"}),
            "no effect",
        ),
        (json!({"secret": "x"}), "unknown field `secret`"),
    ] {
        let error = settings(json.clone()).unwrap_err();
        assert!(error.contains(expected), "{json}: {error}");
    }
}
