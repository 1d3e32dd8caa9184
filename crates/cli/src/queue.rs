//! `barid queue`: the queues of a running broker.

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use crate::admin::{Admin, TenantArgs, encode, printable};
use crate::entity::{
    Confirmed, Entity, Named, Paging, PeekArgs, PurgeArgs, QueueProperties, ReceiveArgs,
    ResubmitArgs, SendArgs, SessionsArgs, With, delete, make, peek, print_list, purge, receive,
    resubmit, send, sessions, show, update,
};

/// Create, change and inspect the queues of a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid queue create orders --requires-session --lock-duration 30s
  barid queue list                                with the number of messages in each
  barid queue peek orders --session customer-7    look at messages without taking them
  barid queue peek orders --dead-letter           look at dead letters, with their reasons
  barid queue send orders -m hello --session customer-7
  barid queue receive orders --count 10           take messages out
  barid queue resubmit orders --number 7          let a dead letter be received again
  barid queue sessions orders                     how many messages each has, and its lock
  barid queue update orders --max-delivery-count 5
  barid queue delete orders --yes

Properties have the names of Service Bus. A queue created here survives a restart of the broker. Queues
can also be declared, in the configuration or with `barid serve --entities FILE`.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a queue
    Create(Box<With<One, QueueProperties>>),
    /// List queues and the number of their messages
    List(List),
    /// Show one queue
    Show(One),
    /// Change properties of a queue
    Update(Box<With<One, QueueProperties>>),
    /// Delete a queue and all of its messages
    Delete(Confirmed<One>),
    /// Show messages without receiving or locking them
    Peek(With<One, PeekArgs>),
    /// Remove all messages
    Purge(With<One, PurgeArgs>),
    /// Put a message into the queue
    Send(Box<With<One, SendArgs>>),
    /// Take messages out of the queue
    Receive(With<One, ReceiveArgs>),
    /// Let dead letters wait for receivers again
    Resubmit(With<One, ResubmitArgs>),
    /// List sessions: messages, lock and state of each
    Sessions(With<One, SessionsArgs>),
}

/// Name of one queue.
#[derive(clap::Args)]
struct One {
    /// Name of the queue
    #[arg(value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new())]
    queue: String,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
DEAD counts dead letters, SESSIONS counts sessions with a message or a state, OLDEST is how long the first
message has waited.

Examples:
  barid queue list --tenant acme
  barid queue list --json | jq '.queues[] | select(.counts.dead_lettered > 0).name'")]
struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

impl Named for One {
    fn connect(&self) -> (Admin, Entity) {
        let (admin, tenant) = self.of.connect();
        let queue = printable(&self.queue);
        let entity = Entity {
            name: format!("the queue {queue}"),
            path: format!("{tenant}/queues/{}", encode(&self.queue)),
            update: format!("barid queue update {queue}"),
        };
        (admin, entity)
    }

    fn wants_json(&self) -> bool {
        self.of.json
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Create(with) => make(with, |_| String::new()),
        Command::List(List { paging, of }) => {
            let (admin, tenant) = of.connect();
            print_list(&admin, &format!("{tenant}/queues"), ("QUEUE", "queues"), paging, of.json)
        }
        Command::Show(one) => show(one, "queue", |_| String::new()),
        Command::Update(with) => update(with),
        Command::Delete(with) => delete(with),
        Command::Peek(with) => peek(with),
        Command::Purge(with) => purge(with),
        Command::Send(with) => send(with),
        Command::Receive(with) => receive(with),
        Command::Resubmit(with) => resubmit(with),
        Command::Sessions(with) => sessions(with),
    }
}
