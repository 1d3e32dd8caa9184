//! Users and settings of tenants as they are in Barid's own store: JSON that operators change while the broker
//! runs.
//!
//! A text with a member that this version does not know is not read: a later version may have written it, and the
//! member may restrict what the user or the tenant may do.

use std::fmt;

use barid_engine::key_rules::KeyRule;
use barid_engine::limits::OwnLimits;
use barid_engine::managed::{Managed, ManagedKind};
use barid_engine::names::check_user_name;
use barid_engine::rights::{RULES_MAX, Rights, Rule};
use barid_engine::user_limits::UserLimits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::directory::{Record, Unavailable};

/// Maximum length of a note about a user, in bytes.
const NOTE_MAX: usize = 1_024;

/// Maximum number of back ends of a tenant.
const CHAIN_MAX: usize = 16;

/// Maximum length of the name of a back end, in bytes.
const BACKEND_NAME_MAX: usize = 64;

/// A user in the store.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoredUser {
    /// The password hash, as [`Record::password`].
    pub password: String,
    /// As [`Rights::rules`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// As [`Rights::publish`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Vec<String>>,
    /// As [`Rights::subscribe`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<Vec<String>>,
    /// As [`Rights::state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<KeyRule>>,
    /// As [`Rights::limits`]. A user without any has no such member, so that versions before it can read the user.
    #[serde(default, skip_serializing_if = "UserLimits::are_none")]
    pub limits: UserLimits,
    /// Whether the user may not log in.
    #[serde(default)]
    pub disabled: bool,
    /// A note of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The time at which the user was created, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub created_at: u64,
}

/// The settings of a tenant in the store.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = TenantSettings)]
pub struct StoredTenant {
    /// The rules that apply to all users of the tenant, after those of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The names of the back ends that are asked for the tenant's users, in order. `None`: as in the
    /// configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Vec<String>>,
    /// The limits of the tenant. Those that are not set are as in the configuration.
    pub limits: OwnLimits,
}

impl StoredUser {
    /// Reads a user.
    ///
    /// # Errors
    /// Fails if the text is not that of a user. The error has nothing of the text but names of members.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a user has text for keys")
    }

    /// Returns the rights of the user.
    pub fn rights(&self) -> Rights {
        Rights {
            rules: self.rules.clone(),
            publish: self.publish.clone(),
            subscribe: self.subscribe.clone(),
            state: self.state.clone(),
            limits: self.limits.if_any(),
        }
    }

    /// Returns what a directory tells about the user.
    pub fn into_record(self) -> Record {
        let Self { password, rules, publish, subscribe, state, limits, disabled, .. } = self;
        Record {
            password,
            rights: Rights { rules, publish, subscribe, state, limits: limits.if_any() },
            disabled,
            fast: None,
        }
    }

    /// Checks the name of the user, the rights and the note. The password hash is left to the caller.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self, name: &str) -> Result<(), String> {
        check_user_name(name)?;
        if !name.contains('/') {
            return Err("a user name is {tenant}/{client}".into());
        }
        self.rights().check(name)?;
        let note = self.note.as_deref().unwrap_or_default();
        if note.len() > NOTE_MAX {
            let len = note.len();
            return Err(format!("a note has at most {NOTE_MAX} bytes, and this one has {len}"));
        }
        Ok(())
    }
}

/// Shows no password hash.
impl fmt::Debug for StoredUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredUser")
            .field("rights", &self.rights())
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

impl StoredTenant {
    /// Reads the settings of a tenant.
    ///
    /// # Errors
    /// Fails if the text is not that of settings.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("settings have text for keys")
    }

    /// Returns the settings of a tenant. `None`: the tenant has none in the store.
    ///
    /// # Errors
    /// [`Unavailable`] if the settings cannot be read. Clients of the tenant must not be let in then, because the
    /// rules in the settings are not known.
    pub fn of(managed: &Managed, tenant: &str) -> Result<Option<Self>, Unavailable> {
        let Some(text) = managed.get(ManagedKind::Tenant, tenant) else { return Ok(None) };
        Self::from_text(&text).map(Some).map_err(|error| unreadable("settings of", tenant, &error))
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let count = self.rules.len();
        if count > RULES_MAX {
            return Err(format!("{count} rules are too many: a tenant has at most {RULES_MAX}"));
        }
        // The rules are for users of all names, also for those with wildcards, which %u cannot stand for.
        self.rules.iter().try_for_each(|rule| rule.check(""))?;
        if let Some(chain) = &self.auth {
            check_chain(chain)?;
        }
        self.limits.check()
    }
}

/// Checks the names of back ends. Whether there are back ends of these names is left to the caller.
fn check_chain(chain: &[String]) -> Result<(), String> {
    if chain.is_empty() {
        return Err(
            "`auth` names no back end: only the configuration file can let anybody into a tenant; without `auth` those of the \
                    configuration are asked"
                .into(),
        );
    }
    if chain.len() > CHAIN_MAX {
        return Err(format!("`auth` names at most {CHAIN_MAX} back ends"));
    }
    for (at, name) in chain.iter().enumerate() {
        if name.is_empty() || name.len() > BACKEND_NAME_MAX {
            return Err(format!("the name of a back end has 1 to {BACKEND_NAME_MAX} bytes"));
        }
        if chain[..at].contains(name) {
            return Err(format!("`auth` names {name:?} twice"));
        }
    }
    Ok(())
}

/// Returns the error for an object whose text cannot be read.
pub(crate) fn unreadable(what: &str, name: &str, error: &serde_json::Error) -> Unavailable {
    // The text itself has a password hash.
    let (line, column) = (error.line(), error.column());
    Unavailable(format!(
        "the stored {what} {name:?} cannot be read (line {line}, column {column}): a later version of Barid may have \
         written it; start that version, or set it again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = r##"{"password":"$argon2id$x","rules":[{"deny":"publish","topics":["config/#"]}],"publish":["a/%c/#"],"limits":{"max_connections":2,"publish_rate":0},"disabled":true,"note":"pump","created_at":7}"##;

    /// A user as the version before limits of users wrote it.
    const EARLIER: &str = r##"{"password":"$argon2id$x","publish":["a/#"],"disabled":false,"note":"pump","created_at":7}"##;

    #[test]
    fn a_user_is_read_as_it_was_written() {
        let user = StoredUser::from_text(USER).unwrap();
        assert_eq!(user.to_text(), USER);
        assert_eq!(user.check("acme/a"), Ok(()));
        let shown = format!("{user:?}");
        assert!(!shown.contains("argon2id"), "{shown}");
        let record = user.clone().into_record();
        assert_eq!(record.rights, user.rights());
        assert!(record.disabled && record.password == "$argon2id$x");
        let least = StoredUser::from_text(r#"{"password":"x"}"#).unwrap();
        assert!(least.rights().are_empty() && !least.disabled);
    }

    #[test]
    fn a_user_without_limits_is_stored_as_before() {
        let earlier = StoredUser::from_text(EARLIER).unwrap();
        assert!(earlier.limits.are_none());
        assert_eq!(earlier.to_text(), EARLIER);
        let without =
            StoredUser::from_text(&EARLIER.replace("\"disabled\"", "\"limits\":{},\"disabled\""));
        assert_eq!(without.unwrap().to_text(), EARLIER);
        let unknown = EARLIER.replace("\"disabled\"", "\"limits\":{\"max_fun\":1},\"disabled\"");
        assert!(StoredUser::from_text(&unknown).is_err(), "a later version has written it");
    }

    #[test]
    fn a_user_of_a_later_version_is_not_read() {
        let error = StoredUser::from_text(r#"{"password":"$secret","expires":1}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `expires`"));
        let told = unreadable("user", "acme/a", &error).to_string();
        assert!(told.contains("\"acme/a\"") && !told.contains("$secret"), "{told}");
        assert!(StoredUser::from_text("{}").is_err(), "without a password");
    }

    #[test]
    fn what_is_wrong_with_a_user_is_told() {
        let user = |json: &str| StoredUser::from_text(json).unwrap();
        let good = user(r#"{"password":"x"}"#);
        for (name, expected) in [
            ("sensor-7", "{tenant}/{client}"),
            ("acme/", "is empty"),
            ("a b/c", "cannot contain ' '"),
            ("acme/a\n", "cannot contain '\\n'"),
        ] {
            let error = good.check(name).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        let error = user(r##"{"password":"x","publish":["a/#/b"]}"##).check("acme/a").unwrap_err();
        assert!(error.contains("not a topic filter"), "{error}");
        let error = user(r#"{"password":"x","publish":["%u"]}"#).check("acme/+").unwrap_err();
        assert!(error.contains("wildcards"), "{error}");
        let long = StoredUser { note: Some("x".repeat(NOTE_MAX + 1)), ..good };
        assert!(long.check("acme/a").unwrap_err().contains("a note has at most"));
    }

    #[test]
    fn settings_of_a_tenant_are_read_and_checked() {
        let text = r#"{"rules":[{"allow":"all"}],"auth":["store","file"],"limits":{"max_connections":5,"queue_overflow":"drop-oldest"}}"#;
        let tenant = StoredTenant::from_text(text).unwrap();
        assert_eq!(tenant.to_text(), text);
        assert_eq!(tenant.check(), Ok(()));
        assert_eq!(StoredTenant::from_text("{}").unwrap(), StoredTenant::default());
        for (text, expected) in [
            (r#"{"auth":[]}"#, "names no back end"),
            (r#"{"auth":["a","b","a"]}"#, "names \"a\" twice"),
            (r#"{"auth":[""]}"#, "1 to 64 bytes"),
            (r#"{"rules":[{"allow":"all","deny":"all"}]}"#, "either"),
            (r#"{"limits":{"max_qos":3}}"#, "max_qos is 3"),
        ] {
            let error = StoredTenant::from_text(text).unwrap().check().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(StoredTenant::from_text(r#"{"limits":{"max_fun":3}}"#).is_err());
    }
}
