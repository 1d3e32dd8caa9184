//! The limits that CONNACK has announced to a client.

use mqtt_proto::Version;

use crate::limits::Limits;

/// The limits that CONNACK announces to a client of MQTT 5. They hold for its whole connection, so that the client
/// is not disconnected for what it was told it may do. Clients of MQTT 3 are told nothing: for them the tenant's
/// present limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// Maximum Packet Size, in bytes.
    pub(super) max_packet_size: usize,
    /// Receive Maximum.
    pub(super) receive_maximum: u16,
    /// Maximum QoS.
    pub(super) max_qos: u8,
    /// Retain Available.
    pub(super) retain_available: bool,
    /// Wildcard Subscription Available.
    pub(super) wildcard_subscriptions: bool,
    /// Shared Subscription Available.
    pub(super) shared_subscriptions: bool,
}

impl Announced {
    /// Returns what is announced to a client that connects under these limits.
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            max_packet_size: limits.max_packet_size,
            receive_maximum: limits.receive_maximum,
            max_qos: limits.max_qos,
            retain_available: limits.retain_available,
            wildcard_subscriptions: limits.wildcard_subscriptions,
            shared_subscriptions: limits.shared_subscriptions,
        }
    }

    /// Follows a change of the tenant's limits, if the client was not told others.
    pub(super) fn follow(&mut self, version: Version, limits: &Limits) {
        if !version.is_v5() {
            *self = Self::of(limits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mqtt_5_clients_keep_what_they_were_told() {
        let before = Limits { max_qos: 2, max_packet_size: 1_000, ..Limits::default() };
        let after = Limits {
            max_qos: 1,
            max_packet_size: 2_000,
            receive_maximum: 10,
            retain_available: false,
            wildcard_subscriptions: false,
            shared_subscriptions: false,
            ..Limits::default()
        };
        for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
            let mut announced = Announced::of(&before);
            announced.follow(version, &after);
            let expected = if version == Version::V5 { &before } else { &after };
            assert_eq!(announced, Announced::of(expected), "{version:?}");
        }
    }
}
