//! Limits on what the clients of a tenant may use.

use std::fmt;
use std::ops::{Index, IndexMut};

use barid_core::holder::Held;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::durability::DurabilityClass;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// Limits on what the clients of one tenant may use.
        #[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits { $($(#[$doc])* pub $name: $type,)* }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// The limits that the configuration sets for one tenant. `None`: the common limit applies.
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct OwnLimits {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }

        impl OwnLimits {
            /// Returns the limits that are set here, and else those of `under`.
            pub fn or(self, under: Self) -> Self {
                Self { $($name: self.$name.or(under.$name),)* }
            }

            /// Returns the limits of the tenant: its own, and the `common` ones where it has none.
            pub fn over(&self, common: &Limits) -> Limits {
                Limits { $($name: self.$name.clone().unwrap_or_else(|| common.$name.clone()),)* }
            }
        }
    };
}

limits! {
    /// Maximum number of simultaneous connections.
    max_connections: usize = 1_000_000,
    /// Maximum number of simultaneous connections of one user. 0: no limit.
    max_user_connections: usize = 0,
    /// Maximum number of connections that are admitted in a second. 0: no limit.
    connect_rate: u64 = 0,
    /// Maximum number of connections of one user that are admitted in a second. 0: no limit.
    user_connect_rate: u64 = 0,
    /// Messages that all clients together may send in a second. 0: no limit.
    publish_rate: u64 = 0,
    /// Messages that the clients of one user may send in a second. 0: no limit.
    user_publish_rate: u64 = 0,
    /// Bytes that are read from all clients together in a second. 0: no limit.
    inbound_bytes_rate: u64 = 0,
    /// Bytes that are read from the clients of one user in a second. 0: no limit.
    user_inbound_bytes_rate: u64 = 0,
    /// Bytes that are sent to all clients together in a second. 0: no limit.
    outbound_bytes_rate: u64 = 0,
    /// Bytes that are sent to the clients of one user in a second. 0: no limit.
    user_outbound_bytes_rate: u64 = 0,
    /// Maximum number of sessions, with and without a client. Beyond, clients without a session are refused.
    max_sessions: usize = 1_000_000,
    /// Maximum number of sessions of one user. 0: no limit.
    max_user_sessions: u64 = 0,
    /// Maximum length of a client identifier, in bytes; at least 23 (MQTT-3.1.3-5).
    max_client_id_bytes: usize = 1_024,
    /// Maximum size of a packet that a client may send, in bytes.
    max_packet_size: usize = 2 * 1024 * 1024,
    /// Maximum number of QoS 2 messages that a client may have unreleased at once (Receive Maximum).
    receive_maximum: u16 = 65_535,
    /// Maximum number of topic aliases that a client may define.
    topic_alias_maximum: u16 = 32,
    /// Maximum number of topic aliases that the broker defines on a connection; fewer if the client allows
    /// fewer.
    max_outbound_topic_aliases: u16 = 32,
    /// Maximum number of QoS 1 and 2 messages in flight to one client; fewer if its Receive Maximum is lower.
    max_inflight: u16 = 1_024,
    /// Maximum number of messages that wait for one client.
    max_queued_messages: usize = 10_000,
    /// Maximum size of the messages that wait for one client, in bytes.
    max_queued_bytes: usize = 32 * 1024 * 1024,
    /// Maximum number of messages that wait for all clients of the tenant together.
    max_tenant_queued_messages: usize = 100_000_000,
    /// Maximum size of the messages that wait for all clients of the tenant together, in bytes.
    max_tenant_queued_bytes: usize = 1024 * 1024 * 1024 * 1024,
    /// Maximum size of the messages that wait for all clients of one user together, in bytes. 0: no limit.
    max_user_queued_bytes: u64 = 0,
    /// What happens when a queue is full.
    queue_overflow: QueueOverflow = QueueOverflow::DropNewest,
    /// Durability class: what an acknowledgement promises, `memory` or `local`. `[[durability]]` sets
    /// exceptions.
    durability: DurabilityClass = DurabilityClass::Local,
    /// Maximum number of subscriptions of one client.
    max_subscriptions: usize = 10_000,
    /// Maximum number of subscriptions of all sessions of the tenant together.
    max_tenant_subscriptions: usize = 10_000_000,
    /// Maximum number of subscriptions of all sessions of one user together. 0: no limit.
    max_user_subscriptions: u64 = 0,
    /// Maximum memory of the subscriptions of one client, approximately, in bytes.
    max_subscription_bytes: usize = 16 * 1024 * 1024,
    /// Maximum number of levels of all patterns of wildcards in the tenant's subscriptions: `a/+` and `b/+`
    /// have the same pattern, with two levels. It is also the maximum number of steps to find the subscribers
    /// of a topic. Beyond, filters with new patterns are refused. Filters of up to 7 levels cannot have more
    /// than 1,538.
    max_pattern_levels: usize = 2_048,
    /// Maximum number of retained messages of the tenant.
    max_retained_messages: usize = 1_000_000,
    /// Maximum size of the retained messages of the tenant, in bytes, including an overhead for each.
    max_retained_bytes: usize = 1024 * 1024 * 1024,
    /// Maximum number of retained messages that one user has set. 0: no limit.
    max_user_retained_messages: u64 = 0,
    /// Maximum size of the retained messages that one user has set, in bytes, including an overhead for each. 0: no
    /// limit.
    max_user_retained_bytes: u64 = 0,
    /// Maximum number of keys in the state store. Beyond, a SET of a new key is refused.
    max_state_keys: usize = 1_000_000,
    /// Maximum size of the keys and values in the state store, in bytes, including an overhead for each key.
    max_state_bytes: usize = 1024 * 1024 * 1024,
    /// Maximum number of keys in the state store that one user has set. 0: no limit.
    max_user_state_keys: u64 = 0,
    /// Maximum size of the keys that one user has set and of their values, in bytes, including an overhead for each
    /// key. 0: no limit.
    max_user_state_bytes: u64 = 0,
    /// Maximum size of a value in the state store, in bytes.
    max_state_value: usize = 1024 * 1024,
    /// Maximum number of keys that all clients together watch in the state store.
    max_state_watchers: usize = 100_000,
    /// Maximum Keep Alive, in seconds. A client that asks for a longer one, or for none, is told this one
    /// (Server Keep Alive). 0: the client decides.
    max_keep_alive: u16 = 0,
    /// Maximum Session Expiry Interval, in seconds. It is also the Session Expiry Interval of 3.x clients
    /// without Clean Session.
    max_session_expiry: u32 = u32::MAX,
    /// Maximum number of queues, topics and their subscriptions. Beyond, none is created.
    max_entities: usize = 10_000,
    /// Maximum size of the messages, sessions and states in all queues and subscriptions of topics together, in
    /// bytes, including an overhead for each.
    max_tenant_entity_bytes: usize = 1024 * 1024 * 1024 * 1024,
    /// Maximum time from accepting a connection to its CONNECT, in seconds, including the TLS and WebSocket
    /// handshakes.
    connect_timeout: u32 = 10,
    /// The highest QoS granted and accepted.
    max_qos: u8 = 2,
    /// Whether retained messages are available.
    retain_available: bool = true,
    /// Whether subscriptions may have wildcards.
    wildcard_subscriptions: bool = true,
    /// Whether shared subscriptions are available.
    shared_subscriptions: bool = true,
}

impl Limits {
    /// Whether any limit of connections or rates applies to each user separately.
    pub fn are_of_users(&self) -> bool {
        let rates = [
            self.user_connect_rate,
            self.user_publish_rate,
            self.user_inbound_bytes_rate,
            self.user_outbound_bytes_rate,
        ];
        self.max_user_connections > 0 || rates.iter().any(|rate| *rate > 0)
    }

    /// The limit of what each user may hold; 0: there is none.
    pub fn held(&self, held: Held) -> u64 {
        Quota::of_held(held).limit(self).expect("it is a limit of a tenant")
    }
}

macro_rules! quotas {
    ($($variant:ident = $name:literal,)*) => {
        /// A limit that refuses something to the clients of a tenant, or slows them down.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Quota {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        impl Quota {
            /// All quotas, in the order of their discriminants. The first [`THROTTLES`] slow clients down.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// The key of the limit in the configuration, which is the name in metrics and the admin API.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

/// Number of quotas that slow clients down. The others refuse.
pub const THROTTLES: usize = 6;

quotas! {
    PublishRate = "publish_rate",
    UserPublishRate = "user_publish_rate",
    InboundBytesRate = "inbound_bytes_rate",
    UserInboundBytesRate = "user_inbound_bytes_rate",
    OutboundBytesRate = "outbound_bytes_rate",
    UserOutboundBytesRate = "user_outbound_bytes_rate",
    ConnectRate = "connect_rate",
    UserConnectRate = "user_connect_rate",
    MaxConnections = "max_connections",
    MaxUserConnections = "max_user_connections",
    MaxTenants = "max_tenants",
    MaxSessions = "max_sessions",
    MaxUserSessions = "max_user_sessions",
    MaxClientIdBytes = "max_client_id_bytes",
    MaxPacketSize = "max_packet_size",
    MaxSubscriptions = "max_subscriptions",
    MaxTenantSubscriptions = "max_tenant_subscriptions",
    MaxUserSubscriptions = "max_user_subscriptions",
    MaxSubscriptionBytes = "max_subscription_bytes",
    MaxPatternLevels = "max_pattern_levels",
    MaxQueuedMessages = "max_queued_messages",
    MaxQueuedBytes = "max_queued_bytes",
    MaxTenantQueuedMessages = "max_tenant_queued_messages",
    MaxTenantQueuedBytes = "max_tenant_queued_bytes",
    MaxUserQueuedBytes = "max_user_queued_bytes",
    MaxRetainedMessages = "max_retained_messages",
    MaxRetainedBytes = "max_retained_bytes",
    MaxUserRetainedMessages = "max_user_retained_messages",
    MaxUserRetainedBytes = "max_user_retained_bytes",
    MaxStateKeys = "max_state_keys",
    MaxStateBytes = "max_state_bytes",
    MaxUserStateKeys = "max_user_state_keys",
    MaxUserStateBytes = "max_user_state_bytes",
    MaxStateValue = "max_state_value",
    MaxStateWatchers = "max_state_watchers",
    MaxEntities = "max_entities",
    MaxTenantEntityBytes = "max_tenant_entity_bytes",
}

impl Quota {
    /// The value of the limit. `None` for `max_tenants`, which is no limit of one tenant.
    pub fn limit(self, limits: &Limits) -> Option<u64> {
        let of_count = |count: usize| count as u64;
        Some(match self {
            Self::MaxTenants => return None,
            Self::PublishRate => limits.publish_rate,
            Self::UserPublishRate => limits.user_publish_rate,
            Self::InboundBytesRate => limits.inbound_bytes_rate,
            Self::UserInboundBytesRate => limits.user_inbound_bytes_rate,
            Self::OutboundBytesRate => limits.outbound_bytes_rate,
            Self::UserOutboundBytesRate => limits.user_outbound_bytes_rate,
            Self::ConnectRate => limits.connect_rate,
            Self::UserConnectRate => limits.user_connect_rate,
            Self::MaxConnections => of_count(limits.max_connections),
            Self::MaxUserConnections => of_count(limits.max_user_connections),
            Self::MaxSessions => of_count(limits.max_sessions),
            Self::MaxUserSessions => limits.max_user_sessions,
            Self::MaxClientIdBytes => of_count(limits.max_client_id_bytes),
            Self::MaxPacketSize => of_count(limits.max_packet_size),
            Self::MaxSubscriptions => of_count(limits.max_subscriptions),
            Self::MaxTenantSubscriptions => of_count(limits.max_tenant_subscriptions),
            Self::MaxUserSubscriptions => limits.max_user_subscriptions,
            Self::MaxSubscriptionBytes => of_count(limits.max_subscription_bytes),
            Self::MaxPatternLevels => of_count(limits.max_pattern_levels),
            Self::MaxQueuedMessages => of_count(limits.max_queued_messages),
            Self::MaxQueuedBytes => of_count(limits.max_queued_bytes),
            Self::MaxTenantQueuedMessages => of_count(limits.max_tenant_queued_messages),
            Self::MaxTenantQueuedBytes => of_count(limits.max_tenant_queued_bytes),
            Self::MaxUserQueuedBytes => limits.max_user_queued_bytes,
            Self::MaxRetainedMessages => of_count(limits.max_retained_messages),
            Self::MaxRetainedBytes => of_count(limits.max_retained_bytes),
            Self::MaxUserRetainedMessages => limits.max_user_retained_messages,
            Self::MaxUserRetainedBytes => limits.max_user_retained_bytes,
            Self::MaxStateKeys => of_count(limits.max_state_keys),
            Self::MaxStateBytes => of_count(limits.max_state_bytes),
            Self::MaxUserStateKeys => limits.max_user_state_keys,
            Self::MaxUserStateBytes => limits.max_user_state_bytes,
            Self::MaxStateValue => of_count(limits.max_state_value),
            Self::MaxStateWatchers => of_count(limits.max_state_watchers),
            Self::MaxEntities => of_count(limits.max_entities),
            Self::MaxTenantEntityBytes => of_count(limits.max_tenant_entity_bytes),
        })
    }

    /// Whether the limit can be absent: its value 0 means that there is none.
    pub fn is_optional(self) -> bool {
        (self as usize) < THROTTLES
            || matches!(self, Self::ConnectRate | Self::UserConnectRate | Self::MaxUserConnections)
            || self.is_of_held()
    }

    /// Whether the quota is about what each user holds.
    pub fn is_of_held(self) -> bool {
        Held::ALL.iter().any(|held| self == Self::of_held(*held))
    }

    /// The quotas of connections and rates of each user.
    pub const OF_CONNECTIONS: [Self; 5] = [
        Self::MaxUserConnections,
        Self::UserConnectRate,
        Self::UserPublishRate,
        Self::UserInboundBytesRate,
        Self::UserOutboundBytesRate,
    ];

    /// The quota of what each user may hold.
    pub const fn of_held(held: Held) -> Self {
        match held {
            Held::Sessions => Self::MaxUserSessions,
            Held::Subscriptions => Self::MaxUserSubscriptions,
            Held::QueuedBytes => Self::MaxUserQueuedBytes,
            Held::RetainedMessages => Self::MaxUserRetainedMessages,
            Held::RetainedBytes => Self::MaxUserRetainedBytes,
            Held::StateKeys => Self::MaxUserStateKeys,
            Held::StateBytes => Self::MaxUserStateBytes,
        }
    }
}

/// A value for each quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByQuota<T>([T; Quota::ALL.len()]);

impl<T> ByQuota<T> {
    /// The values, in the order of [`Quota::ALL`].
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// The values, in the order of [`Quota::ALL`].
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Default> Default for ByQuota<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

impl<T> Index<Quota> for ByQuota<T> {
    type Output = T;

    fn index(&self, quota: Quota) -> &T {
        &self.0[quota as usize]
    }
}

impl<T> IndexMut<Quota> for ByQuota<T> {
    fn index_mut(&mut self, quota: Quota) -> &mut T {
        &mut self.0[quota as usize]
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What happens when a client's queue is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOverflow {
    /// The message that arrives is dropped.
    #[default]
    DropNewest,
    /// The messages that have waited longest are dropped.
    DropOldest,
    /// The publisher is refused: PUBACK or PUBREC with 0x97 (Quota exceeded). A 3.x client cannot be told, so
    /// it is disconnected.
    Reject,
    /// The publisher's acknowledgement waits until the queue has room. At twice the limit the publisher is refused.
    Block,
}

impl QueueOverflow {
    /// The multiple of the limits at which a publisher is refused; `None`: it never is.
    pub(crate) fn refuses_at(self) -> Option<usize> {
        match self {
            Self::DropNewest | Self::DropOldest => None,
            Self::Reject => Some(1),
            // What publishers have in flight when a queue becomes full finds room. Without a bound, a publisher that does
            // not wait for its acknowledgements could fill the memory.
            Self::Block => Some(2),
        }
    }
}

/// How a shared subscription chooses the member that gets a message.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ShareStrategy {
    /// The members in turn.
    #[default]
    RoundRobin,
    /// The member with the fewest messages unacknowledged and waiting.
    LeastInFlight,
    /// Always the same member for a publishing client.
    HashClient,
    /// Always the same member for a topic.
    HashTopic,
}
