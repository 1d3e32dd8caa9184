//! `barid session`: the sessions of a running broker.

mod list;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use crate::admin::answers::Detailed;
use crate::admin::{Admin, TenantArgs, encode, printable};
use crate::output::print;
use crate::plural::count;

/// List and end the sessions of a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid session list --away                 who is away, and how much waits for them
  barid session show sensor-7               its subscriptions, its will, when it expires
  barid session drop sensor-7               end it, and drop its waiting messages")]
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
    /// End a session: close its connection, drop its subscriptions and waiting messages
    Drop(DropArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
The client may connect again at once. To keep it out, ban it (`barid ban add`), or disable its user
(`barid user disable`), or first remove its user or key from the configuration.

Examples:
  barid session drop sensor-7
  barid session drop --amqp 17              closes an AMQP connection; `barid session list` shows its number")]
struct DropArgs {
    /// Client identifier
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new(),
        required_unless_present = "amqp")]
    client: Option<String>,
    /// Close the AMQP connection with this number instead
    #[arg(long, value_name = "CONNECTION", conflicts_with = "client")]
    amqp: Option<u64>,
    #[command(flatten)]
    of: TenantArgs,
}

/// Client identifier of one session.
#[derive(clap::Args)]
struct One {
    /// Client identifier
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    of: TenantArgs,
}

impl One {
    /// Returns a client of the admin address, and the session's path.
    fn connect(&self) -> (Admin, String) {
        let (admin, tenant) = self.of.connect();
        (admin, format!("{tenant}/sessions/{}", encode(&self.client)))
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Show(one) => show::run(one),
        Command::Drop(args) => end(args),
    }
}

fn end(args: &DropArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    if let Some(connection) = args.amqp {
        admin.delete(&format!("{tenant}/amqp-connections/{connection}"))?;
        let closed = serde_json::json!({ "closed": connection });
        print(match args.of.json {
            true => format!("{closed}\n"),
            false => format!("closed the AMQP connection {connection}\n"),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("{tenant}/sessions/{}", encode(args.client.as_deref().unwrap_or_default()));
    let before = admin.get(&path)?;
    admin.delete(&path)?;
    print(if args.of.json {
        format!("{before}\n")
    } else {
        let Detailed { session, .. } = admin.read(before)?;
        format!(
            "ended the session of {}: {} and {} are gone\n",
            printable(&session.client),
            count(session.subscriptions.len() as u64, "subscription", "subscriptions"),
            count(session.queued_messages, "waiting message", "waiting messages"),
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
