//! The values that limits may have.

use crate::durability::DurabilityClass;
use crate::limits::{Limits, OwnLimits};

/// Largest packet that MQTT can express: a length of four bytes, and the five bytes before the contents (MQTT 5,
/// 2.1.4).
const MAX_PACKET_SIZE: usize = 268_435_460;

/// Minimum packet size in bytes: below it not even a CONNECT with user name and password fits.
const MIN_PACKET_SIZE: usize = 64;

/// Length in bytes of the client identifiers that a server must allow (MQTT-3.1.3-5).
const MIN_CLIENT_ID_BYTES: usize = 23;

/// The range of a limit.
#[derive(Debug)]
pub struct LimitRange {
    /// The key of the limit in the configuration.
    pub key: &'static str,
    /// Returns the value of the limit.
    value: fn(&Limits) -> usize,
    min: usize,
    max: usize,
    /// The reason for the range.
    pub why: &'static str,
}

/// The reason for which `replicated` is refused, and what to use instead.
pub const REPLICATED: [&str; 2] = [
    "`replicated` needs a cluster, which this version does not have",
    "`local` keeps what is acknowledged on this machine's disk",
];

const ANY: usize = usize::MAX;

/// Returns the limits that are out of their range, each with a sentence. `common` are the limits that apply under a
/// tenant's own: a value that is the same there is not reported.
pub fn out_of_range<'a>(
    limits: &'a Limits,
    common: Option<&'a Limits>,
) -> impl Iterator<Item = (&'static LimitRange, String)> + 'a {
    LIMIT_RANGES.iter().filter_map(move |range| {
        let LimitRange { key, value, min, max, .. } = range;
        let value_of = value;
        let value = value_of(limits);
        if common.is_some_and(|common| value_of(common) == value) {
            return None;
        }
        let sentence = if value < *min {
            format!("{key} is {value}; the minimum is {min}")
        } else if value > *max {
            format!("{key} is {value}; the maximum is {max}")
        } else {
            return None;
        };
        Some((range, sentence))
    })
}

impl OwnLimits {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first limit that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let common = Limits::default();
        let limits = self.over(&common);
        if let Some((range, sentence)) = out_of_range(&limits, Some(&common)).next() {
            return Err(format!("{sentence} ({})", range.why));
        }
        match limits.durability {
            DurabilityClass::Replicated => {
                Err(format!("durability: {}; {}", REPLICATED[0], REPLICATED[1]))
            }
            _ => Ok(()),
        }
    }
}

/// The ranges of all limits that have one.
pub const LIMIT_RANGES: &[LimitRange] = &[
    LimitRange {
        key: "max_connections",
        value: |limits| limits.max_connections,
        min: 1,
        max: ANY,
        why: "with 0 nobody can connect",
    },
    LimitRange {
        key: "max_sessions",
        value: |limits| limits.max_sessions,
        min: 1,
        max: ANY,
        why: "with 0 nobody can connect",
    },
    LimitRange {
        key: "max_client_id_bytes",
        value: |limits| limits.max_client_id_bytes,
        min: MIN_CLIENT_ID_BYTES,
        max: ANY,
        why: "a server must allow client identifiers of 23 bytes (MQTT 5, 3.1.3.1)",
    },
    LimitRange {
        key: "max_packet_size",
        value: |limits| limits.max_packet_size,
        min: MIN_PACKET_SIZE,
        max: MAX_PACKET_SIZE,
        why: "bytes of a whole packet; the maximum in MQTT is 268435460",
    },
    LimitRange {
        key: "receive_maximum",
        value: |limits| limits.receive_maximum.into(),
        min: 1,
        max: u16::MAX as usize,
        why: "0 is not allowed by the standard; to refuse QoS 2 set max_qos = 1",
    },
    LimitRange {
        key: "max_inflight",
        value: |limits| limits.max_inflight.into(),
        min: 1,
        max: u16::MAX as usize,
        why: "with 0 no message of QoS 1 or 2 could ever be delivered",
    },
    LimitRange {
        key: "max_queued_messages",
        value: |limits| limits.max_queued_messages,
        min: 1,
        max: ANY,
        why: "with 0 every message that cannot be written at once would be dropped",
    },
    LimitRange {
        key: "max_queued_bytes",
        value: |limits| limits.max_queued_bytes,
        min: 1,
        max: ANY,
        why: "with 0 every message that cannot be written at once would be dropped",
    },
    LimitRange {
        key: "max_tenant_queued_messages",
        value: |limits| limits.max_tenant_queued_messages,
        min: 1,
        max: ANY,
        why: "with 0 no message could wait for any client",
    },
    LimitRange {
        key: "max_tenant_queued_bytes",
        value: |limits| limits.max_tenant_queued_bytes,
        min: 1,
        max: ANY,
        why: "with 0 no message could wait for any client",
    },
    LimitRange {
        key: "connect_timeout",
        value: |limits| limits.connect_timeout as usize,
        min: 1,
        max: u32::MAX as usize,
        why: "seconds; with 0 no client would be fast enough",
    },
    LimitRange {
        key: "max_qos",
        value: |limits| limits.max_qos.into(),
        min: 0,
        max: 2,
        why: "QoS is 0, 1 or 2",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_told() {
        let check = |json: &str| serde_json::from_str::<OwnLimits>(json).unwrap().check();
        assert_eq!(check("{}"), Ok(()));
        assert_eq!(check(r#"{"max_qos": 1, "max_connections": 1}"#), Ok(()));
        for (json, expected) in [
            (r#"{"max_qos": 3}"#, "max_qos is 3; the maximum is 2 (QoS is 0, 1 or 2)"),
            (r#"{"max_connections": 0}"#, "the minimum is 1 (with 0 nobody can connect)"),
            (r#"{"durability": "replicated"}"#, "needs a cluster"),
        ] {
            let error = check(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
