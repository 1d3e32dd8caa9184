//! Sending: a message is put into a queue or topic.

use std::io::{IsTerminal as _, Read as _, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Entity, Named, With};
use crate::output::print;
use crate::span::parse_seconds;

/// The message.
#[derive(ClapArgs)]
#[command(after_help = "\
Without --message and --file the body is read from standard input. The command ends when the message is durable.

Examples:
  barid queue send orders -m '{\"amount\": 3}' --content-type application/json
  barid queue send orders -m hello --session customer-7 --property amount=3
  barid topic send events -f picture.png
  barid queue send reminders -m 'call back' --delay 1h")]
pub struct Args {
    /// Body of the message
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    message: Option<String>,
    /// File with the body
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Session of the message
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Message id; without one, the broker makes one
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Subject, which is also called label
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Application property; numbers, `true` and `false` keep their type. May be given several times
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, Value)>,
    /// Time until the message expires
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_seconds(text, u32::MAX))]
    ttl: Option<u32>,
    /// Time until receivers may get the message
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_seconds(text, u32::MAX))]
    delay: Option<u32>,
}

#[derive(Deserialize)]
struct Sent {
    sequence_number: Option<u64>,
}

pub fn run<N: Named + ClapArgs>(With { named, args }: &With<N, Args>) -> anyhow::Result<ExitCode> {
    let (admin, Entity { name, path, .. }) = named.connect();
    let body = args.body()?;
    let mut message = json!({
        "session": args.session, "message_id": args.message_id, "subject": args.subject,
        "correlation_id": args.correlation_id, "content_type": args.content_type,
        "application_properties": args.properties.iter().cloned().collect::<Map<_, _>>(),
        "ttl_seconds": args.ttl, "delay_seconds": args.delay,
    });
    match String::from_utf8(body) {
        Ok(text) => message["body"] = text.into(),
        Err(binary) => message["body_base64"] = BASE64.encode(binary.as_bytes()).into(),
    }
    let answer = admin.post(&format!("{path}/messages"), &message)?;
    let Sent { sequence_number } = admin.read(answer.clone())?;
    print(match sequence_number {
        _ if named.wants_json() => format!("{answer}\n"),
        Some(number) => format!("sent message {number} to {name}\n"),
        None => format!("sent a message to {name}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn body(&self) -> anyhow::Result<Vec<u8>> {
        if let Some(text) = &self.message {
            return Ok(text.clone().into_bytes());
        }
        if let Some(file) = &self.file {
            return std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        }
        if stdin().is_terminal() {
            eprintln!("type the body, and end it with Ctrl-D");
        }
        let mut body = Vec::new();
        stdin().read_to_end(&mut body).context("cannot read standard input")?;
        Ok(body)
    }
}

/// Reads `name=value`.
fn property(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("a property is NAME=VALUE")?;
    let simple = serde_json::from_str(value)
        .ok()
        .filter(|value| matches!(value, Value::Number(_) | Value::Bool(_)));
    Ok((name.into(), simple.unwrap_or_else(|| value.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_truth_keep_their_type() {
        for (text, value) in [
            ("a=3", json!(3)),
            ("a=-2.5", json!(-2.5)),
            ("a=true", json!(true)),
            ("a=", json!("")),
            ("a=b=c", json!("b=c")),
            ("a=null", json!("null")),
            ("a=[1]", json!("[1]")),
            ("a=\"3\"", json!("\"3\"")),
        ] {
            assert_eq!(property(text), Ok(("a".into(), value)), "{text}");
        }
        assert!(property("a").is_err());
    }
}
