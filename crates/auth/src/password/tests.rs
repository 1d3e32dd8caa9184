use super::*;

/// Hashes of `secret`, each made by the program that is named.
const SECRET: &[(&str, &str)] = &[
    (
        "mosquitto_passwd 2.0.11",
        "$7$101$yUpV0oQeTdthmbHO$KMBnEWNoeP9lpAsDTIJ26Rwei0DegLF8Sb7+WxsbvfU8drBT7Ulz1IVa/te+5jHsPtx9oTGKHofR0fL9tTfaQQ==",
    ),
    (
        "mosquitto_passwd 2.0.11 -H sha512",
        "$6$1YGVmdpe1vkhI/jQ$Fdyzgcz8bmd69OGGeeSP570sMzHpg8pjIxIfEXp9T0uk4Tne/uZtFk9li2IZK7NKmAD0sI4AfbmQimychjCPag==",
    ),
    (
        "libargon2, with the lengths of mosquitto_passwd 2.1",
        "$argon2id$v=19$m=256,t=1,p=1$8PHy8/T19vf4+fr7/P3+//Dx8vP09fb3+Pn6+/z9/v/w8fLz9PX29/j5+vv8/f7/8PHy8/T19vf4+fr7/P3+/w$SmbXUtdlsIjZPDGHxaq+3aCb/G4I/hsYxxA4ySJlhLJRqNxZVyf1y7tuUhKnNSEGclbhHp9uvSKeyy0wrGp/zg",
    ),
    (
        "libargon2",
        "$argon2id$v=19$m=256,t=1,p=1$8PHy8/T19vf4+fr7/P3+/w$7lXCyTlETcYgidB/tXmBG6Kx49GnMbddrpFfPawQtrw",
    ),
    (
        "libargon2",
        "$argon2i$v=19$m=256,t=1,p=1$8PHy8/T19vf4+fr7/P3+/w$1ZaoCmZT3QknIovjhlJ5xAa97wFELkr9MOCCbQf9Wos",
    ),
    (
        "libargon2",
        "$argon2d$v=19$m=256,t=1,p=1$8PHy8/T19vf4+fr7/P3+/w$eoXrwfEW89r6fqLeZjPc/b7vbQ980q46TXLdcK/3LM0",
    ),
    ("bcrypt of Python", "$2b$04$wSGg8g.MVRq/PtLH1EdrP.z8DFwCvKhS/zl8O5uhcgduaj.5Ujoy6"),
    ("bcrypt of Python", "$2a$04$lM07ar/qF9s5NQj8WFV78epq3w1rhAgQtLXxIoTp/7Juhiq3aBvum"),
    ("crypt(3) of libxcrypt", "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
    (
        "hashlib",
        "$scrypt$ln=10,r=8,p=1$8PHy8/T19vf4+fr7/P3+/w$hUGsHKMaHTN6peOMjeuP4eSqtBSeX2eOjTVyeeyZBN4",
    ),
    (
        "passlib",
        "$scrypt$ln=10,r=8,p=2$c2FsdHNhbHRzYWx0c2FsdA$z8IVAq2AQc3EjuRW0Vsf1yEymjQYFmb+hrRijiSb0eQ",
    ),
    ("hashlib", "$pbkdf2-sha256$i=4096$8PHy8/T19vf4+fr7/P3+/w$5v5m8jAFG80j7EUXgDrk1BOYXPs"),
    (
        "hashlib",
        "$pbkdf2-sha512$i=4096,l=64$8PHy8/T19vf4+fr7/P3+/w$5Py7xiEX3KfaaiYmfyK4AxORSetl+KkY/FVLbJjOSeM9bTKWgT5/7egH2UCSvtr+1iU/gN4m+39gT6mtf0kJsg",
    ),
    (
        "passlib",
        "$pbkdf2-sha256$1000$....//79c2FsdC5hbHQuLg$/i9trLr5pqkfMwi/4oHxsGOHX8BQaC6l.Od1VxT0FLk",
    ),
    (
        "passlib",
        "$pbkdf2-sha512$1000$c2FsdHNhbHRzYWx0c2FsdA$2IVLzDcUS76iY9.wBooZzkS5Z0mI6ikZPfMieFfR1eV/GJiiRzyvvz4ne7tBn8OJ1hxZyCz95QPNeLP3ykzMiQ",
    ),
    (
        "libpq 17",
        "SCRAM-SHA-256$4096:bifcB3RP1CetaXAColZdAw==$taSsb2Qr2mDcoCbDVlWmXpmjrOBItslr7qw7RhiXkpM=:iEgQx6FgHAkf9VA/BcFKpBiIXcDCE9m2d3zZUs0+RwM=",
    ),
];

#[track_caller]
fn check_fits(hash: &str, password: &str, wrong: &[&str]) {
    assert_eq!(check(hash), Ok(()), "{hash}");
    assert!(verify(hash, password.as_bytes()), "{hash}");
    for wrong in wrong {
        assert!(!verify(hash, wrong.as_bytes()), "{wrong:?} {hash}");
    }
}

#[test]
fn the_hashes_of_other_programs_are_verified() {
    for (_, hash) in SECRET {
        check_fits(hash, "secret", &["Secret", "secre", "secrets", "", "secret\0secret"]);
    }
}

#[test]
fn passwords_outside_ascii_are_their_utf8_bytes() {
    check_fits(
        "$7$101$umHeCPfCmS7X0iRJ$p9+fpgHSEXiCRRwysiGDifAJJC8OVsi9Lna9gqUVRQoxcJpvcE0mPmso5T3j0ypsxeXfZkCHSnFEb1GiYMCwEg==",
        "pässwörd ☃",
        &["pa\u{308}sswörd ☃", "password"],
    );
    check_fits(
        "$pbkdf2-sha256$i=4096,l=32$8PHy8/T19vf4+fr7/P3+/w$tf983UWNzxifwgptLoIi1PdM8ZIJafXrVIrlLy1KTAU",
        "pässwörd",
        &["passwörd"],
    );
}

#[test]
fn bcrypt_uses_72_bytes() {
    let hash = "$2b$04$dM3Yke46PFgDX3g6hbA5ZuNR9bY4quMSKp0Lh9linp6pw73.MsNg2";
    check_fits(hash, &"a".repeat(72), &[&"a".repeat(71)]);
    assert!(verify(hash, "a".repeat(73).as_bytes()), "as each other implementation");
    let (_, hash) = SECRET.iter().find(|(_, hash)| hash.starts_with("$2y$")).unwrap();
    check_fits(hash, "secret", &["secret\0", "secret\0secret"]);
}

/// Verifiers that `PQencryptPasswordConn` of libpq 17 has made.
#[test]
fn passwords_for_scram_are_prepared() {
    check_fits(
        "SCRAM-SHA-256$4096:4pvkr37HWru83l64QwGGkA==$uhEs2NI1LoMg3Y6tfYPXIdHKHUET9sYwaKCa5PW7B9g=:zV7TM/abCmBWkdY3EfCh/oU+cDhtTf5UJyQR2ulDInE=",
        "pa\u{a0}ss\u{ad}w\u{2168}rd",
        &["pa\u{a0}sswIXr"],
    );
    check_fits(
        "SCRAM-SHA-256$4096:qysYY+gxUOVjHTeOT8egFQ==$xQKag4PxV/EIuQ2oDWAf1iEAe8il6thXHrHVwbXfEOA=:g+at4b6pX0ApbX7aZvx9wdSfCcilI75ULbB6L++dLjM=",
        "ba\u{7}d",
        &["bad"],
    );
}

#[test]
fn a_password_is_verified_whatever_its_hash_costs() {
    for (cost, parameters, iterations) in [
        (Cost::Person, "$argon2id$v=19$m=19456,t=2,p=1$", "SCRAM-SHA-256$600000:"),
        (Cost::Device, "$argon2id$v=19$m=256,t=1,p=1$", "SCRAM-SHA-256$4096:"),
    ] {
        let (hash, verifier) = (hash("secret", cost), scram("secret", cost));
        assert!(hash.starts_with(parameters), "{hash}");
        assert!(verifier.starts_with(iterations), "{verifier}");
        for hash in [hash, verifier] {
            check_fits(&hash, "secret", &["Secret"]);
        }
    }
}

#[test]
fn salts_and_secrets_are_random() {
    assert_ne!(hash("x", Cost::Device), hash("x", Cost::Device));
    assert_ne!(scram("x", Cost::Device), scram("x", Cost::Device));
    let secret = random_secret();
    assert_eq!(secret.len(), 24);
    assert_ne!(secret, random_secret());
}

#[test]
fn the_proof_is_the_same_everywhere() {
    // printf '$7$x' | sha256sum
    assert_eq!(proof("$7$x"), 0x5809_cffb_23a9_1b65);
    assert_ne!(proof("$7$x"), proof("$7$y"));
}

#[test]
fn a_password_that_is_no_hash_is_told() {
    for text in ["", "hunter2", "secret$", "$", "a$b$c", "sha256$x$y"] {
        let error = check(text).unwrap_err();
        assert!(error.starts_with("not a password hash"), "{text}: {error}");
        assert!(!verify(text, text.as_bytes()), "{text}");
    }
    for text in
        ["$1$salt$x", "$5$x$y", "$y$j9T$x$y", "$md5$x", "$bcrypt-sha256$v=2,t=2b,r=4$x$y", "$$"]
    {
        assert_eq!(check(text), Err("a password hash of an unknown kind"), "{text}");
    }
    assert!(check(&format!("$7$1${}$", "A".repeat(1024))).unwrap_err().contains("1,024"));
}

/// Replaces a part of the first hash with this beginning, and returns what `check` says then.
#[track_caller]
fn changed(beginning: &str, from: &str, to: &str) -> &'static str {
    let hash = SECRET.iter().map(|(_, hash)| *hash).find(|hash| hash.starts_with(beginning));
    let hash = hash.unwrap();
    assert!(hash.contains(from), "{from} is not in {hash}");
    let changed = hash.replacen(from, to, 1);
    assert!(!verify(&changed, b"secret"), "{changed}");
    check(&changed).unwrap_err()
}

#[test]
fn a_hash_that_costs_too_much_is_refused() {
    for (beginning, from, to, expected) in [
        ("$argon2id", "m=256", "m=1048577", "1 GiB of memory"),
        ("$argon2id", "m=256,t=1", "m=1048576,t=3", "too long"),
        ("$argon2id", "t=1", "t=8193", "too long"),
        ("$argon2id", "t=1", "t=4294967295", "too long"),
        ("$2b", "$04$", "$16$", "more than 15"),
        ("$2y", "$04$", "$31$", "more than 15"),
        ("$scrypt", "ln=10", "ln=20", "512 MiB"),
        ("$scrypt", "ln=10", "ln=63", "512 MiB"),
        ("$scrypt", "p=1", "p=4294967295", "512 MiB"),
        ("$scrypt", "r=8", "r=4294967295", "512 MiB"),
        ("$pbkdf2-sha256", "i=4096", "i=3000001", "3,000,000"),
        ("$pbkdf2-sha512", "i=4096", "i=4294967295", "3,000,000"),
        ("$pbkdf2-sha256$1000", "$1000$", "$3000001$", "3,000,000"),
        ("$7", "$101$", "$3000001$", "3,000,000"),
        ("SCRAM", "$4096:", "$3000001:", "3,000,000"),
    ] {
        let error = changed(beginning, from, to);
        assert!(error.contains(expected), "{from} {to}: {error}");
    }
    // An output of two blocks takes twice as long.
    let output = "A".repeat(86);
    assert_eq!(check(&format!("$pbkdf2-sha256$i=1500000$AAAA${output}")), Ok(()));
    assert_eq!(check(&format!("$pbkdf2-sha256$i=1500001$AAAA${output}")), Err(pbkdf2::TOO_LONG));
}

#[test]
fn a_hash_that_no_password_has_is_told() {
    let short = "$5v5m8jAFG80j7EUXgDrk1BOYXPs";
    for (beginning, from, to) in [
        ("$argon2id", "m=256", "m=1"),
        ("$argon2id", "t=1", "t=0"),
        ("$argon2id", "p=1", "p=0"),
        ("$argon2id", "p=1", "p=1,keyid=x"),
        ("$argon2id", "v=19", "v=20"),
        ("$argon2id", "m=256,t=1", "t=1,m=256"),
        ("$argon2id", "m=256", "m=0256"),
        ("$argon2id", "m=256", "m=+256"),
        ("$argon2id", "$argon2id$", "$argon2id"),
        ("$2b", "$04$", "$03$"),
        ("$2b", "$04$", "$4$"),
        ("$2b", "$2b$", "$2x$"),
        ("$2b", "5Ujoy6", "5Ujoyä"),
        ("$scrypt", "ln=10", "ln=0"),
        ("$scrypt", "ln=10", "ln=64"),
        ("$scrypt", "r=8", "r=0"),
        ("$scrypt", "p=1", "p=0"),
        ("$scrypt", "ln=10", "n=1024"),
        ("$scrypt", "$ln", "$v=1$ln"),
        ("$pbkdf2-sha256", "i=4096", "i=0"),
        ("$pbkdf2-sha256", "i=4096", "i=4096,l=32"),
        ("$pbkdf2-sha256", "i=4096", "i=4294967296"),
        ("$pbkdf2-sha256", "$8PHy8/T19vf4+fr7/P3+/w$", "$$"),
        ("$pbkdf2-sha256", short, "$"),
        ("$pbkdf2-sha256", short, "$AAAA"),
        ("$pbkdf2-sha256", short, ""),
        ("$7", "$101$", "$0$"),
        ("$7", "$101$", "$-1$"),
        ("$7", "$101$", "$"),
        ("$7", "QQ==", "QQ"),
        ("$7", "yUpV0oQeTdthmbHO", ""),
        ("$6", "Pag==", "Pag==$"),
        ("$6", "Pag==", ""),
        ("SCRAM", "$4096:", "$0:"),
        ("SCRAM", "$4096:", "$4096"),
        ("SCRAM", ":iEgQ", ":EgQ"),
        ("SCRAM", "bifcB3RP1CetaXAColZdAw==", ""),
    ] {
        let error = changed(beginning, from, to);
        assert!(!error.is_empty(), "{from} {to}");
    }
    let crypt = "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";
    assert!(check(crypt).unwrap_err().contains("crypt(3)"));
}

/// `libargon2` wrote no version before there was a second one.
#[test]
fn an_argon2_hash_without_version_is_of_the_first() {
    // From the tests of libargon2 (test.c), where version 16 is called 0x10.
    let hash = "$argon2i$m=65536,t=2,p=1$c29tZXNhbHQ$9sTbSlTio3Biev89thdrlKKiCaYsjjYVJxGAL3swxpQ";
    check_fits(hash, "password", &["passwore"]);
}

#[test]
fn keys_of_scram_are_those_of_the_password() {
    let of_password = |iterations, salt: &[u8], password: &str| {
        let iterations = std::num::NonZeroU32::new(iterations).unwrap();
        Some(ScramVerifier::of_password(password.as_bytes(), iterations, salt))
    };
    let salt: Vec<u8> = (0xf0..=0xff).collect();
    let hash = "$pbkdf2-sha256$i=4096,l=32$8PHy8/T19vf4+fr7/P3+/w$tf983UWNzxifwgptLoIi1PdM8ZIJafXrVIrlLy1KTAU";
    assert_eq!(scram_keys(hash), of_password(4096, &salt, "pässwörd"));
    let own = scram("secret", Cost::Device);
    let keys = scram_keys(&own).unwrap();
    assert_eq!(keys.to_string(), own);
    assert!(!format!("{keys:?}").contains(&own[20..]));
    for (_, hash) in SECRET {
        let has_keys = hash.starts_with("SCRAM") || hash.starts_with("$pbkdf2-sha256$1000");
        assert_eq!(scram_keys(hash).is_some(), has_keys, "{hash}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_hostile(text in "(SCRAM-SHA-256)?[$](7|6|2b|scrypt|argon2id|pbkdf2-sha256)?[$:,=0-9a-zA-Z+/ä]{0,90}") {
        let _ = check(&text);
        let _ = proof(&text);
    }
}
