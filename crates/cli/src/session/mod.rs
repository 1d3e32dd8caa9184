//! `barid session`: the sessions of a broker that runs.

mod list;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use crate::admin::answers::Detailed;
use crate::admin::{Admin, TenantArgs, encode, printable};
use crate::output::print;

/// See and end the sessions of a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid session list --away                 who is away, and what waits for them
  barid session show sensor-7               its subscriptions, its will, when it expires
  barid session drop sensor-7               end it, and drop what waits for it")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List sessions by client identifier
    List(list::Args),
    /// Show one session
    Show(One),
    /// End a session: close its connection, drop its subscriptions and what waits for it
    Drop(One),
}

/// One session.
#[derive(clap::Args)]
struct One {
    /// The client identifier
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    of: TenantArgs,
}

impl One {
    /// Who answers, and the session's path.
    fn connect(&self) -> (Admin, String) {
        let (admin, tenant) = self.of.connect();
        (admin, format!("{tenant}/sessions/{}", encode(&self.client)))
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Show(one) => show::run(one),
        Command::Drop(one) => end(one),
    }
}

fn end(one: &One) -> anyhow::Result<ExitCode> {
    let (admin, path) = one.connect();
    let before = admin.get(&path)?;
    admin.delete(&path)?;
    print(if one.of.json {
        format!("{before}\n")
    } else {
        let Detailed { session, .. } = admin.read(before)?;
        format!(
            "ended the session of {}: {} subscriptions and {} waiting messages are gone\n",
            printable(&session.client),
            session.subscriptions.len(),
            session.queued_messages,
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
