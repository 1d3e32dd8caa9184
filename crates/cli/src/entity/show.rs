//! Description of one entity in words.

use serde_json::{Map, Value};

use super::answers::{Counts, Described};
use crate::admin::{bytes, now, printable, span};

/// Broker's notation for an unlimited duration: the longest of .NET.
const UNLIMITED: &str = "P10675199DT2H48M5.4775807S";

/// Formats an entity's name, contents and properties.
pub fn described(title: &str, described: &Described) -> String {
    let mut text = line(title, &printable(&described.name));
    if let Some(counts) = &described.counts {
        text += &line("messages", &messages(counts));
        text += &line("dead letters", &dead_letters(counts));
        text += &line("sessions", &counts.sessions.to_string());
    }
    text + "\n" + &properties(&described.properties)
}

/// Formats properties, one per line.
pub fn properties(properties: &Map<String, Value>) -> String {
    let width = properties.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in properties {
        let value = match value {
            Value::String(value) if value.is_empty() => "-".into(),
            Value::String(value) if value == UNLIMITED => "no limit".into(),
            Value::String(value) => printable(value).into_owned(),
            value => value.to_string(),
        };
        text += &format!("{name:<width$}  {value}\n");
    }
    text
}

fn line(title: &str, value: &str) -> String {
    format!("{title:<12}  {value}\n")
}

fn messages(counts: &Counts) -> String {
    let Counts { active, locked, deferred, scheduled, .. } = counts;
    let oldest = match &counts.oldest_enqueued_at {
        Some(oldest) => format!(", the oldest for {}", span(oldest.until(now()))),
        None => String::new(),
    };
    format!(
        "{active} active, {locked} locked, {deferred} deferred, {scheduled} scheduled; {}{oldest}",
        bytes(counts.bytes)
    )
}

fn dead_letters(counts: &Counts) -> String {
    match (counts.dead_lettered, counts.transfer_dead_lettered) {
        (dead, 0) => dead.to_string(),
        (dead, transfer) => format!("{dead}, and {transfer} that could not be forwarded"),
    }
}
