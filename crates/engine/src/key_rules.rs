//! Rules for the keys of the state store that a user may read and write.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use statestore_proto::{Glob, Verb};
use utoipa::ToSchema;

/// A rule that allows a user to read or write some keys of the state store.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
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

/// The keys that one pattern, or one key in a rule, stands for.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    Like(Glob),
    Only(Vec<u8>),
}

/// Checks a key of a rule.
///
/// # Errors
/// A sentence that says what is wrong with the key.
pub fn check(kind: KeyKind, key: &str) -> Result<(), &'static str> {
    Keys::parse(kind, key, "user", "client").map(drop)
}

/// Returns whether a command with this verb changes keys.
pub(crate) fn writes(verb: Verb) -> bool {
    matches!(verb, Verb::Set | Verb::Del | Verb::VDel)
}

impl Keys {
    /// Parses a key of a rule, for a client. The text that replaces `{principal.…}` is literal, whatever
    /// characters it has.
    pub(crate) fn parse(
        kind: KeyKind,
        key: &str,
        user: &str,
        client_id: &str,
    ) -> Result<Self, &'static str> {
        match kind {
            KeyKind::String => Ok(Self::Only(key.into())),
            KeyKind::Binary => BASE64
                .decode(key.as_bytes())
                .map(Self::Only)
                .map_err(|_| "not Base64 (with padding)"),
            KeyKind::Pattern => Glob::parse_with(key.as_bytes(), |name| match name {
                "principal.clientId" => Some(client_id.into()),
                "principal.username" => Some(user.into()),
                _ => None,
            })
            .map(Self::Like)
            .ok_or("only {principal.clientId} and {principal.username} are allowed in braces"),
        }
    }

    pub(crate) fn include(&self, key: &[u8]) -> bool {
        match self {
            Self::Like(pattern) => pattern.matches(key),
            Self::Only(only) => only == key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_keys_are_exact() {
        let keys = Keys::parse(KeyKind::Binary, "AP8qPw==", "acme/ada", "c").unwrap();
        assert!(keys.include(b"\x00\xff*?"));
        assert!(!keys.include(b"\x00\xffab"));
        assert!(check(KeyKind::Binary, "AP8").is_err());
    }
}
