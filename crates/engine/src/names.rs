//! Names with a meaning: of tenants, of users, and of topics that are the broker's.

use statestore_proto::topics;
use thiserror::Error;

/// The tenant of users without one.
pub const DEFAULT_TENANT: &str = "default";

/// [`DEFAULT_TENANT`], as the default of a setting.
pub fn default_tenant_name() -> String {
    DEFAULT_TENANT.into()
}

/// Stands in metrics for tenants that were removed and whose counters have no series of their own. No tenant is
/// called so.
pub const OTHERS: &str = "#removed";

/// The longest name of a tenant, in bytes.
pub const NAME_MAX: usize = 64;

/// Splits a user name into tenant and client: `{tenant}/{client}`, or the default tenant. `None`: the
/// part before the slash cannot be a tenant.
pub fn tenant_of(user_name: Option<&str>) -> Option<&str> {
    match user_name.and_then(|name| name.split_once('/')) {
        None => Some(DEFAULT_TENANT),
        Some((tenant, _)) => check_tenant_name(tenant).is_ok().then_some(tenant),
    }
}

/// Why a text cannot be the name of a tenant.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TenantNameError {
    /// It is empty.
    #[error("a tenant needs a name")]
    Empty,
    /// It has more than [`NAME_MAX`] bytes.
    #[error("a tenant's name has at most {NAME_MAX} bytes, and this one has {0}")]
    TooLong(usize),
    /// It has a slash, a wildcard, white space or a control character.
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

/// `{tenant}/{client}`, also for a user name that leaves the tenant `default` out.
pub fn full_name(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{DEFAULT_TENANT}/{name}") }
}

/// How the topics begin that tell of the broker.
const PREFIX: &str = "$SYS/";

/// How the only topics of clients begin that begin with [`PREFIX`].
const CONNECTIONS: &str = "$SYS/broker/connection/";

/// Whether only the broker publishes to a topic.
pub fn is_sys(topic: &str) -> bool {
    topic.starts_with(PREFIX) && !topic.starts_with(CONNECTIONS)
}

/// Whether a topic is the one to which a client tells, as the bridges of Mosquitto do, whether it is connected:
/// `$SYS/broker/connection/{client_id}/state`.
pub fn is_connection_state(topic: &str, client_id: &str) -> bool {
    let name = topic.strip_prefix(CONNECTIONS).and_then(|rest| rest.strip_suffix("/state"));
    name == Some(client_id)
}

/// Topic levels below which only the broker publishes.
const RESERVED: [&str; 2] = ["$SYS", "$share"];

/// Whether only the broker publishes to a topic, but for the state of a bridge.
pub fn is_reserved(topic: &str) -> bool {
    let is_below = |prefix| {
        topic.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    RESERVED.into_iter().any(is_below) || topic.starts_with(topics::RESERVED)
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
