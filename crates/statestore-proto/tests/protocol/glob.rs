use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use statestore_proto::Glob;

#[track_caller]
fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    let glob = Glob::parse(pattern.as_bytes());
    for key in yes {
        assert!(glob.matches(key.as_bytes()), "{pattern:?} matches {key:?}");
    }
    for key in no {
        assert!(!glob.matches(key.as_bytes()), "{pattern:?} does not match {key:?}");
    }
}

#[test]
fn literals_and_wildcards() {
    check("key", &["key"], &["", "ke", "keys", "akey", "KEY"]);
    check("", &[""], &["a"]);
    check("*", &["", "a", "a/b\r\n"], &[]);
    check("***", &["", "abc"], &[]);
    check("key*", &["key", "key1", "key/1"], &["ke", "akey"]);
    check("*key", &["key", "1key", "keykey"], &["keys", ""]);
    check("a*b*c", &["abc", "aXbYc", "abbcc", "abcbc"], &["ab", "acb", "abcd"]);
    check("a*ab", &["aab", "aaab", "ababab"], &["ab", "aba"]);
    check("ab*ba", &["abba", "ab-ba"], &["aba", "ab", "ba"]);
    check("*a*ab*b*", &["aabb", "xaaabb", "a-ab-b-"], &["aab", "abb", "aba"]);
    check("*?b*", &["ab", "xxab", "bb"], &["b", "ba"]);
    check("k?y", &["key", "k?y", "k*y"], &["ky", "keey"]);
    check("??", &["ab", "é"], &["a", "abc"]);
    check("*?*", &["a", "ab"], &[""]);
    check("lock/*/a?", &["lock//ab", "lock/x/y/ab"], &["lock/ab", "lock/x/a"]);
    check("{principal.clientId}", &["{principal.clientId}"], &["x"]);
}

#[test]
fn classes() {
    check("[abc]", &["a", "b", "c"], &["", "d", "ab", "[abc]"]);
    check("k[0-9]", &["k0", "k5", "k9"], &["k", "ka", "k10"]);
    check("[0-9a-f][!0-9]", &["0a", "fx"], &["g0", "00"]);
    check("[!a]", &["b", "!", "^"], &["a", "", "bb"]);
    check("[^a]", &["b", "^", "!"], &["a"]);
    check("[a!^]", &["a", "!", "^"], &["b"]);
    check("[]a]", &["]", "a"], &["[", "b"]);
    check("[!]a]", &["[", "b"], &["]", "a"]);
    check("[a-]", &["a", "-"], &["b"]);
    check("[-a]", &["a", "-"], &["b"]);
    check("[+--]", &["+", ",", "-"], &["*", "."]);
    check("[b-a]", &[], &["a", "b", "-"]);
    check("[b-ac]", &["c"], &["a", "b"]);
    check("[*?]", &["*", "?"], &["a", ""]);
    check("[[]", &["["], &["]"]);
    check(r"[\]]", &["]"], &[r"\"]);
    check(r"[\a\-z]", &["a", "-", "z"], &["b", r"\"]);
    check(r"[a-\]]", &[], &["a]", "-]"]);
    check(r"[\[-\]]", &["[", r"\", "]"], &["-"]);
    check("*[0-9]", &["1", "a1", "11"], &["", "1a"]);
}

#[test]
fn what_is_not_closed_stands_for_itself() {
    check("[", &["["], &["", "a"]);
    check("[abc", &["[abc"], &["a", "b"]);
    check("[]", &["[]"], &["]"]);
    check("[!]", &["[!]"], &["a"]);
    check("[a-", &["[a-"], &["a"]);
    check(r"[a\]", &["[a]"], &["a"]);
    check("[*", &["[", "[a"], &["a"]);
    check("[][", &["[]["], &["]"]);
    check(r"a\", &[r"a\"], &["a"]);
}

#[test]
fn escapes() {
    check(r"\*", &["*"], &["a", r"\*", ""]);
    check(r"\?\[a]", &["?[a]"], &["?a", "xa"]);
    check(r"\\", &[r"\"], &[r"\\"]);
    check(r"\a", &["a"], &[r"\a"]);
}

#[test]
fn any_bytes() {
    let glob = Glob::parse(b"\xFF[\x80-\xFE]?*\0");
    assert!(glob.matches(b"\xFF\x80\xFF\0"));
    assert!(glob.matches(b"\xFF\xFE\0\0\0"));
    assert!(!glob.matches(b"\xFF\xFF\0\0"));
    assert!(!glob.matches(b"\xFF\x7F\0\0"));
}

#[test]
fn literal_prefixes() {
    for (pattern, prefix) in [
        ("", ""),
        ("key", "key"),
        ("key*", "key"),
        ("a?b", "a"),
        ("a[b]c", "a"),
        ("*a", ""),
        (r"a\*b*", "a*b"),
        ("a[b", "a[b"),
        ("a{b}*", "a{b}"),
    ] {
        assert_eq!(
            Glob::parse(pattern.as_bytes()).literal_prefix(),
            prefix.as_bytes(),
            "{pattern}"
        );
    }
}

#[test]
fn what_matching_may_cost() {
    for (pattern, steps) in [
        ("", 100),
        ("key", 103),
        ("key*", 103),
        ("*key*", 103),
        ("a*bb*ccc[d]?*e", 509),
        ("*k?y", 103),
    ] {
        assert_eq!(Glob::parse(pattern.as_bytes()).steps_max(100), steps, "{pattern}");
    }
    assert_eq!(Glob::parse(b"*a?*").steps_max(usize::MAX), usize::MAX);
}

fn of_client(pattern: &str, client_id: &str) -> Option<Glob> {
    Glob::parse_with(pattern.as_bytes(), |name| match name {
        "principal.clientId" => Some(client_id.into()),
        "empty" => Some(Vec::new()),
        _ => None,
    })
}

#[test]
fn what_is_substituted_is_no_pattern() {
    let glob = of_client("clients/{principal.clientId}/*", "a").unwrap();
    assert!(glob.matches(b"clients/a/x"));
    assert!(!glob.matches(b"clients/b/x"));
    assert!(!glob.matches(b"clients/{principal.clientId}/x"));
    assert_eq!(glob.literal_prefix(), b"clients/a/");
    for client_id in ["*", "?", "[a]", r"\", "{empty}", "a*b", "[!", "**"] {
        let glob = of_client("{principal.clientId}", client_id).unwrap();
        assert!(glob.matches(client_id.as_bytes()), "{client_id}");
        assert!(!glob.matches(b"a"), "{client_id}");
        assert!(!glob.matches(b""), "{client_id}");
        assert_eq!(glob.literal_prefix(), client_id.as_bytes());
    }
    let twice = of_client("{principal.clientId}{empty}-{principal.clientId}?", "x*").unwrap();
    assert!(twice.matches(b"x*-x*!"));
    assert!(!twice.matches(b"xy-xy!"));
}

#[test]
fn braces_that_name_nothing() {
    for pattern in ["{unknown}", "{}", "{", "a{principal.clientId", "{principal.clientId{"] {
        assert_eq!(of_client(pattern, "a"), None, "{pattern}");
    }
    assert_eq!(Glob::parse_with(b"{\xFF}", |_| Some(Vec::new())), None);
    assert!(of_client(r"\{a}", "a").unwrap().matches(b"{a}"));
    assert!(of_client("[{]a}", "a").unwrap().matches(b"{a}"));
    assert!(of_client("}", "a").unwrap().matches(b"}"));
}

/// Includes patterns for which a naive backtracking matcher takes exponential time.
#[test]
fn no_pattern_takes_long() {
    let start = Instant::now();
    let key = [b"a".repeat(5_000), b"b".to_vec()].concat();
    assert!(!Glob::parse(&[b"*a".repeat(2_000), b"c".to_vec()].concat()).matches(&key));
    assert!(!Glob::parse(&[b"*?".repeat(2_000), b"c".to_vec()].concat()).matches(&key));
    assert!(!Glob::parse(&[b"*[!c]".repeat(2_000), b"c".to_vec()].concat()).matches(&key));
    assert!(!Glob::parse(&[b"*", &b"a".repeat(2_000)[..], b"c"].concat()).matches(&key));
    // A piece of literal bytes is found without comparing it to its end at each offset.
    let key = b"a".repeat(64_000);
    for _ in 0..100 {
        assert!(!Glob::parse(&[b"*", &b"a".repeat(1_020)[..], b"b*"].concat()).matches(&key));
        assert!(!Glob::parse(&[b"*b", &b"a".repeat(1_020)[..], b"*"].concat()).matches(&key));
    }
    // No pattern is read more than once from beginning to end.
    assert!(!Glob::parse(&b"[".repeat(200_000)).matches(&key));
    assert!(!Glob::parse(&b"[a".repeat(200_000)).matches(&key));
    assert!(!Glob::parse(&b"[]".repeat(200_000)).matches(&key));
    assert!(Glob::parse(&b"*".repeat(200_000)).matches(&key));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A naive matcher for patterns without classes and escapes.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            matches(rest, key) || (!key.is_empty() && matches(pattern, &key[1..]))
        }
        ([wanted, rest @ ..], [byte, behind @ ..]) => {
            (*wanted == b'?' || wanted == byte) && matches(rest, behind)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_a_plain_reading(pattern in "[ab*?]{0,8}|[ab*]{0,10}", key in "[ab]{0,12}") {
        let glob = Glob::parse(pattern.as_bytes());
        prop_assert_eq!(glob.matches(key.as_bytes()), matches(pattern.as_bytes(), key.as_bytes()));
    }

    #[test]
    fn no_bytes_lead_to_a_panic(
        pattern in vec(prop_oneof![
            prop::sample::select(&br"*?[]!^-\{}"[..]), any::<u8>(),
        ], 0..30),
        key in vec(any::<u8>(), 0..10),
    ) {
        let glob = Glob::parse(&pattern);
        if glob.matches(&key) {
            prop_assert!(key.starts_with(glob.literal_prefix()));
        }
        let literal = Glob::parse_with(b"{key}", |_| Some(key.clone())).unwrap();
        prop_assert!(literal.matches(&key));
        let _ = Glob::parse_with(&pattern, |name| Some(name.into()));
    }
}
