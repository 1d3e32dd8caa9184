//! Limits and other numbers of mosquitto.conf.

use std::collections::BTreeMap;

use toml::Value;

use super::conf::Line;
use super::notes::Notes;

/// Values for `[limits]`, `[sys]` and `[log]`.
#[derive(Debug, Default)]
pub struct Limits {
    /// Keys of `[limits]`.
    pub limits: BTreeMap<&'static str, Value>,
    pub sys_interval: Option<i64>,
    pub log_level: Option<&'static str>,
    /// The least of the levels in `log_type`, as an index in [`LEVELS`].
    level: Option<usize>,
}

/// Log levels, each with the types of mosquitto that it includes.
const LEVELS: [(&str, &[&str]); 5] = [
    ("off", &["none"]),
    ("error", &["error"]),
    ("warn", &["warning"]),
    ("info", &["notice", "information", "subscribe", "unsubscribe"]),
    ("debug", &["debug", "all", "websockets", "internal"]),
];

/// Largest packet of MQTT, in bytes.
const PACKET_MAX: i64 = 268_435_460;

/// Smallest maximum that Barid accepts, in bytes.
const PACKET_MIN: i64 = 64;

/// Bytes of a PUBLISH besides its payload: the longest topic, its length, a packet identifier, the fixed header,
/// and some room for properties.
const PUBLISH_OVERHEAD: i64 = 66_000;

/// The limit of the messages that wait for all clients of a tenant together (`max_tenant_queued_messages`), which is
/// in place of none for a single client.
const MESSAGES_MAX: i64 = 100_000_000;

/// As [`MESSAGES_MAX`], in bytes.
const BYTES_MAX: i64 = 1 << 40;

impl Limits {
    /// Takes an option that belongs to no listener. Returns whether it is one of the options for limits.
    pub fn take(&mut self, line: &Line, notes: &mut Notes) -> bool {
        match &*line.name {
            "max_inflight_messages" => self.or_without(line, "max_inflight", 65_535, 65_535, notes),
            "max_queued_messages" => {
                self.or_without(line, "max_queued_messages", MESSAGES_MAX, i64::MAX, notes);
            }
            "max_queued_bytes" => {
                self.or_without(line, "max_queued_bytes", BYTES_MAX, i64::MAX, notes);
            }
            "max_packet_size" => {
                self.in_range(line, "max_packet_size", PACKET_MIN, PACKET_MAX, notes)
            }
            "message_size_limit" => self.message_size(line, notes),
            "max_keepalive" => self.in_range(line, "max_keep_alive", 0, 65_535, notes),
            "global_max_clients" => self.unless_negative(line, "max_sessions", notes),
            "global_max_connections" => self.unless_negative(line, "max_connections", notes),
            "retain_available" => {
                if let Some(is_on) = line.switch(notes) {
                    self.limits.insert("retain_available", Value::Boolean(is_on));
                }
            }
            "persistent_client_expiration" => match seconds(line.word()) {
                Some(seconds) => {
                    let seconds = seconds.min(u32::MAX.into());
                    self.limits.insert("max_session_expiry", Value::Integer(seconds));
                }
                None => notes.at(&line.place, &line.name, "the value is not a time such as 14d"),
            },
            "sys_interval" => {
                let seconds = line.number(notes).filter(|seconds| (0..=65_535).contains(seconds));
                self.sys_interval = seconds.or(self.sys_interval);
            }
            "log_type" => self.log_type(line, notes),
            _ => return false,
        }
        true
    }

    /// Sets a limit that must be at least 1, and that is `most` if mosquitto has none, which it writes as 0.
    fn or_without(
        &mut self,
        line: &Line,
        key: &'static str,
        most: i64,
        max: i64,
        notes: &mut Notes,
    ) {
        let Some(value) = line.number(notes) else { return };
        if value <= 0 {
            let reason = format!("no limit in mosquitto; here `{key} = {most}`");
            notes.at(&line.place, &line.name, reason);
            self.limits.insert(key, Value::Integer(most));
        } else {
            self.limits.insert(key, Value::Integer(value.min(max)));
        }
    }

    fn in_range(&mut self, line: &Line, key: &'static str, min: i64, max: i64, notes: &mut Notes) {
        let Some(value) = line.number(notes) else { return };
        let allowed = value.clamp(min, max);
        if value != allowed {
            notes.at(&line.place, &line.name, format!("{value} is out of range; here {allowed}"));
        }
        self.limits.insert(key, Value::Integer(allowed));
    }

    fn unless_negative(&mut self, line: &Line, key: &'static str, notes: &mut Notes) {
        match line.number(notes) {
            None | Some(..0) => {}
            Some(0) => notes.at(&line.place, &line.name, "with 0 nobody could connect"),
            Some(value) => {
                let reason = format!("a limit of each tenant (`{key}`), not of the broker");
                notes.at(&line.place, &line.name, reason);
                self.limits.insert(key, Value::Integer(value));
            }
        }
    }

    /// Limits packets in place of payloads, so that each payload that mosquitto accepts fits. `max_packet_size` takes
    /// precedence.
    fn message_size(&mut self, line: &Line, notes: &mut Notes) {
        let Some(value) = line.number(notes).filter(|value| *value > 0) else { return };
        let packet = (value + PUBLISH_OVERHEAD).min(PACKET_MAX);
        let reason = format!(
            "limits whole packets, `max_packet_size = {packet}`, and a client that exceeds it is disconnected"
        );
        notes.at(&line.place, &line.name, reason);
        self.limits.entry("max_packet_size").or_insert(Value::Integer(packet));
    }

    fn log_type(&mut self, line: &Line, notes: &mut Notes) {
        let level = LEVELS.iter().position(|(_, types)| types.contains(&line.word()));
        match level {
            Some(level) => {
                let level = self.level.map_or(level, |other| other.max(level));
                self.level = Some(level);
                self.log_level = Some(LEVELS[level].0);
            }
            None => notes.at(&line.place, &line.name, "not a type of log messages"),
        }
    }
}

/// Reads a time in the form of `persistent_client_expiration`.
fn seconds(text: &str) -> Option<i64> {
    const DAY: i64 = 24 * 60 * 60;
    let unit = match text.chars().next_back()? {
        's' => 1,
        'h' => 60 * 60,
        'd' => DAY,
        'w' => 7 * DAY,
        'm' => 30 * DAY,
        'y' => 365 * DAY,
        _ => return None,
    };
    let count: i64 = text[..text.len() - 1].parse().ok().filter(|count| *count > 0)?;
    count.checked_mul(unit)
}
