//! `barid retained`: the retained messages of a running broker.

use std::process::ExitCode;

use clap::Subcommand;
use data_encoding::BASE64;
use mqtt_proto::topic;
use serde::Deserialize;
use serde_json::json;

use crate::admin::{
    Column, Missing, Moment, Table, TenantArgs, bytes, encode, ends_in, now, printable,
};
use crate::entity::{Confirmation, MORE, Paging, confirm, pages};
use crate::output::print;
use crate::plural::count;

/// List, show and remove the retained messages of a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid retained list 'plant/#'
  barid retained get plant/4/state > state.json
  barid retained delete plant/4/state
  barid retained delete 'plant/old/#' --yes")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List retained messages by topic
    List(ListArgs),
    /// Print the payload of a retained message
    Get(One),
    /// Remove retained messages
    Delete(DeleteArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid retained list
  barid retained list 'plant/+/state' --tenant acme --limit 1000
  barid retained list '$SYS/#' --json | jq -r '.messages[].topic'")]
struct ListArgs {
    /// Topic filter
    #[arg(value_name = "FILTER", default_value = "#", value_parser = parse_filter)]
    filter: String,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
With --json the message is printed with its properties; a payload that is not UTF-8 is in base64 then.

Examples:
  barid retained get plant/4/state
  barid retained get plant/4/state --json | jq .content_type")]
struct One {
    /// Topic
    #[arg(value_name = "TOPIC", value_parser = parse_topic)]
    topic: String,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Subscribers are not told, unlike by an empty message with RETAIN. With a filter that has wildcards all messages that
match are removed, one after the other, after a question; --yes answers it.

Examples:
  barid retained delete plant/4/state
  barid retained delete 'plant/old/#' --tenant acme --yes")]
struct DeleteArgs {
    /// Topic, or topic filter
    #[arg(value_name = "FILTER", value_parser = parse_filter)]
    filter: String,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    of: TenantArgs,
}

fn parse_topic(text: &str) -> Result<String, String> {
    topic::validate_name(text).map(|()| text.into()).map_err(|error| error.to_string())
}

fn parse_filter(text: &str) -> Result<String, String> {
    topic::validate_filter(text).map(|()| text.into()).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct Message {
    topic: String,
    qos: u8,
    payload_bytes: u64,
    expires_at: Option<Moment>,
}

#[derive(Deserialize)]
struct Payload {
    payload: Option<String>,
    payload_base64: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Get(one) => get(one),
        Command::Delete(args) => delete(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let path = format!("{tenant}/retained?filter={}", encode(&args.filter));
    let mut answer = pages(&admin, &path, "messages", &args.paging)?;
    if args.of.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let mut table = Table::new([
        Column::Left("TOPIC"),
        Column::Right("QOS"),
        Column::Right("BYTES"),
        Column::Left("EXPIRES"),
    ]);
    for message in admin.read::<Vec<Message>>(answer["messages"].take())? {
        let Message { topic, qos, payload_bytes, expires_at } = message;
        let expires = expires_at.map_or("never".into(), |at| ends_in(&at, now));
        table.push([topic, qos.to_string(), bytes(payload_bytes), expires]);
    }
    let mut text =
        if table.is_empty() { "no retained message matches\n".into() } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn get(one: &One) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = one.of.connect();
    let answer = admin.get(&format!("{tenant}/retained/{}", encode(&one.topic)))?;
    if one.of.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Payload { payload, payload_base64 } = admin.read(answer)?;
    let payload = match payload_base64 {
        Some(base64) => BASE64.decode(base64.as_bytes())?,
        None => payload.unwrap_or_default().into_bytes(),
    };
    print(payload)?;
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let mut removed = 0_u64;
    if topic::validate_name(&args.filter).is_ok() {
        admin.delete(&format!("{tenant}/retained/{}", encode(&args.filter)))?;
        removed = 1;
    } else {
        let what = format!("remove all retained messages of {}", printable(&args.filter));
        confirm(&args.confirmation, &what)?;
        let path = format!("{tenant}/retained?filter={}", encode(&args.filter));
        loop {
            let mut answer = pages(&admin, &path, "messages", &Paging::first(1_000))?;
            let messages: Vec<Message> = admin.read(answer["messages"].take())?;
            if messages.is_empty() {
                break;
            }
            for Message { topic, .. } in messages {
                match admin.delete(&format!("{tenant}/retained/{}", encode(&topic))) {
                    Ok(()) => removed += 1,
                    // It has expired, or another client has removed it.
                    Err(error) if error.is::<Missing>() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    print(match args.of.json {
        true => format!("{}\n", json!({ "removed": removed })),
        false => format!("removed {}\n", count(removed, "retained message", "retained messages")),
    })?;
    Ok(ExitCode::SUCCESS)
}
