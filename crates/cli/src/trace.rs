//! `barid trace`: the packets of one client as they pass.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;

use crate::admin::events::{Fields, Until, as_json};
use crate::admin::{TenantArgs, encode, printable};
use crate::plural;

/// Show the packets of a client as they pass
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Client identifier, or container name of a client of AMQP
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    options: Options,
}

pub const EXAMPLES: &str = "\
Each line is a packet of MQTT or a frame of AMQP: `>` from the client to the broker, `<` from the broker to
the client, at a time of day in UTC. A client that is not connected is waited for, and one that connects
again is followed. CONNECT is not shown, because it has the password; CONNACK and what comes after it are.
Ends with Ctrl-C. While no client is traced, tracing costs nothing.

Examples:
  barid trace --client sensor-7
  barid trace --client sensor-7 --tenant acme --payload
  barid trace --client sensor-7 --json --for 10s > packets.jsonl
  barid client trace sensor-7               the same";

/// Options of `barid trace` and `barid client trace`.
#[derive(clap::Args)]
pub struct Options {
    /// Show the payloads of MQTT messages, too
    #[arg(long)]
    payload: bool,
    /// Maximum number of packets each second; the others are counted
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    #[command(flatten)]
    until: Until,
    #[command(flatten)]
    of: TenantArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    follow(&args.client, &args.options)
}

/// Prints the packets of a client.
pub fn follow(client: &str, options: &Options) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = options.of.connect();
    let (client, Options { payload, rate, .. }) = (encode(client), options);
    let path = format!("{tenant}/clients/{client}/trace?payload={payload}&rate={rate}");
    options.until.print(
        admin.stream(&path)?,
        |name| name == "packet",
        |name, data| match options.of.json {
            true => as_json(name, data),
            false => Ok(as_text(name, serde_json::from_str(data).context("a broken event")?)),
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// What the data of any event has. The fields of a packet keep their order.
#[derive(Deserialize)]
struct Data {
    at: Option<String>,
    connection: Option<u64>,
    direction: Option<String>,
    packet: Option<String>,
    bytes: Option<u64>,
    #[serde(default)]
    fields: Fields,
    protocol: Option<String>,
    address: Option<String>,
    reason: Option<String>,
    packets: Option<u64>,
}

fn as_text(name: &str, data: Data) -> String {
    let at = data.at.unwrap_or_default();
    let time = at.split_once('T').map_or(&*at, |(_, time)| time.trim_end_matches('Z'));
    let connection = data.connection.unwrap_or_default();
    let address = data.address.unwrap_or_default();
    let protocol = data.protocol.unwrap_or_default();
    let text = match name {
        "packet" => {
            let is_received = data.direction.as_deref() == Some("received");
            let mut text = format!(
                "{time} {} {:<11} {:>5} B",
                if is_received { '>' } else { '<' },
                data.packet.unwrap_or_default(),
                data.bytes.unwrap_or_default(),
            );
            for (name, value) in &data.fields.0 {
                text += &format!("  {name}={value}");
            }
            text
        }
        "connected" => {
            format!("{time} = connected with {protocol} from {address}, connection {connection}")
        }
        "present" => {
            format!("{time} = is connected with {protocol} from {address}, connection {connection}")
        }
        "disconnected" => {
            format!(
                "{time} = connection {connection} has ended: {}",
                data.reason.unwrap_or_default()
            )
        }
        "skipped" => {
            let packets = plural::count(data.packets.unwrap_or_default(), "packet", "packets");
            format!(
                "             = {packets} not shown: more than --rate, or than can be printed in time"
            )
        }
        _ => format!("{time} = {name}"),
    };
    format!("{}\n", printable(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, data: &str) -> String {
        as_text(name, serde_json::from_str(data).expect("the data of an event"))
    }

    #[test]
    fn packets_are_lines_with_their_fields_in_order() {
        let packet = r#"{"at":"2026-11-27T11:13:00.686Z","connection":1,"direction":"received","packet":"SUBSCRIBE","bytes":11,"fields":{"packet_id":1,"filters":[{"filter":"a/#","qos":1}]}}"#;
        assert_eq!(
            text("packet", packet),
            "11:13:00.686 > SUBSCRIBE      11 B  packet_id=1  filters=[{\"filter\":\"a/#\",\"qos\":1}]\n"
        );
        assert!(text("skipped", r#"{"packets":1}"#).contains("1 packet not shown"));
    }

    #[test]
    fn a_hostile_name_cannot_control_the_terminal() {
        let packet = r#"{"at":"x","direction":"sent","packet":"PUBLISH","bytes":1,"fields":{"topic":"\u001b[2J\n\u009b"}}"#;
        let line = text("packet", packet);
        assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
    }
}
