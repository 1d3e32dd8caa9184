//! A ban: who may not connect, why, and until when.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use barid_core::time::WallTime;
use barid_engine::names::{check_tenant_name, check_user_name, tenant_of};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of the reason of a ban, in bytes.
const REASON_MAX: usize = 256;

/// Maximum length of the client identifier in a ban, in bytes: a CONNECT cannot carry a longer one.
const CLIENT_MAX: usize = 65_535;

/// A ban. It has exactly one of `user`, `client` and `address`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ban {
    /// The user, `{tenant}/{client}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The MQTT client identifier or AMQP container id in `tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Network>,
    /// The tenant of `client`. For `address`, the only tenant that the ban is about; `None`: all tenants. `None` for
    /// `user`, whose name has its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The reason, for operators. Clients are not told.
    #[serde(default)]
    pub reason: String,
    /// The time at which the ban ends, in milliseconds since the Unix epoch. `None`: it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The time at which the ban was made, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub created_at: u64,
}

/// Addresses with the same first bits. IPv4 addresses in the IPv6 form `::ffff:a.b.c.d` are IPv4 addresses, here
/// and in comparisons.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Network(IpNet);

impl Ban {
    /// Reads a ban.
    ///
    /// # Errors
    /// Fails if the text is not that of a ban.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a ban has text for keys")
    }

    /// Returns the only tenant that the ban is about. `None`: all tenants.
    pub fn tenant(&self) -> Option<&str> {
        match &self.user {
            Some(user) => tenant_of(Some(user)),
            None => self.tenant.as_deref(),
        }
    }

    /// Returns why a client is kept out, as a part of a sentence for operators.
    pub fn explanation(&self) -> String {
        let subject = match (&self.user, &self.client, &self.address) {
            (Some(user), ..) => format!("the user {user:?}"),
            (_, Some(client), _) => format!("the client {client:?}"),
            (.., Some(network)) => format!("the address {network}"),
            (None, None, None) => "the client".into(),
        };
        match &*self.reason {
            "" => format!("{subject} is banned"),
            reason => format!("{subject} is banned: {reason}"),
        }
    }

    /// Whether the ban has ended.
    pub fn is_over(&self, now: WallTime) -> bool {
        self.until.is_some_and(|until| until <= now.as_millis())
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let subjects = [self.user.is_some(), self.client.is_some(), self.address.is_some()];
        if subjects.into_iter().filter(|is_there| *is_there).count() != 1 {
            return Err("a ban is about one `user`, one `client` or one `address`".into());
        }
        if let Some(user) = &self.user {
            check_user_name(user).map_err(|error| format!("`user`: {error}"))?;
            if !user.contains('/') {
                return Err("`user` is {tenant}/{client}".into());
            }
            if self.tenant.is_some() {
                return Err(
                    "`tenant` is for `client` and `address`; `user` has its tenant in front".into(),
                );
            }
        }
        if let Some(tenant) = &self.tenant {
            check_tenant_name(tenant).map_err(|error| format!("`tenant`: {error}"))?;
        }
        if let Some(client) = &self.client {
            if client.is_empty() || client.len() > CLIENT_MAX {
                return Err(format!("`client` has 1 to {CLIENT_MAX} bytes"));
            }
            if self.tenant.is_none() {
                return Err("`client` needs the `tenant` that it belongs to".into());
            }
        }
        if self.reason.len() > REASON_MAX || self.reason.chars().any(char::is_control) {
            return Err(format!(
                "`reason` has at most {REASON_MAX} bytes, and no control characters"
            ));
        }
        Ok(())
    }
}

impl Network {
    /// Returns the addresses whose first `bits` bits are those of `address`. `None`: the address has fewer bits.
    pub(crate) fn around(address: IpAddr, bits: u8) -> Option<Self> {
        IpNet::new(address, bits).ok().map(|network| Self(network.trunc()))
    }

    /// Number of bits that the addresses have in common.
    pub(crate) fn bits(self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether these are IPv4 addresses.
    pub(crate) fn is_v4(self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }

    /// Whether the address is one of these.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Number of bits that all IPv4 addresses in the IPv6 form have in common.
const MAPPED_BITS: u8 = 96;

impl FromStr for Network {
    type Err = String;

    /// Reads an address, or addresses in the form `192.0.2.0/24`. Bits behind the length are cleared.
    fn from_str(text: &str) -> Result<Self, String> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => text.parse::<IpNet>(),
        };
        let network = network.map_err(|_| {
            format!(
                "{text:?} is neither an address nor a network such as 192.0.2.0/24 or 2001:db8::/32"
            )
        })?;
        let mapped = match network {
            IpNet::V6(network) if network.prefix_len() >= MAPPED_BITS => {
                Ipv6Addr::to_ipv4_mapped(&network.addr())
                    .zip(Some(network.prefix_len() - MAPPED_BITS))
            }
            _ => None,
        };
        let mapped = mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok());
        Ok(Self(mapped.map_or(network, IpNet::V4).trunc()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(json: &str) -> Result<Ban, String> {
        let ban = Ban::from_text(json).map_err(|error| error.to_string())?;
        ban.check().map(|()| ban)
    }

    #[test]
    fn a_ban_is_read_as_it_was_written() {
        for text in [
            r#"{"user":"acme/a","reason":"stolen","until":5,"created_at":4}"#,
            r#"{"client":"sensor 7","tenant":"acme","reason":"","created_at":4}"#,
            r#"{"address":"192.0.2.0/24","reason":"","created_at":0}"#,
            r#"{"address":"2001:db8::1","tenant":"acme","reason":"","created_at":0}"#,
        ] {
            assert_eq!(ban(text).unwrap().to_text(), text);
        }
    }

    #[test]
    fn a_ban_has_one_subject() {
        for (text, expected) in [
            ("{}", "one `user`, one `client` or one `address`"),
            (r#"{"user":"a/b","client":"c","tenant":"a"}"#, "one `user`"),
            (r#"{"user":"b"}"#, "{tenant}/{client}"),
            (r#"{"user":"a b/c"}"#, "`user`: a tenant's name cannot contain"),
            (r#"{"user":"a/b","tenant":"a"}"#, "has its tenant in front"),
            (r#"{"client":"c"}"#, "needs the `tenant`"),
            (r#"{"client":"","tenant":"a"}"#, "1 to 65535 bytes"),
            (r#"{"client":"c","tenant":""}"#, "a tenant needs a name"),
            (r#"{"address":"192.0.2.0/33"}"#, "neither an address nor a network"),
            (r#"{"address":"192.0.2"}"#, "neither an address nor a network"),
            (r#"{"user":"a/b","reason":"x\n"}"#, "no control characters"),
            (r#"{"user":"a/b","later":1}"#, "unknown field"),
        ] {
            let error = ban(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(ban(r#"{"user":"acme/b"}"#).unwrap().tenant(), Some("acme"));
        assert_eq!(ban(r#"{"address":"::1"}"#).unwrap().tenant(), None);
    }

    #[test]
    fn a_ban_ends() {
        let ban = ban(r#"{"user":"a/b","until":5}"#).unwrap();
        assert!(!ban.is_over(WallTime::from_millis(4)) && ban.is_over(WallTime::from_millis(5)));
        assert!(!Ban::default().is_over(WallTime::from_millis(u64::MAX)));
    }

    #[test]
    fn networks_have_one_form() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7/120", "192.0.2.0/24"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("2001:DB8::7/32", "2001:db8::/32"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), expected, "{text}");
        }
        let network: Network = "192.0.2.0/24".parse().unwrap();
        assert!(network.contains("::ffff:192.0.2.9".parse().unwrap()));
        assert!(!network.contains("192.0.3.9".parse().unwrap()));
        let all: Network = "::/0".parse().unwrap();
        assert!(!all.contains("192.0.2.9".parse().unwrap()), "only IPv6");
    }
}
