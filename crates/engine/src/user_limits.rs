//! Limits of one user, which replace those that hold for every user of its tenant.

use barid_core::holder::{Held, OwnHeldLimits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{Limits, Quota};

macro_rules! user_limits {
    ($($(#[$doc:meta])* $name:ident = $quota:ident,)*) => {
        /// The limits of one user. `None`: the limit for every user of the tenant applies; 0: there is no limit.
        #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct UserLimits {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)*
        }

        impl UserLimits {
            /// The limits of a user who has none of its own.
            pub const NONE: Self = Self { $($name: None,)* };

            /// The own limit of the user that replaces a quota for every user of the tenant.
            fn own(&self, quota: Quota) -> Option<u64> {
                match quota {
                    $(Quota::$quota => self.$name,)*
                    _ => None,
                }
            }
        }
    };
}

user_limits! {
    /// Maximum number of simultaneous connections, instead of `max_user_connections`.
    max_connections = MaxUserConnections,
    /// Maximum number of connections that are admitted in a second, instead of `user_connect_rate`.
    connect_rate = UserConnectRate,
    /// Messages that the clients of the user may send in a second, instead of `user_publish_rate`.
    publish_rate = UserPublishRate,
    /// Bytes that are read from the clients of the user in a second, instead of `user_inbound_bytes_rate`.
    inbound_bytes_rate = UserInboundBytesRate,
    /// Bytes that are sent to the clients of the user in a second, instead of `user_outbound_bytes_rate`.
    outbound_bytes_rate = UserOutboundBytesRate,
    /// Maximum number of sessions, instead of `max_user_sessions`.
    max_sessions = MaxUserSessions,
    /// Maximum number of subscriptions of all sessions of the user, instead of `max_user_subscriptions`.
    max_subscriptions = MaxUserSubscriptions,
    /// Maximum size of the messages that wait for all clients of the user, in bytes, instead of
    /// `max_user_queued_bytes`.
    max_queued_bytes = MaxUserQueuedBytes,
    /// Maximum number of retained messages that the user has set, instead of `max_user_retained_messages`.
    max_retained_messages = MaxUserRetainedMessages,
    /// Maximum size of these messages, in bytes, instead of `max_user_retained_bytes`.
    max_retained_bytes = MaxUserRetainedBytes,
    /// Maximum number of keys in the state store that the user has set, instead of `max_user_state_keys`.
    max_state_keys = MaxUserStateKeys,
    /// Maximum size of these keys and their values, in bytes, instead of `max_user_state_bytes`.
    max_state_bytes = MaxUserStateBytes,
}

impl UserLimits {
    /// Whether the user has no limits of its own.
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the limits if there are any: few users have limits of their own.
    pub fn if_any(self) -> Option<Box<Self>> {
        (!self.are_none()).then(|| Box::new(self))
    }

    /// The value of a quota for the user, in a tenant with these limits. `None`: the quota is no limit of a tenant.
    pub fn limit(&self, quota: Quota, limits: &Limits) -> Option<u64> {
        self.own(quota).or_else(|| quota.limit(limits))
    }

    /// Whether the user has any limit of connections or rates of its own.
    pub fn are_of_connections(&self) -> bool {
        Quota::OF_CONNECTIONS.iter().any(|quota| self.own(*quota).is_some())
    }

    /// The own limits of what the user may hold.
    pub fn of_held(&self) -> OwnHeldLimits {
        Held::ALL.map(|held| self.own(Quota::of_held(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set_is_written() {
        let text = r#"{"max_connections":2,"publish_rate":0,"max_state_keys":5}"#;
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
        let own = UserLimits {
            publish_rate: Some(20),
            connect_rate: Some(0),
            max_sessions: Some(3),
            ..UserLimits::NONE
        };
        assert!(own.are_of_connections());
        let mut of_held = OwnHeldLimits::default();
        of_held[Held::Sessions as usize] = Some(3);
        assert_eq!(own.of_held(), of_held);
        assert!(!UserLimits { max_sessions: Some(3), ..UserLimits::NONE }.are_of_connections());
        assert_eq!(own.limit(Quota::UserPublishRate, &tenant), Some(20));
        assert_eq!(own.limit(Quota::UserConnectRate, &tenant), Some(0));
        assert_eq!(own.limit(Quota::PublishRate, &tenant), Some(100));
        assert_eq!(UserLimits::NONE.limit(Quota::UserPublishRate, &tenant), Some(10));
    }
}
