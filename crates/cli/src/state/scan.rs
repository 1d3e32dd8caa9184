//! `barid state scan`.

use std::process::ExitCode;

use anyhow::bail;
use statestore_proto::{Command, PATTERN_MAX, Reply};

use super::json::Line;
use super::key::Notation;
use super::store::{Extras, Store, unexpected};
use crate::client::ConnectArgs;
use crate::output::print_on;

/// List the keys that match a pattern
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
In a pattern `*` matches any bytes, `?` matches one, [a-z] and [!a-z] match one of a class; `\\` escapes
them. Quote the pattern in the shell. Only keys that the user may read are listed.

Examples:
  barid state scan 'config/*'
  barid state scan -0 | xargs -0 -n 1 barid state get
  barid state scan --hex | while read key; do barid state get --hex $key; done

Exit status: 0 all matching keys are listed; 1 an error; 2 wrong usage; 3 the broker refused;
27 no answer in time."
)]
pub struct Args {
    /// The pattern
    #[arg(default_value = "*")]
    pattern: String,
    #[command(flatten)]
    notation: Notation,
    /// End each key with a NUL instead of a line feed
    #[arg(short = '0', long, conflicts_with = "json")]
    null: bool,
    /// Print a JSON object for each key
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = super::target(&args.connect)?;
    if args.pattern.is_empty() {
        bail!("an empty pattern matches no key; `*` matches all");
    }
    if args.pattern.len() > PATTERN_MAX {
        bail!("a pattern has at most {PATTERN_MAX} bytes");
    }
    let mut store = Store::connect(&target)?;
    let mut token: Option<Vec<u8>> = None;
    loop {
        let pattern = args.pattern.as_bytes();
        let command = Command::Scan { pattern, token: token.as_deref() };
        let answer = store.request(&command, Extras::default())?;
        let (keys, next) = match answer.reply() {
            Reply::Page { keys, next } => (keys, next),
            other => return Err(unexpected(&other)),
        };
        let page: Vec<u8> = keys.iter().flat_map(|key| shown(key, args)).collect();
        let is_read = print_on(page)?;
        match next.filter(|_| is_read) {
            None => break,
            next if next == token.as_deref() => {
                bail!("the state store returned the same page twice")
            }
            Some(next) => token = Some(next.to_vec()),
        }
    }
    store.disconnect();
    Ok(ExitCode::SUCCESS)
}

fn shown(key: &[u8], args: &Args) -> Vec<u8> {
    if args.json {
        return Line::of(key).line().into_bytes();
    }
    let mut shown = args.notation.write(key);
    shown.push(if args.null { 0 } else { b'\n' });
    shown
}
