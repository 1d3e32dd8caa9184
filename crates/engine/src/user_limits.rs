//! Limits of one user, which replace those that hold for every user of its tenant.

use serde::{Deserialize, Serialize};

use crate::limits::{Limits, Quota};

/// The limits of one user. `None`: the limit for every user of the tenant applies; 0: there is no limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLimits {
    /// Maximum number of simultaneous connections, instead of `max_user_connections`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<usize>,
    /// Maximum number of connections that are admitted in a second, instead of `user_connect_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_rate: Option<u64>,
    /// Messages that the clients of the user may send in a second, instead of `user_publish_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_rate: Option<u64>,
    /// Bytes that are read from the clients of the user in a second, instead of `user_inbound_bytes_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_bytes_rate: Option<u64>,
    /// Bytes that are sent to the clients of the user in a second, instead of `user_outbound_bytes_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound_bytes_rate: Option<u64>,
}

impl UserLimits {
    /// The limits of a user who has none of its own.
    pub const NONE: Self = Self {
        max_connections: None,
        connect_rate: None,
        publish_rate: None,
        inbound_bytes_rate: None,
        outbound_bytes_rate: None,
    };

    /// Whether the user has no limits of its own.
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The value of a quota for the user, in a tenant with these limits. `None`: the quota is no limit of a tenant.
    pub fn limit(&self, quota: Quota, limits: &Limits) -> Option<u64> {
        let own = match quota {
            Quota::MaxUserConnections => self.max_connections.map(|count| count as u64),
            Quota::UserConnectRate => self.connect_rate,
            Quota::UserPublishRate => self.publish_rate,
            Quota::UserInboundBytesRate => self.inbound_bytes_rate,
            Quota::UserOutboundBytesRate => self.outbound_bytes_rate,
            _ => None,
        };
        own.or_else(|| quota.limit(limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set_is_written() {
        let text = r#"{"max_connections":2,"publish_rate":0}"#;
        let limits: UserLimits = serde_json::from_str(text).unwrap();
        assert_eq!(limits.max_connections, Some(2));
        assert_eq!(limits.publish_rate, Some(0), "no limit is not the limit of the tenant");
        assert_eq!(serde_json::to_string(&limits).unwrap(), text);
        assert!(!limits.are_none());
        assert!(serde_json::from_str::<UserLimits>("{}").unwrap().are_none());
        for wrong in [r#"{"user_publish_rate":1}"#, r#"{"publish_rate":-1}"#] {
            assert!(serde_json::from_str::<UserLimits>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_own_limit_replaces_that_of_every_user() {
        let tenant = Limits {
            publish_rate: 100,
            user_publish_rate: 10,
            user_connect_rate: 5,
            ..Limits::default()
        };
        let own = UserLimits { publish_rate: Some(20), connect_rate: Some(0), ..UserLimits::NONE };
        assert_eq!(own.limit(Quota::UserPublishRate, &tenant), Some(20));
        assert_eq!(own.limit(Quota::UserConnectRate, &tenant), Some(0));
        assert_eq!(own.limit(Quota::PublishRate, &tenant), Some(100));
        assert_eq!(UserLimits::NONE.limit(Quota::UserPublishRate, &tenant), Some(10));
    }
}
