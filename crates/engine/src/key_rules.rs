//! Rules for the keys of the state store that a user may read and write.

use data_encoding::BASE64;
use serde::Deserialize;
use statestore_proto::{Glob, Verb};

/// A rule that allows a user to read or write some keys of the state store.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct KeyRule {
    /// What the rule allows.
    pub access: KeyAccess,
    /// How the keys are written.
    #[serde(default, rename = "type")]
    pub kind: KeyKind,
    /// The keys that the rule is for.
    pub keys: Vec<String>,
}

/// The commands that a rule allows for its keys.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum KeyAccess {
    /// GET, KEYNOTIFY, SCAN.
    Read,
    /// SET, DEL, VDEL.
    Write,
    /// All commands.
    ReadWrite,
}

/// How a rule writes its keys.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Patterns with `*`, `?` and `[0-9]`, in which `{principal.clientId}` and `{principal.username}` are
    /// replaced.
    #[default]
    Pattern,
    /// The keys themselves, as text.
    String,
    /// The keys themselves, in Base64.
    Binary,
}

/// The rules of one user, applied to one client. Rules only allow: a key that no rule includes is denied.
#[derive(Debug)]
pub struct KeyRules(Vec<(KeyAccess, Keys)>);

#[derive(Debug)]
enum Keys {
    Like(Glob),
    Only(Vec<u8>),
}

impl KeyRules {
    /// Applies the rules of `user` to a client. The text that replaces `{principal.…}` is literal, whatever
    /// characters it has. A pattern with another name in braces allows nothing.
    pub fn new(rules: &[KeyRule], user: &str, client_id: &str) -> Self {
        let named = |rule: &KeyRule| {
            let keys =
                rule.keys.iter().filter_map(|key| parse(rule.kind, key, user, client_id).ok());
            keys.map(|keys| (rule.access, keys)).collect::<Vec<_>>()
        };
        Self(rules.iter().flat_map(named).collect())
    }

    /// Checks a key of a rule.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the key.
    pub fn check(kind: KeyKind, key: &str) -> Result<(), &'static str> {
        parse(kind, key, "user", "client").map(drop)
    }

    /// Whether a command with this verb may touch `key`.
    pub fn allow(&self, verb: Verb, key: &[u8]) -> bool {
        let writes = matches!(verb, Verb::Set | Verb::Del | Verb::VDel);
        self.0.iter().any(|(access, keys)| access.covers(writes) && keys.include(key))
    }
}

impl KeyAccess {
    fn covers(self, writes: bool) -> bool {
        self == Self::ReadWrite || writes == (self == Self::Write)
    }
}

impl Keys {
    fn include(&self, key: &[u8]) -> bool {
        match self {
            Self::Like(pattern) => pattern.matches(key),
            Self::Only(only) => only == key,
        }
    }
}

fn parse(kind: KeyKind, key: &str, user: &str, client_id: &str) -> Result<Keys, &'static str> {
    match kind {
        KeyKind::String => Ok(Keys::Only(key.into())),
        KeyKind::Binary => {
            BASE64.decode(key.as_bytes()).map(Keys::Only).map_err(|_| "not Base64 (with padding)")
        }
        KeyKind::Pattern => Glob::parse_with(key.as_bytes(), |name| match name {
            "principal.clientId" => Some(client_id.into()),
            "principal.username" => Some(user.into()),
            _ => None,
        })
        .map(Keys::Like)
        .ok_or("only {principal.clientId} and {principal.username} are allowed in braces"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(access: KeyAccess, kind: KeyKind, key: &str, client_id: &str) -> KeyRules {
        let rule = KeyRule { access, kind, keys: vec![key.into()] };
        KeyRules::new(&[rule], "acme/ada", client_id)
    }

    #[test]
    fn reading_and_writing_are_allowed_apart() {
        for (access, reads, writes) in [
            (KeyAccess::Read, true, false),
            (KeyAccess::Write, false, true),
            (KeyAccess::ReadWrite, true, true),
        ] {
            let rules = rules(access, KeyKind::String, "a", "c");
            for verb in Verb::ALL {
                let expected = match verb {
                    Verb::Set | Verb::Del | Verb::VDel => writes,
                    Verb::Get | Verb::KeyNotify | Verb::Scan => reads,
                };
                assert_eq!(rules.allow(verb, b"a"), expected, "{access:?} {verb:?}");
                assert!(!rules.allow(verb, b"b"));
            }
        }
    }

    #[test]
    fn a_client_identifier_is_no_pattern() {
        let own = |client_id| {
            rules(KeyAccess::Read, KeyKind::Pattern, "own/{principal.clientId}/*", client_id)
        };
        assert!(own("c1").allow(Verb::Get, b"own/c1/x"));
        assert!(!own("*").allow(Verb::Get, b"own/c1/x"));
        assert!(own("*").allow(Verb::Get, b"own/*/x"));
        assert!(!own("[a-z]1").allow(Verb::Get, b"own/c1/x"));
        let unknown = rules(KeyAccess::Read, KeyKind::Pattern, "{principal.attributes.x}*", "c");
        assert!(!unknown.allow(Verb::Get, b"anything"));
    }

    #[test]
    fn binary_keys_are_exact() {
        let rules = rules(KeyAccess::ReadWrite, KeyKind::Binary, "AP8qPw==", "c");
        assert!(rules.allow(Verb::Set, b"\x00\xff*?"));
        assert!(!rules.allow(Verb::Set, b"\x00\xffab"));
        assert!(KeyRules::check(KeyKind::Binary, "AP8").is_err());
    }
}
