//! Receiving: messages are taken out of a queue or subscription.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use super::peek::PartArgs;
use super::{Entity, Named, With};
use crate::output::print;
use crate::plural::count;
use crate::span;

/// Maximum number of messages in one request.
const TOGETHER: usize = 100;

/// Time between two requests while nothing waits.
const PAUSE: Duration = Duration::from_millis(250);

/// Messages to receive.
#[derive(ClapArgs)]
#[command(after_help = "\
Prints the body of each message, followed by a line break, or with --json everything about it. A message is removed
from the queue before it is printed, so it is lost if it cannot be printed. `peek` looks at messages and leaves
them.

Examples:
  barid queue receive orders                      the message that waits longest
  barid queue receive orders --count 10 --wait 5  up to ten, within five seconds
  barid queue receive orders --session customer-7 --json
  barid queue receive orders --dead-letter

Exit status: 0 as many messages as asked for; 27 fewer.")]
pub struct Args {
    /// Maximum number of messages
    #[arg(short = 'C', long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// How long to wait for messages
    #[arg(short = 'W', long, value_name = "TIME", default_value = "0", value_parser = span::parse)]
    wait: Duration,
    /// Session to receive from; without it, the free one that has waited longest
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    part: PartArgs,
}

#[derive(Deserialize)]
struct Received {
    messages: Vec<Value>,
}

pub fn run<N: Named + ClapArgs>(With { named, args }: &With<N, Args>) -> anyhow::Result<ExitCode> {
    let (admin, Entity { name, path, .. }) = named.connect();
    let until = Instant::now() + args.wait;
    let mut left = args.count;
    while left > 0 {
        let wanted = json!({
            "limit": left.min(TOGETHER), "part": args.part.name(), "session": args.session,
        });
        let answer = admin.post(&format!("{path}/messages/receive"), &wanted)?;
        let Received { messages } = admin.read(answer)?;
        left -= messages.len();
        for message in &messages {
            if named.wants_json() {
                print(format!("{message}\n"))?;
            } else {
                print([&body(message)[..], b"\n"].concat())?;
            }
        }
        if messages.is_empty() {
            if Instant::now() >= until {
                let words = args.part.words();
                eprintln!(
                    "{} missing: no more messages wait{words} of {name}",
                    count(left as u64, "is", "are")
                );
                return Ok(ExitCode::from(27));
            }
            sleep(PAUSE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The body of a message, as the admin API describes it.
fn body(message: &Value) -> Vec<u8> {
    let text = |name: &str| message.get(name).and_then(Value::as_str);
    match (text("body"), text("body_base64")) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => BASE64.decode(base64.as_bytes()).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}
