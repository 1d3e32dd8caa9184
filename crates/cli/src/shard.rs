//! `barid shard`: the shards of a running broker.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{AdminArgs, Column, Table, bytes};
use crate::output::print;

/// List, close and open the shards of a running broker
#[derive(clap::Args)]
#[command(after_help = "\
The number of shards is set when the data directory is created (storage.shards). Each session, retained
message, key of the state store, queue and topic belongs to one shard. A shard can be closed, and opened
again, while the others keep serving.

Examples:
  barid shard list
  barid shard close 3                       write its contents to disk, and refuse all use of it
  barid shard open 3                        read it, and serve again")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the shards
    List(ListArgs),
    /// Close a shard: its contents are then durable, and only in its store
    #[command(after_help = CLOSED)]
    Close(One),
    /// Open a shard that was closed
    #[command(after_help = "\
Clients whose sessions are in the shard can connect again when this returns.

Examples:
  barid shard open 3
  barid shard open 3 --json")]
    Open(One),
}

const CLOSED: &str = "\
Until the shard is opened again, by `barid shard open` or by the next start of the broker:

  - Clients whose sessions are in it are disconnected, and refused with 0x89 (3.x: return code 3).
  - Messages for these sessions are not acknowledged (QoS 1 and 2; a client of MQTT 5 is told 0x97),
    so that their publishers send them again. QoS 0 is dropped.
  - Receivers of its queues and subscriptions are detached (amqp:link:detach-forced), and what is sent to
    them is rejected (com.microsoft:server-busy). Bindings to MQTT wait.
  - Requests about its keys of the state store are refused. Keys that are not stored are lost.
  - Retained messages can be read, but not changed. Users, settings of tenants and bans stay in force, and
    cannot be changed.

Examples:
  barid shard close 3
  barid shard close 3 --admin 127.0.0.1:9081 --json";

#[derive(clap::Args)]
#[command(after_help = "\
STATE is open, closing, closed or opening; or failing, if writing to disk fails. PENDING is the amount of
data that waits for its commit.

Examples:
  barid shard list
  barid shard list --json | jq '.shards[] | select(.state != \"open\")'")]
struct ListArgs {
    #[command(flatten)]
    of: ShardArgs,
}

/// Broker to ask, and output format.
#[derive(clap::Args)]
struct ShardArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the broker's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Number of one shard.
#[derive(clap::Args)]
struct One {
    /// Number of the shard, from 0
    #[arg(value_name = "SHARD")]
    shard: u16,
    #[command(flatten)]
    of: ShardArgs,
}

#[derive(Deserialize)]
struct Listed {
    shards: Vec<Shard>,
}

#[derive(Deserialize)]
struct Shard {
    shard: u16,
    state: String,
    pending_bytes: u64,
    commits: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(ListArgs { of }) => list(of),
        Command::Close(one) => change(one, "closed"),
        Command::Open(one) => change(one, "open"),
    }
}

fn list(of: &ShardArgs) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let answer = admin.get("/v1/shards")?;
    print(if of.json {
        format!("{answer}\n")
    } else {
        let Listed { shards } = admin.read(answer)?;
        let mut table = Table::new([
            Column::Right("SHARD"),
            Column::Left("STATE"),
            Column::Right("PENDING"),
            Column::Right("COMMITS"),
        ]);
        for shard in shards {
            let (number, commits) = (shard.shard.to_string(), shard.commits.to_string());
            table.push([number, shard.state, bytes(shard.pending_bytes), commits]);
        }
        table.to_string()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn change(One { shard, of }: &One, state: &str) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let answer: Value = admin.change(&format!("/v1/shards/{shard}"), &json!({ "state": state }))?;
    print(match of.json {
        true => format!("{answer}\n"),
        false => format!("shard {shard} is {state}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
