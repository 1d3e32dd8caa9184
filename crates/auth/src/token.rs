//! Tokens of the admin API: what a program shows to prove what it may do.

use std::fmt;

use barid_core::time::WallTime;
use barid_engine::names::check_tenant_name;
use barid_engine::random::Random;
use data_encoding::BASE32_NOPAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;

/// What every token begins with, so that programs that search for leaked secrets find it.
const PREFIX: &str = "barid_";

/// Number of random bytes in an id: 8 characters.
const ID_BYTES: usize = 5;

/// Number of random bytes of a secret. It cannot be guessed, so a fast hash protects it.
const SECRET_BYTES: usize = 32;

/// Maximum length of a note, in bytes.
const NOTE_MAX: usize = 256;

/// What a token allows. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sees names, counts and settings.
    Viewer,
    /// Also sees the contents of messages and keys, and changes what happens now: sessions, connections, bans,
    /// entities, messages.
    Operator,
    /// Also changes who may do what: users, settings of tenants, tokens.
    Admin,
}

/// A token as it is stored: without its secret.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The SHA-256 of the secret.
    hash: String,
    /// What the token allows.
    pub role: Role,
    /// The only tenant that the token is for. `None`: the whole broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// A note of an operator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The time at which the token ends, in milliseconds since the Unix epoch. `None`: it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The time at which the token was created, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub created_at: u64,
}

/// What a program shows: `barid_{id}_{secret}`.
pub struct Shown {
    /// The name under which the token is stored.
    pub id: String,
    secret: String,
}

impl Role {
    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl Token {
    /// Creates a token for what is shown.
    pub fn new(shown: &Shown, role: Role, now: WallTime) -> Self {
        let hash = shown.hash();
        let created_at = now.as_millis();
        Self { hash, role, tenant: None, note: String::new(), until: None, created_at }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Fails if the text is not that of a token. The error has nothing of the text but names of members.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a token has text for keys")
    }

    /// Whether this is the token of what is shown, and has not ended.
    pub fn accepts(&self, shown: &Shown, now: WallTime) -> bool {
        bool::from(self.hash.as_bytes().ct_eq(shown.hash().as_bytes())) && !self.is_over(now)
    }

    /// Whether the token has ended.
    pub fn is_over(&self, now: WallTime) -> bool {
        self.until.is_some_and(|until| until <= now.as_millis())
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if let Some(tenant) = &self.tenant {
            check_tenant_name(tenant).map_err(|error| format!("`tenant`: {error}"))?;
        }
        if self.note.len() > NOTE_MAX || self.note.chars().any(char::is_control) {
            return Err(format!("`note` has at most {NOTE_MAX} bytes, and no control characters"));
        }
        Ok(())
    }
}

impl Shown {
    /// Makes a new one.
    pub fn new(random: Random) -> Self {
        let text = |bytes: &[u8]| BASE32_NOPAD.encode(bytes).to_lowercase();
        let id = text(&random.bytes::<ID_BYTES>());
        Self { id, secret: text(&random.bytes::<SECRET_BYTES>()) }
    }

    /// Reads what a program shows. `None`: it is no token.
    pub fn from_text(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_token = is_word(id) && is_word(secret) && text.len() <= 128;
        is_token.then(|| Self { id: id.into(), secret: secret.into() })
    }

    /// Returns the text, which has the secret.
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    fn hash(&self) -> String {
        BASE32_NOPAD.encode(digest(&SHA256, self.secret.as_bytes()).as_ref()).to_lowercase()
    }
}

/// Shows no secret.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(byte: u8) -> Shown {
        match byte {
            1 => Shown::new(Random(|bytes| bytes.fill(1))),
            _ => Shown::new(Random(|bytes| bytes.fill(2))),
        }
    }

    const NOW: WallTime = WallTime::from_millis(1_000);

    #[test]
    fn a_token_is_accepted_by_its_secret_until_it_ends() {
        let (own, other) = (shown(1), shown(2));
        let mut token = Token::new(&own, Role::Operator, NOW);
        let read = Shown::from_text(&own.to_text()).unwrap();
        assert_eq!((read.id.as_str(), read.id.len()), (&*own.id, 8));
        assert!(token.accepts(&read, NOW) && !token.accepts(&other, NOW));
        let forged = Shown { id: own.id.clone(), secret: other.secret };
        assert!(!token.accepts(&forged, NOW));
        token.until = Some(2_000);
        assert!(token.accepts(&own, NOW) && !token.accepts(&own, WallTime::from_millis(2_000)));
    }

    #[test]
    fn what_is_stored_has_no_secret() {
        let shown = shown(1);
        let token = Token { note: "ci".into(), ..Token::new(&shown, Role::Admin, NOW) };
        let text = token.to_text();
        assert!(
            !text.contains(&shown.secret) && text.contains(r#""role":"admin","note":"ci""#),
            "{text}"
        );
        assert_eq!(Token::from_text(&text).unwrap(), token);
        assert!(!format!("{shown:?}").contains(&shown.secret));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let long = format!("barid_{}_a", "a".repeat(200));
        for text in [
            "",
            "barid_",
            "barid_a",
            "barid_a_",
            "barid__a",
            "barid_a/b_c",
            "barid_a_b c",
            "a_b",
            &long,
        ] {
            assert!(Shown::from_text(text).is_none(), "{text}");
        }
    }

    #[test]
    fn settings_are_checked() {
        let token = |tenant: Option<&str>, note: &str| Token {
            tenant: tenant.map(Into::into),
            note: note.into(),
            ..Token::new(&shown(1), Role::Viewer, NOW)
        };
        assert_eq!(token(Some("acme"), "for Grafana").check(), Ok(()));
        for (token, expected) in [
            (token(Some("a b"), ""), "`tenant`"),
            (token(None, "a\n"), "`note`"),
            (token(None, &"a".repeat(257)), "`note`"),
        ] {
            assert!(token.check().unwrap_err().contains(expected), "{expected}");
        }
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    }
}
