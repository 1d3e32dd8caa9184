//! `barid events`: what happens in a running broker.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::Value;

use crate::admin::events::{Fields, Until, as_json};
use crate::admin::{Output, encode, printable};

/// Show what happens in a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Each line is an event, at a time of day in UTC. Kinds:
  connected, disconnected   a client of MQTT or AMQP has come or gone, and why
  denied                    a client was not allowed to log in, publish, subscribe, ...
  changed                   an operator has changed a user, a tenant, a ban or a token
  member                    a broker of the cluster is joining, up, unreachable, down or left
  shard                     a shard was opened or closed
Ends with Ctrl-C.

Examples:
  barid events
  barid events --tenant acme --kind denied --kind disconnected
  barid events --json --for 1h > events.jsonl")]
pub struct Args {
    /// Only events of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only events of this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Maximum number of events each second; the others are counted
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    #[command(flatten)]
    until: Until,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = args.output.admin.connect();
    let mut path = format!("/v1/events?rate={}", args.rate);
    if let Some(tenant) = &args.tenant {
        path += &format!("&tenant={}", encode(tenant));
    }
    if !args.kinds.is_empty() {
        path += &format!("&kinds={}", encode(&args.kinds.join(",")));
    }
    args.until.print(
        admin.stream(&path)?,
        |name| name != "skipped",
        |name, data| match args.output.json {
            true => as_json(name, data),
            false => Ok(as_text(name, &serde_json::from_str(data).context("a broken event")?)),
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(name: &str, Fields(fields): &Fields) -> String {
    let at = fields.iter().find(|(name, _)| name == "at").and_then(|(_, at)| at.as_str());
    let at = at.and_then(|at| at.split_once('T')).map_or("            ", |(_, time)| time);
    let mut text = format!("{} {name:<12}", at.trim_end_matches('Z'));
    for (name, value) in fields.iter().filter(|(name, value)| name != "at" && !value.is_null()) {
        let shown = match value {
            Value::String(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => text.clone(),
            other => other.to_string(),
        };
        text += &format!("  {name}={shown}");
    }
    format!("{}\n", printable(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, data: &str) -> String {
        as_text(name, &serde_json::from_str(data).expect("the data of an event"))
    }

    #[test]
    fn events_are_lines_with_what_they_have() {
        let denied = r#"{"action":"login","at":"2026-11-27T11:13:00.686Z","client":"a b","user":null,"tenant":"acme"}"#;
        let expected = "11:13:00.686 denied        action=login  client=\"a b\"  tenant=acme\n";
        assert_eq!(text("denied", denied), expected);
        let hostile = text("connected", r#"{"client":"\u001b[2J\n"}"#);
        assert!(!hostile.trim_end().chars().any(char::is_control), "{hostile:?}");
    }
}
