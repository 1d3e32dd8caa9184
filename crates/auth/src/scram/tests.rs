use std::num::NonZeroU32;

use proptest::prelude::*;
use ring::{digest, hmac, pbkdf2};

use super::*;
use crate::password::{self, Cost};

const SECRET: [u8; 32] = [7; 32];

/// The client's side of RFC 5802, written for these tests from section 3, and independent of the code that they
/// test.
struct Client<'a> {
    user: &'a str,
    password: &'a str,
    flag: &'a str,
}

impl Client<'_> {
    fn first_bare(&self) -> String {
        let name = self.user.replace('=', "=3D").replace(',', "=2C");
        format!("n={name},r=fyko+d2lbbFgONRv9qkxdawL")
    }

    fn first(&self) -> String {
        format!("{},,{}", self.flag, self.first_bare())
    }

    /// Returns the last message, and the one that the server must answer with.
    fn last(&self, server_first: &str) -> (String, String) {
        let value = |name: &str| {
            let mut attributes = server_first.split(',').filter_map(|text| text.split_once('='));
            attributes.find(|(found, _)| *found == name).unwrap().1
        };
        assert!(value("r").starts_with("fyko+d2lbbFgONRv9qkxdawL"));
        let salt = BASE64.decode(value("s").as_bytes()).unwrap();
        let iterations = NonZeroU32::new(value("i").parse().unwrap()).unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &salt,
            self.password.as_bytes(),
            &mut salted,
        );
        let sign = |key: &[u8], text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        };
        let client_key = sign(&salted, "Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let without_proof =
            format!("c={},r={}", BASE64.encode(format!("{},,", self.flag).as_bytes()), value("r"));
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare());
        let signature = sign(stored_key.as_ref(), &auth_message);
        let proof: Vec<_> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let answer = sign(&sign(&salted, "Server Key"), &auth_message);
        let last = format!("{without_proof},p={}", BASE64.encode(&proof));
        (last, format!("v={}", BASE64.encode(&answer)))
    }

    /// Runs an exchange with keys. Returns its result and the message that the client expects.
    fn log_in(&self, keys: Keys) -> (Result<String, Failure>, String) {
        let first = ClientFirst::read(self.first().as_bytes()).unwrap();
        assert_eq!(first.user(), self.user);
        let (challenged, server_first) = first.challenge(keys, [3; NONCE_BYTES]);
        let (last, expected) = self.last(&server_first);
        (challenged.finish(last.as_bytes()), expected)
    }
}

fn client<'a>(user: &'a str, password: &'a str) -> Client<'a> {
    Client { user, password, flag: "n" }
}

fn keys(password: &str) -> Keys {
    Keys::of(&password::scram(password, Cost::Device)).unwrap()
}

/// The exchange in section 3 of RFC 7677.
#[test]
fn the_example_of_the_standard() {
    let salt = BASE64.decode(b"W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let iterations = NonZeroU32::new(4096).unwrap();
    let verifier = password::ScramVerifier::of_password(b"pencil", iterations, &salt);
    let keys = Keys::of(&verifier.to_string()).unwrap();
    let first = ClientFirst::read(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
    assert_eq!(first.user(), "user");
    let (challenged, server_first) = first.challenge_with(keys, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
    assert_eq!(
        server_first,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let answer = challenged.finish(last.as_bytes());
    assert_eq!(answer, Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".into()));
}

#[test]
fn only_the_right_password_is_proved() {
    for flag in ["n", "y"] {
        let right = Client { flag, ..client("acme/ada", "secret") };
        let (outcome, expected) = right.log_in(keys("secret"));
        assert_eq!(outcome, Ok(expected));
        let wrong = Client { flag, ..client("acme/ada", "Secret") };
        assert_eq!(wrong.log_in(keys("secret")).0, Err(Failure::Proof));
    }
}

#[test]
fn a_pbkdf2_hash_of_the_password_has_the_keys() {
    // Made with hashlib.pbkdf2_hmac of Python.
    let hash = "$pbkdf2-sha256$i=4096,l=32$8PHy8/T19vf4+fr7/P3+/w$tf983UWNzxifwgptLoIi1PdM8ZIJafXrVIrlLy1KTAU";
    let (outcome, expected) = client("ada", "pässwörd").log_in(Keys::of(hash).unwrap());
    assert_eq!(outcome, Ok(expected));
    let argon2 = password::hash("secret", Cost::Device);
    assert!(Keys::of(&argon2).is_none() && Keys::of("secret").is_none());
}

#[test]
fn a_user_name_may_have_commas_and_equals_signs() {
    let (outcome, _) = client("a,b=c=2C,", "secret").log_in(keys("secret"));
    assert!(outcome.is_ok());
    for name in ["", "=", "=2", "=2c", "a=3d", "a=41", "a==2C", "=ä"] {
        let first = format!("n,,n={name},r=x");
        assert_eq!(ClientFirst::read(first.as_bytes()).unwrap_err(), Failure::UserName, "{name}");
    }
}

#[test]
fn unknown_users_look_like_users() {
    let challenge = |user: &str, keys: Keys| {
        let first = ClientFirst::read(client(user, "x").first().as_bytes()).unwrap();
        first.challenge(keys, [3; NONCE_BYTES]).1
    };
    for cost in [Cost::Device, Cost::Person] {
        let hash = password::scram("secret", cost);
        let shape = |text: &str| {
            let text: Vec<_> = text.split(',').map(str::to_owned).collect();
            (text[0].clone(), text[1].len(), text[2].clone(), text.len())
        };
        let of_user = challenge("ada", Keys::of(&hash).unwrap());
        let of_nobody = challenge("bob", Keys::mock(&SECRET, "bob", Some(&hash)));
        assert_eq!(shape(&of_user), shape(&of_nobody));
        assert_eq!(of_nobody, challenge("bob", Keys::mock(&SECRET, "bob", Some(&hash))));
        assert_ne!(of_nobody, challenge("eve", Keys::mock(&SECRET, "eve", Some(&hash))));
        assert_ne!(of_nobody, challenge("bob", Keys::mock(&[8; 32], "bob", Some(&hash))));
    }
    let default = challenge("bob", Keys::mock(&SECRET, "bob", None));
    assert!(default.ends_with(",i=600000"), "{default}");
    // A salt of more than one block.
    let long = format!("$pbkdf2-sha256$i=5000,l=32${}${}", "QUJD".repeat(30), "A".repeat(43));
    let mock = Keys::mock(&SECRET, "bob", Some(&long));
    assert_eq!(mock.verifier.salt.len(), 90);
    assert_ne!(mock.verifier.salt[..32], mock.verifier.salt[32..64]);
    assert!(challenge("bob", mock).ends_with(",i=5000"));
}

#[test]
fn no_proof_is_right_for_an_unknown_user() {
    let mock = |is_mock| Keys { is_mock, ..keys("secret") };
    assert!(client("bob", "secret").log_in(mock(false)).0.is_ok());
    assert_eq!(client("bob", "secret").log_in(mock(true)).0, Err(Failure::Proof));
    let keys = Keys::mock(&SECRET, "bob", None);
    assert!(keys.is_mock);
}

#[test]
fn what_a_first_message_must_not_be() {
    let long = format!("n,,n={},r=x", "u".repeat(MESSAGE_MAX));
    let nonce = format!("n,,n=u,r={}", "x".repeat(NONCE_MAX + 1));
    for (message, expected) in [
        ("", Failure::Malformed),
        ("n", Failure::Malformed),
        ("n,", Failure::Malformed),
        ("n,,", Failure::Malformed),
        ("n,,n=u", Failure::Malformed),
        ("n,,n=u,", Failure::Malformed),
        ("n,,n=u,r=", Failure::Malformed),
        ("n,,r=x,n=u", Failure::Malformed),
        ("x,,n=u,r=x", Failure::Malformed),
        ("n=,,n=u,r=x", Failure::Malformed),
        ("n,b=u,n=u,r=x", Failure::Malformed),
        ("n,,n=u,r=a b", Failure::Malformed),
        ("n,,n=u,r=ä", Failure::Malformed),
        ("n,,n=u\0,r=x", Failure::Malformed),
        ("n,,n=u,r=x,", Failure::Malformed),
        ("n,,n=u,r=x,xy", Failure::Malformed),
        ("n,,n=u,r=x,1=y", Failure::Malformed),
        (&nonce, Failure::Malformed),
        ("p=tls-exporter,,n=u,r=x", Failure::ChannelBinding),
        ("p=,,n=u,r=x", Failure::ChannelBinding),
        ("n,,m=x,n=u,r=x", Failure::Extension),
        ("n,,n=u,r=x,m=y", Failure::Extension),
        ("n,a=v,n=u,r=x", Failure::OtherIdentity),
        ("n,a=,n=u,r=x", Failure::UserName),
        (&long, Failure::TooLong),
    ] {
        assert_eq!(ClientFirst::read(message.as_bytes()).unwrap_err(), expected, "{message}");
    }
    assert_eq!(ClientFirst::read(b"n,,n=\xff,r=x").unwrap_err(), Failure::Malformed);
    assert!(ClientFirst::read(b"n,a=u=2C,n=u=2C,r=x,t=ignored").is_ok());
}

#[test]
fn what_a_last_message_must_not_be() {
    let client = client("ada", "secret");
    let long = format!("x={},", "y".repeat(MESSAGE_MAX));
    for (from, to, expected) in [
        ("c=biws", "c=eSws", Failure::OtherHeader),
        ("c=biws", "c=", Failure::OtherHeader),
        ("c=biws,", "", Failure::Malformed),
        ("r=fyko", "r=xyko", Failure::OtherNonce),
        ("AwMD,", "AwME,", Failure::OtherNonce),
        (",p=", ",q=", Failure::Malformed),
        (",p=", ",p=A", Failure::Malformed),
        (",p=", ",p=AAAA", Failure::Malformed),
        (",p=", ",p=,p=", Failure::Malformed),
        (",p=", ",,p=", Failure::Malformed),
        (",p=", ",m=x,p=", Failure::Extension),
        // An extension that the proof does not cover.
        (",p=", ",t=x,p=", Failure::Proof),
        ("c=", &long, Failure::TooLong),
    ] {
        let first = ClientFirst::read(client.first().as_bytes()).unwrap();
        let (challenged, server_first) = first.challenge(keys("secret"), [3; NONCE_BYTES]);
        let (last, _) = client.last(&server_first);
        let changed = last.replacen(from, to, 1);
        assert_ne!(changed, last);
        assert_eq!(challenged.finish(changed.as_bytes()), Err(expected), "{changed}");
    }
}

fn challenged() -> Challenged {
    let first = ClientFirst::read(b"n,,n=ada,r=x").unwrap();
    let keys = Keys::of(&password::scram("secret", Cost::Device)).unwrap();
    first.challenge(keys, [3; NONCE_BYTES]).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whoever_knows_the_password_gets_in_and_nobody_else(
        user in "[^\0]{1,40}",
        password in "[a-zA-Z0-9 =,]{1,40}",
        other in "[a-zA-Z0-9 =,]{1,40}",
    ) {
        let (outcome, expected) = client(&user, &password).log_in(keys(&password));
        prop_assert_eq!(outcome, Ok(expected));
        let (outcome, expected) = client(&user, &other).log_in(keys(&password));
        let expected = if other == password { Ok(expected) } else { Err(Failure::Proof) };
        prop_assert_eq!(outcome, expected);
    }

    #[test]
    fn no_message_is_too_hostile(message in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ClientFirst::read(&message);
        prop_assert!(challenged().finish(&message).is_err());
    }

    #[test]
    fn almost_a_message_is_not_too_hostile(
        first in "[nyp=a,]{0,5}[nmra,=23CDä]{0,30}",
        last in "[cr=,A-D]{0,30},p=[A-D=]{0,48}",
    ) {
        if let Ok(first) = ClientFirst::read(first.as_bytes()) {
            prop_assert!(!first.user().is_empty());
        }
        prop_assert!(challenged().finish(last.as_bytes()).is_err());
    }
}
