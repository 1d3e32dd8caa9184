//! What bounds the clients of a tenant.

use serde::Deserialize;

use crate::durability::DurabilityClass;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// Bounds on what the clients of one tenant may use.
        #[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits { $($(#[$doc])* pub $name: $type,)* }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// The limits that a tenant has of its own.
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
        #[serde(default, deny_unknown_fields)]
        pub struct OwnLimits { $($(#[$doc])* pub $name: Option<$type>,)* }

        impl OwnLimits {
            /// These, and the `common` ones where there is none.
            pub fn over(&self, common: &Limits) -> Limits {
                Limits { $($name: self.$name.clone().unwrap_or_else(|| common.$name.clone()),)* }
            }
        }
    };
}

limits! {
    /// Connections at once.
    max_connections: usize = 1_000_000,
    /// Sessions, with and without a client. Beyond, clients without a session are refused.
    max_sessions: usize = 1_000_000,
    /// Bytes of the longest client identifier; at least 23 (MQTT-3.1.3-5).
    max_client_id_bytes: usize = 1_024,
    /// Bytes of the largest packet that a client may send.
    max_packet_size: usize = 2 * 1024 * 1024,
    /// QoS 2 messages that a client may have unreleased at once (Receive Maximum).
    receive_maximum: u16 = 65_535,
    /// Topic aliases that a client may define.
    topic_alias_maximum: u16 = 32,
    /// Topic aliases that the broker defines on a connection whose client allows at least as many.
    max_outbound_topic_aliases: u16 = 32,
    /// Messages of QoS 1 and 2 on the wire to one client; fewer if its Receive Maximum is lower.
    max_inflight: u16 = 1_024,
    /// Messages that wait for one client.
    max_queued_messages: usize = 10_000,
    /// Bytes of the messages that wait for one client.
    max_queued_bytes: usize = 32 * 1024 * 1024,
    /// Messages that wait for all clients of the tenant together.
    max_tenant_queued_messages: usize = 100_000_000,
    /// Bytes of the messages that wait for all clients of the tenant together.
    max_tenant_queued_bytes: usize = 1024 * 1024 * 1024 * 1024,
    /// What happens when a queue is full.
    queue_overflow: QueueOverflow = QueueOverflow::DropNewest,
    /// What an acknowledgement promises: `memory` or `local`. `[[durability]]` has exceptions.
    durability: DurabilityClass = DurabilityClass::Local,
    /// Subscriptions of one client.
    max_subscriptions: usize = 10_000,
    /// About what the subscriptions of one client may take of memory, in bytes.
    max_subscription_bytes: usize = 16 * 1024 * 1024,
    /// Levels of all patterns of wildcards in the tenant's subscriptions: `a/+` and `b/+` have the same one, of two
    /// levels. So many steps take the subscribers of a topic to be found. Beyond, filters with new patterns are
    /// refused. Filters of up to 7 levels cannot have more than 1,538.
    max_pattern_levels: usize = 2_048,
    /// Retained messages of the tenant.
    max_retained_messages: usize = 1_000_000,
    /// Bytes of the retained messages of the tenant, with some for each.
    max_retained_bytes: usize = 1024 * 1024 * 1024,
    /// Keys in the state store. Beyond, a SET of a new key is refused.
    max_state_keys: usize = 1_000_000,
    /// Bytes of the keys and values in the state store, with some for each key.
    max_state_bytes: usize = 1024 * 1024 * 1024,
    /// Bytes of the largest value in the state store.
    max_state_value: usize = 1024 * 1024,
    /// How many keys all clients together watch in the state store.
    max_state_watchers: usize = 100_000,
    /// The longest Keep Alive, in seconds; a client that asks for a longer one, or for none, is told
    /// this one (Server Keep Alive). 0: as the client wishes.
    max_keep_alive: u16 = 0,
    /// The longest Session Expiry Interval, in seconds; also how long sessions of 3.x clients last.
    max_session_expiry: u32 = u32::MAX,
    /// Queues, topics and subscriptions. Beyond, none is made.
    max_entities: usize = 10_000,
    /// Seconds from accepting a connection to its CONNECT, TLS and WebSocket handshakes included.
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

/// What happens when a client's queue is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOverflow {
    /// The message that arrives is dropped.
    #[default]
    DropNewest,
    /// The messages that have waited longest are dropped.
    DropOldest,
    /// The publisher is refused: PUBACK or PUBREC with 0x97 (Quota exceeded); a 3.x client, which cannot
    /// be told, is disconnected.
    Reject,
    /// The publisher's acknowledgement waits until the queue has room.
    Block,
}

/// How the member of a shared subscription is chosen that gets a message.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ShareStrategy {
    /// One after another.
    #[default]
    RoundRobin,
    /// The one with the fewest messages unacknowledged and waiting.
    LeastInFlight,
    /// Always the same one for a publishing client.
    HashClient,
    /// Always the same one for a topic.
    HashTopic,
}
