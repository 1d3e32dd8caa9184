//! Names with a meaning: of tenants, of users, and of the topics that are reserved for the broker.

use statestore_proto::topics;
use thiserror::Error;

/// The tenant of users without one.
pub const DEFAULT_TENANT: &str = "default";

/// [`DEFAULT_TENANT`], as the default of a setting.
pub fn default_tenant_name() -> String {
    DEFAULT_TENANT.into()
}

/// The name that metrics use for all tenants together that have no series of their own: those beyond a number, and some of
/// those that were removed. No tenant can have this name.
pub const OTHERS: &str = "#other";

/// Maximum length of a tenant's name, in bytes.
pub const NAME_MAX: usize = 64;

/// Returns the tenant of a user name: the part before the first slash, or the default tenant if there is no slash.
/// `None`: the part before the slash cannot be the name of a tenant.
pub fn tenant_of(user_name: Option<&str>) -> Option<&str> {
    match user_name.and_then(|name| name.split_once('/')) {
        None => Some(DEFAULT_TENANT),
        Some((tenant, _)) => check_tenant_name(tenant).is_ok().then_some(tenant),
    }
}

/// Reason for which a text cannot be the name of a tenant.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TenantNameError {
    /// The text is empty.
    #[error("a tenant needs a name")]
    Empty,
    /// The text has more than [`NAME_MAX`] bytes.
    #[error("a tenant's name has at most {NAME_MAX} bytes, and this one has {0}")]
    TooLong(usize),
    /// The text has a slash, a wildcard, white space or a control character.
    #[error("a tenant's name cannot contain {0:?}")]
    Character(char),
}

/// Checks the name of a tenant, which is the part of a user name before the first slash.
///
/// # Errors
/// [`TenantNameError`]: no client can belong to a tenant of that name.
pub fn check_tenant_name(name: &str) -> Result<(), TenantNameError> {
    if name.is_empty() {
        return Err(TenantNameError::Empty);
    }
    if name.len() > NAME_MAX {
        return Err(TenantNameError::TooLong(name.len()));
    }
    let is_bad = |c: &char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '+' | '#');
    name.chars().find(is_bad).map_or(Ok(()), |c| Err(TenantNameError::Character(c)))
}

/// Maximum length of a user name, in bytes: a CONNECT cannot carry a longer one (MQTT 5, 1.5.4).
const USER_NAME_MAX: usize = 65_535;

/// Checks that a client can log in with this user name, `{tenant}/{client}` or without a slash.
///
/// # Errors
/// A sentence about what is wrong.
pub fn check_user_name(name: &str) -> Result<(), String> {
    let (tenant, client) = name.split_once('/').unwrap_or((DEFAULT_TENANT, name));
    check_tenant_name(tenant).map_err(|error| error.to_string())?;
    if client.is_empty() {
        return Err("the user name is empty".into());
    }
    if name.len() > USER_NAME_MAX {
        let len = name.len();
        return Err(format!(
            "a user name has at most {USER_NAME_MAX} bytes, and this one has {len}"
        ));
    }
    match name.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("a user name cannot contain {c:?}")),
        None => Ok(()),
    }
}

/// Returns the user name as `{tenant}/{client}`. A name without a tenant gets the tenant `default`.
pub fn full_name(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{DEFAULT_TENANT}/{name}") }
}

/// Returns what `%u` stands for in rules: the user name as its client gives it. A user of the tenant `default`
/// has no tenant in its name, unless there would be another one then.
pub fn given_name(full: &str) -> &str {
    match full.split_once('/') {
        Some((DEFAULT_TENANT, client)) if !client.contains('/') => client,
        _ => full,
    }
}

/// Prefix of the topics about the broker.
const PREFIX: &str = "$SYS/";

/// Prefix of the only topics below [`PREFIX`] that clients may publish to.
const CONNECTIONS: &str = "$SYS/broker/connection/";

/// Whether only the broker publishes to a topic.
pub(crate) fn is_sys(topic: &str) -> bool {
    topic.starts_with(PREFIX) && !topic.starts_with(CONNECTIONS)
}

/// Whether a topic is the one on which this client publishes whether it is connected, as the bridges of Mosquitto
/// do: `$SYS/broker/connection/{client_id}/state`.
pub(crate) fn is_connection_state(topic: &str, client_id: &str) -> bool {
    let name = topic.strip_prefix(CONNECTIONS).and_then(|rest| rest.strip_suffix("/state"));
    name == Some(client_id)
}

/// First topic levels below which only the broker publishes.
const RESERVED: [&str; 2] = ["$SYS", "$share"];

/// Whether only the broker publishes to a topic, apart from the connection state of a bridge.
pub fn is_reserved(topic: &str) -> bool {
    let is_below = |prefix| {
        topic.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    RESERVED.into_iter().any(is_below) || topic.starts_with(topics::RESERVED)
}

/// Whether the messages of a topic stay on their broker: those about the broker itself, and notifications of the state store.
pub(crate) fn is_local(topic: &str) -> bool {
    is_sys(topic) || topic.starts_with(topics::RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_is_what_comes_before_the_first_slash() {
        assert_eq!(tenant_of(None), Some("default"));
        assert_eq!(tenant_of(Some("ada")), Some("default"));
        assert_eq!(tenant_of(Some("acme/ada")), Some("acme"));
        assert_eq!(tenant_of(Some("acme/ada/x")), Some("acme"));
        for bad in ["/ada", "a b/ada", "a\n/x", "+/x", "#/x"] {
            assert_eq!(tenant_of(Some(bad)), None, "{bad:?}");
        }
        assert_eq!(tenant_of(Some(&format!("{}/x", "t".repeat(65)))), None);
    }
}
