//! Checks of limits and tenants.

use barid_engine::limits::Limits;
use barid_engine::names::check_tenant_name;
use barid_server::settings::Settings;

use super::problem::Place;
use super::validate::Objections;

/// Largest packet that MQTT can express: a length of four bytes, and the five bytes before the
/// contents (MQTT 5, 2.1.4).
const MAX_PACKET_SIZE: usize = 268_435_460;

/// Minimum packet size in bytes: below it not even a CONNECT with user name and password fits.
const MIN_PACKET_SIZE: usize = 64;

/// Length in bytes of the client identifiers that a server must allow (MQTT-3.1.3-5).
const MIN_CLIENT_ID_BYTES: usize = 23;

pub fn check(settings: &Settings, found: &mut Objections) {
    check_limits(&Place::of(&["limits"]), &settings.limits, None, found);
    for name in settings.tenants.keys() {
        let place = Place::of(&["tenants", name]);
        if let Err(error) = check_tenant_name(name) {
            found.add(place.clone(), error.to_string(), "a user name is {tenant}/{client}");
        }
        let limits = settings.limits_of(name);
        check_limits(&place.key("limits"), &limits, Some(&settings.limits), found);
    }
}

/// Checks limits. `common` are the limits that apply under a tenant's own: a wrong value there is
/// reported there, once.
fn check_limits(place: &Place, limits: &Limits, common: Option<&Limits>, found: &mut Objections) {
    for rule in RULES {
        let value = (rule.value)(limits);
        if common.is_some_and(|common| (rule.value)(common) == value) {
            continue;
        }
        if value < rule.min {
            let message = format!("{} is {value}; the minimum is {}", rule.key, rule.min);
            found.add(place.key(rule.key), message, rule.why);
        } else if value > rule.max {
            let message = format!("{} is {value}; the maximum is {}", rule.key, rule.max);
            found.add(place.key(rule.key), message, rule.why);
        }
    }
}

struct Rule {
    key: &'static str,
    value: fn(&Limits) -> usize,
    min: usize,
    max: usize,
    why: &'static str,
}

const ANY: usize = usize::MAX;

const RULES: &[Rule] = &[
    Rule {
        key: "max_connections",
        value: |limits| limits.max_connections,
        min: 1,
        max: ANY,
        why: "with 0 nobody can connect",
    },
    Rule {
        key: "max_sessions",
        value: |limits| limits.max_sessions,
        min: 1,
        max: ANY,
        why: "with 0 nobody can connect",
    },
    Rule {
        key: "max_client_id_bytes",
        value: |limits| limits.max_client_id_bytes,
        min: MIN_CLIENT_ID_BYTES,
        max: ANY,
        why: "a server must allow client identifiers of 23 bytes (MQTT 5, 3.1.3.1)",
    },
    Rule {
        key: "max_packet_size",
        value: |limits| limits.max_packet_size,
        min: MIN_PACKET_SIZE,
        max: MAX_PACKET_SIZE,
        why: "bytes of a whole packet; the maximum in MQTT is 268435460",
    },
    Rule {
        key: "receive_maximum",
        value: |limits| limits.receive_maximum.into(),
        min: 1,
        max: u16::MAX as usize,
        why: "0 is not allowed by the standard; to refuse QoS 2 set max_qos = 1",
    },
    Rule {
        key: "max_inflight",
        value: |limits| limits.max_inflight.into(),
        min: 1,
        max: u16::MAX as usize,
        why: "with 0 no message of QoS 1 or 2 could ever be delivered",
    },
    Rule {
        key: "max_queued_messages",
        value: |limits| limits.max_queued_messages,
        min: 1,
        max: ANY,
        why: "with 0 every message that cannot be written at once would be dropped",
    },
    Rule {
        key: "max_queued_bytes",
        value: |limits| limits.max_queued_bytes,
        min: 1,
        max: ANY,
        why: "with 0 every message that cannot be written at once would be dropped",
    },
    Rule {
        key: "max_tenant_queued_messages",
        value: |limits| limits.max_tenant_queued_messages,
        min: 1,
        max: ANY,
        why: "with 0 no message could wait for any client",
    },
    Rule {
        key: "max_tenant_queued_bytes",
        value: |limits| limits.max_tenant_queued_bytes,
        min: 1,
        max: ANY,
        why: "with 0 no message could wait for any client",
    },
    Rule {
        key: "connect_timeout",
        value: |limits| limits.connect_timeout as usize,
        min: 1,
        max: u32::MAX as usize,
        why: "seconds; with 0 no client would be fast enough",
    },
    Rule {
        key: "max_qos",
        value: |limits| limits.max_qos.into(),
        min: 0,
        max: 2,
        why: "QoS is 0, 1 or 2",
    },
];
