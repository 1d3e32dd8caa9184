//! `barid state set`.

use std::io::{self, Read as _};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgGroup;
use statestore_proto::{Command, Condition, Hlc, Reply};

use super::json::Line;
use super::key::{Notation, shown};
use super::store::{Extras, Store, unexpected};
use crate::client::ConnectArgs;
use crate::output::print;
use crate::span;

/// Set the value of a key
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Prints the version of the value, which serves as a fencing token.

Examples:
  barid state set config/rate 20
  barid state set firmware --file firmware.bin --persist
  date | barid state set last-run -
  barid state set greeting -- -hello-
  TOKEN=$(barid state set lock me --if-absent --ttl 10s) && barid state set door open --fencing $TOKEN

Exit status: 0 the key is set; 1 it exists already (--if-absent, --if-absent-or-equal), or an
error; 2 wrong usage; 3 the broker refused; 27 no answer in time."
)]
#[command(group = ArgGroup::new("source").required(true))]
pub struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    name: String,
    /// The value; `-`: all of standard input
    #[arg(group = "source")]
    value: Option<String>,
    /// Take the value from a file
    #[arg(short, long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    #[command(flatten)]
    notation: Notation,
    /// Set the key only if it does not exist (NX)
    #[arg(long, conflicts_with = "if_absent_or_equal")]
    if_absent: bool,
    /// Set the key only if it does not exist or has this value already (NEX)
    #[arg(long)]
    if_absent_or_equal: bool,
    /// Delete the key after this time (PX): seconds, or 500ms, 5m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = span::parse_milliseconds)]
    ttl: Option<NonZeroU64>,
    /// The version of the lock that protects the key
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    fencing: Option<String>,
    /// Ask the broker to store the key on disk, if it leaves this choice to clients
    #[arg(long)]
    persist: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Reads `--fencing`.
pub fn parse_token(text: &str) -> Result<String, String> {
    match Hlc::parse(text) {
        Ok(_) => Ok(text.into()),
        Err(_) => Err("not a version, such as 001696374425000:00001:StateStore".into()),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = super::target(&args.connect)?;
    let key = args.notation.read(&args.name)?;
    let value = value(args)?;
    let condition = match (args.if_absent, args.if_absent_or_equal) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfAbsentOrEqual,
        _ => Condition::Always,
    };
    let command = Command::Set { key: &key, value: &value, condition, ttl: args.ttl };
    let extras = Extras { fencing: args.fencing.as_deref(), persist: args.persist };
    let mut store = Store::connect(&target)?;
    let answer = store.request(&command, extras)?;
    store.disconnect();
    let applied = match answer.reply() {
        Reply::Ok => true,
        Reply::NotApplied => false,
        other => return Err(unexpected(&other)),
    };
    let version = answer.version.as_deref();
    if args.json {
        print(Line::of(&key).applied(applied).version(version).line())?;
    } else if applied {
        print(format!("{}\n", version.unwrap_or_default()))?;
    }
    if applied {
        return Ok(ExitCode::SUCCESS);
    }
    let with = if args.if_absent_or_equal { " with another value" } else { "" };
    eprintln!("barid: not set: there is a key {}{with}", shown(&key));
    Ok(ExitCode::FAILURE)
}

fn value(args: &Args) -> anyhow::Result<Vec<u8>> {
    match (&args.value, &args.file) {
        (_, Some(file)) => {
            std::fs::read(file).with_context(|| format!("--file {}", file.display()))
        }
        (Some(value), None) if value == "-" => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).context("reading standard input")?;
            Ok(bytes)
        }
        (value, None) => Ok(value.clone().unwrap_or_default().into_bytes()),
    }
}
