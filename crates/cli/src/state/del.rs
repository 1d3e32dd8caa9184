//! `barid state del` and `barid state vdel`.

use std::process::ExitCode;

use statestore_proto::{Command, Reply};

use super::json::Line;
use super::key::{Notation, shown};
use super::set::parse_token;
use super::store::{Extras, Store, unexpected};
use crate::client::ConnectArgs;
use crate::output::print;

const EXIT_STATUS: &str = "\
Exit status: 0 the key is deleted; 1 there is no such key, or it has another value, or an
error; 2 wrong usage; 3 the broker refused; 27 no answer in time.";

/// Delete a key
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  barid state del config/rate
  barid state del door --fencing $TOKEN

{EXIT_STATUS}"))]
pub struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    name: String,
    #[command(flatten)]
    common: Common,
}

/// Delete a key if it has a certain value
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  barid state vdel lock me                  release a lock, but only one's own

{EXIT_STATUS}"))]
pub struct IfArgs {
    /// The key
    #[arg(value_name = "KEY")]
    name: String,
    /// Value that the key must have
    value: String,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    notation: Notation,
    /// The version of the lock that protects the key
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    fencing: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let key = args.common.notation.read(&args.name)?;
    delete(&Command::Del { key: &key }, &args.common)
}

pub fn run_if(args: &IfArgs) -> anyhow::Result<ExitCode> {
    let key = args.common.notation.read(&args.name)?;
    delete(&Command::VDel { key: &key, value: args.value.as_bytes() }, &args.common)
}

fn delete(command: &Command<'_>, args: &Common) -> anyhow::Result<ExitCode> {
    let target = super::target(&args.connect)?;
    let extras = Extras { fencing: args.fencing.as_deref(), ..Extras::default() };
    let mut store = Store::connect(&target)?;
    let answer = store.request(command, extras)?;
    store.disconnect();
    let key = command.key().unwrap_or_default();
    let obstacle = match answer.reply() {
        Reply::Deleted => None,
        Reply::Nothing => Some(format!("there is no key {}", shown(key))),
        Reply::NotApplied => Some(format!("not deleted: {} has another value", shown(key))),
        other => return Err(unexpected(&other)),
    };
    if args.json {
        let line = Line::of(key).applied(obstacle.is_none()).version(answer.version.as_deref());
        print(line.line())?;
    }
    let Some(obstacle) = obstacle else { return Ok(ExitCode::SUCCESS) };
    eprintln!("barid: {obstacle}");
    Ok(ExitCode::FAILURE)
}
