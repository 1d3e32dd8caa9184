//! `barid topic`: the topics of a running broker, their subscriptions and rules.

mod rule;
mod subscription;

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use crate::admin::{Admin, Column, Table, TenantArgs, encode, printable};
use crate::entity::{
    Confirmed, Described, Entity, MORE, Named, Paging, SendArgs, TopicProperties, With, delete,
    make, pages, send, show, update,
};
use crate::output::print;

/// Create and change the topics of a running broker, their subscriptions and rules
#[derive(clap::Args)]
#[command(after_help = "\
These are AMQP topics: each subscription of a topic gets the messages that its rules match. MQTT topics
need not be created. `barid binding` connects the two.

Examples:
  barid topic create events
  barid topic subscription create events billing --requires-session
  barid topic subscription rule create events billing large --sql 'amount > 1000'
  barid topic send events -m hello --property amount=2000
  barid topic subscription peek events billing
  barid topic delete events --yes")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a topic
    Create(Box<With<One, TopicProperties>>),
    /// List topics and their subscriptions
    List(List),
    /// Show one topic
    Show(One),
    /// Change properties of a topic
    Update(Box<With<One, TopicProperties>>),
    /// Send a message to the topic
    Send(Box<With<One, SendArgs>>),
    /// Delete a topic, its subscriptions and all of their messages
    Delete(Confirmed<One>),
    /// Subscriptions of a topic
    Subscription(subscription::Args),
}

/// Name of one topic.
#[derive(clap::Args)]
struct One {
    /// Name of the topic
    #[arg(value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    topic: String,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

impl Named for One {
    fn connect(&self) -> (Admin, Entity) {
        let (admin, tenant) = self.of.connect();
        let topic = printable(&self.topic);
        let entity = Entity {
            name: format!("the topic {topic}"),
            path: format!("{tenant}/topics/{}", encode(&self.topic)),
            update: format!("barid topic update {topic}"),
        };
        (admin, entity)
    }

    fn wants_json(&self) -> bool {
        self.of.json
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Create(with) => make(with, |described| {
            let name = printable(&described.name);
            format!(
                "next, create a subscription to keep the messages: `barid topic subscription create {name} NAME`\n"
            )
        }),
        Command::List(args) => list(args),
        Command::Show(one) => show(one, "topic", subscriptions),
        Command::Update(with) => update(with),
        Command::Send(with) => send(with),
        Command::Delete(with) => delete(with),
        Command::Subscription(args) => subscription::run(args),
    }
}

fn subscriptions(topic: &Described) -> String {
    if topic.subscriptions.is_empty() {
        return "\nno subscriptions: messages sent to the topic are dropped\n".into();
    }
    let names: Vec<_> = topic.subscriptions.iter().map(|name| printable(name)).collect();
    format!("\nsubscriptions: {}\n", names.join(", "))
}

fn list(List { paging, of }: &List) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = of.connect();
    let mut answer = pages(&admin, &format!("{tenant}/topics"), "topics", paging)?;
    if of.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([Column::Left("TOPIC"), Column::Left("SUBSCRIPTIONS")]);
    for topic in admin.read::<Vec<Described>>(answer["topics"].take())? {
        table.push([topic.name, topic.subscriptions.join(", ")]);
    }
    let mut text = if table.is_empty() { "no topics\n".into() } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
