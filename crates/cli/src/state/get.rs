//! `barid state get`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use statestore_proto::{Command, Reply};

use super::json::Line;
use super::key::{Notation, shown};
use super::store::{Extras, Store, unexpected};
use crate::client::ConnectArgs;
use crate::output::print;

/// Print the value of a key
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
The value is printed unchanged; only on a terminal a line feed follows it.

Examples:
  barid state get config/rate
  barid state get firmware > firmware.bin
  barid state get config/rate --json        {\"key\":…,\"value\":…,\"version\":…}
  barid state get --hex 00FF10

Exit status: 0 the key has a value, possibly empty; 1 there is no such key, or an error; 2 wrong
usage; 3 the broker refused; 27 no answer in time."
)]
pub struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    name: String,
    #[command(flatten)]
    notation: Notation,
    /// Print a JSON object with the version; a value that is not UTF-8 is in `value_base64`
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
    let key = args.notation.read(&args.name)?;
    let mut store = Store::connect(&target)?;
    let answer = store.request(&Command::Get { key: &key }, Extras::default())?;
    store.disconnect();
    match answer.reply() {
        Reply::Value(value) if args.json => {
            let version = answer.version.as_deref();
            print(Line::of(&key).value(value).version(version).line())?;
        }
        Reply::Value(value) => {
            print(value)?;
            if io::stdout().is_terminal() {
                print("\n")?;
            }
        }
        Reply::Absent => {
            eprintln!("barid: there is no key {}", shown(&key));
            return Ok(ExitCode::FAILURE);
        }
        other => return Err(unexpected(&other)),
    }
    Ok(ExitCode::SUCCESS)
}
