//! `barid topic subscription`.

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use super::rule;
use crate::admin::{Admin, TenantArgs, encode, printable};
use crate::entity::{
    Confirmed, Entity, Named, Paging, PeekArgs, PurgeArgs, ReceiveArgs, ResubmitArgs, SessionsArgs,
    SubscriptionProperties, With, delete, make, peek, print_list, purge, receive, resubmit,
    sessions, show, update,
};

/// Subscriptions of a topic
#[derive(clap::Args)]
#[command(after_help = "\
A new subscription gets all messages sent to its topic (rule $Default); its rules can select some of them.

Examples:
  barid topic subscription create events billing --requires-session
  barid topic subscription list events
  barid topic subscription peek events billing --dead-letter
  barid topic subscription rule list events billing
  barid topic subscription delete events billing --yes")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a subscription
    Create(Box<With<One, SubscriptionProperties>>),
    /// List subscriptions and the number of their messages
    List(List),
    /// Show one subscription
    Show(One),
    /// Change properties of a subscription
    Update(Box<With<One, SubscriptionProperties>>),
    /// Delete a subscription and all of its messages
    Delete(Confirmed<One>),
    /// Show messages without receiving or locking them
    Peek(With<One, PeekArgs>),
    /// Remove all messages
    Purge(With<One, PurgeArgs>),
    /// Take messages out of the subscription
    Receive(With<One, ReceiveArgs>),
    /// Let dead letters wait for receivers again
    Resubmit(With<One, ResubmitArgs>),
    /// List sessions: messages, lock and state of each
    Sessions(With<One, SessionsArgs>),
    /// Rules of a subscription: which messages it gets
    Rule(rule::Args),
}

/// Name of one subscription.
#[derive(clap::Args)]
pub struct One {
    /// Name of the topic
    #[arg(value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    pub topic: String,
    /// Name of the subscription
    #[arg(value_name = "SUBSCRIPTION", value_parser = NonEmptyStringValueParser::new())]
    pub subscription: String,
    #[command(flatten)]
    pub of: TenantArgs,
}

#[derive(clap::Args)]
struct List {
    /// Name of the topic
    #[arg(value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    topic: String,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

impl Named for One {
    fn connect(&self) -> (Admin, Entity) {
        let (admin, tenant) = self.of.connect();
        let (topic, subscription) = (printable(&self.topic), printable(&self.subscription));
        let entity = Entity {
            name: format!("the subscription {subscription} of {topic}"),
            path: format!(
                "{tenant}/topics/{}/subscriptions/{}",
                encode(&self.topic),
                encode(&self.subscription)
            ),
            update: format!("barid topic subscription update {topic} {subscription}"),
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
        Command::List(List { topic, paging, of }) => {
            let (admin, tenant) = of.connect();
            let path = format!("{tenant}/topics/{}/subscriptions", encode(topic));
            print_list(&admin, &path, ("SUBSCRIPTION", "subscriptions"), paging, of.json)
        }
        Command::Show(one) => {
            show(one, "subscription", |described| format!("\n{}", rule::table(&described.rules)))
        }
        Command::Update(with) => update(with),
        Command::Delete(with) => delete(with),
        Command::Peek(with) => peek(with),
        Command::Purge(with) => purge(with),
        Command::Receive(with) => receive(with),
        Command::Resubmit(with) => resubmit(with),
        Command::Sessions(with) => sessions(with),
        Command::Rule(args) => rule::run(args),
    }
}
