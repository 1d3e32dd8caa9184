//! Who a broker is.

/// Maximum length of the names of clusters and brokers, in bytes.
pub const NAME_MAX: usize = 64;

/// A broker, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the broker, unique in the cluster.
    pub name: String,
    /// Distinguishes this life of the broker from earlier ones: greater than those before.
    pub incarnation: u64,
    /// The address at which other brokers reach it, `host:port`.
    pub address: String,
    /// The version of its software.
    pub software: String,
    /// The [fingerprint](crate::Placement::fingerprint) of its map of slots; 0: it has none.
    pub placement: u64,
    /// The address at which MQTT clients reach it, as they are told; empty: they are not.
    pub reference: String,
}

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Heartbeats and topic filters.
    Control,
    /// Messages from this IO thread of the speaker.
    Messages(u16),
    /// The bytes of a client.
    Client,
    /// The objects that all brokers have.
    Replication,
    /// Slots that are moved.
    Move,
}

/// Returns a number that tells the broker of a name from others, in [stamps](barid_core::stamp::Stamp).
pub fn origin_of(broker: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(broker.as_bytes())
}

/// Whether a text can be the name of a cluster or of a broker: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_part)
}
