//! `barid binding`: bindings between MQTT topics and queues or topics of AMQP.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{Admin, Column, Present, Table, TenantArgs, encode, printable};
use crate::entity::{Confirmation, MORE, Paging, confirm, pages};
use crate::output::print;

/// Forward MQTT messages to queues and topics, and publish messages of queues to MQTT clients
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid binding set telemetry --filter 'devices/+/telemetry' --queue telemetry --session '{2}'
  barid binding set commands --from-queue commands --publish 'devices/{session}/commands'
  barid binding list
  barid binding delete telemetry

A template is text with placeholders. For --session they are {1}, {2} … (levels of the topic), {topic},
{client} and {property:NAME}; for --publish they are {session}, {subject} and {property:NAME}. Bindings can
also be declared in the configuration, as [[bindings]].")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List bindings
    List(List),
    /// Show one binding
    Show(One),
    /// Create or replace a binding
    Set(Box<Set>),
    /// Delete a binding; messages that it has forwarded stay where they are
    Delete(Delete),
}

/// Name of one binding.
#[derive(clap::Args)]
struct One {
    /// Name of the binding
    #[arg(value_name = "BINDING", value_parser = NonEmptyStringValueParser::new())]
    binding: String,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
PASSED counts messages that were forwarded, REFUSED messages that could not be forwarded, since the start
of the broker or the last change of the binding.")]
struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
struct Delete {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(clap::Args)]
struct Set {
    #[command(flatten)]
    one: One,
    /// Forward messages that MQTT clients publish to topics matching this filter to --queue or
    /// --topic
    #[arg(long, value_name = "FILTER", conflicts_with = "publish")]
    filter: Option<String>,
    /// Queue that receives them
    #[arg(long, value_name = "QUEUE", conflicts_with = "topic")]
    queue: Option<String>,
    /// Topic (of AMQP) that receives them
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Session id of the forwarded messages
    #[arg(long, value_name = "TEMPLATE")]
    session: Option<String>,
    /// Queue whose messages are published to MQTT clients
    #[arg(long, value_name = "QUEUE", conflicts_with = "from_subscription")]
    from_queue: Option<String>,
    /// Subscription whose messages are published: TOPIC/Subscriptions/NAME
    #[arg(long, value_name = "PATH")]
    from_subscription: Option<String>,
    /// MQTT topic that they are published to
    #[arg(long, value_name = "TEMPLATE")]
    publish: Option<String>,
    /// QoS that they are published with [default: 1]
    #[arg(long, value_name = "0|1|2")]
    qos: Option<u8>,
    /// Publish them as retained messages
    #[arg(long)]
    retain: bool,
    /// Fail if a binding of this name exists
    #[arg(long)]
    new: bool,
}

#[derive(Deserialize)]
struct Page {
    bindings: Vec<Binding>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Binding {
    name: String,
    filter: Option<String>,
    queue: Option<String>,
    topic: Option<String>,
    session: Option<String>,
    from_queue: Option<String>,
    from_subscription: Option<String>,
    publish: Option<String>,
    qos: Option<u8>,
    #[serde(default)]
    retain: bool,
    passed: u64,
    refused: u64,
    /// Reason why the binding carries no messages.
    problem: Option<String>,
}

impl One {
    fn connect(&self) -> (Admin, String) {
        let (admin, tenant) = self.of.connect();
        (admin, format!("{tenant}/bindings/{}", encode(&self.binding)))
    }

    /// Prints the broker's answer as JSON, or the binding in words, preceded by `begin`.
    fn told(&self, admin: &Admin, answer: Value, begin: &str) -> anyhow::Result<ExitCode> {
        print(if self.of.json {
            format!("{answer}\n")
        } else {
            let binding: Binding = admin.read(answer)?;
            let (from, to) = binding.ends();
            format!("{begin}{}: {from} → {to}\n", printable(&binding.name))
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints an existing binding like `told`, and warns if it carries no messages.
    fn told_in_force(&self, admin: &Admin, answer: Value, begin: &str) -> anyhow::Result<ExitCode> {
        let binding: Binding = admin.read(answer.clone())?;
        self.told(admin, answer, begin)?;
        if let Some(problem) = &binding.problem {
            let advice = match binding.entity() {
                Some((kind, name)) if problem.starts_with("there is no") => {
                    format!("; `barid {kind} create {}` creates it", printable(name))
                }
                _ => String::new(),
            };
            eprintln!("barid: warning: the binding forwards nothing yet: {problem}{advice}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(one) => {
            let (admin, path) = one.connect();
            one.told_in_force(&admin, admin.get(&path)?, "")
        }
        Command::Set(args) => set(args),
        Command::Delete(Delete { one, confirmation }) => {
            let (admin, path) = one.connect();
            let before = admin.get(&path)?;
            confirm(confirmation, &format!("delete the binding {}", printable(&one.binding)))?;
            admin.delete(&path)?;
            one.told(&admin, before, "deleted ")
        }
    }
}

fn list(List { paging, of }: &List) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = of.connect();
    let answer = pages(&admin, &format!("{tenant}/bindings"), "bindings", paging)?;
    if of.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Page { bindings, next } = admin.read(answer)?;
    let mut table = Table::new([
        Column::Left("BINDING"),
        Column::Left("FROM"),
        Column::Left("TO"),
        Column::Right("PASSED"),
        Column::Right("REFUSED"),
    ]);
    for binding in &bindings {
        let (from, to) = binding.ends();
        let (passed, refused) = (binding.passed.to_string(), binding.refused.to_string());
        table.push([binding.name.clone(), from, to, passed, refused]);
    }
    let mut text = if table.is_empty() { "no bindings\n".into() } else { table.to_string() };
    for binding in &bindings {
        if let Some(problem) = &binding.problem {
            text += &format!("{} forwards nothing: {problem}\n", printable(&binding.name));
        }
    }
    if next.is_some() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn set(set: &Set) -> anyhow::Result<ExitCode> {
    let (admin, path) = set.one.connect();
    let body = set.body();
    if !set.new {
        return set.one.told_in_force(&admin, admin.put(&path, &body)?, "set ");
    }
    match admin.create(&path, &body) {
        Err(error) if error.is::<Present>() => {
            let binding = printable(&set.one.binding);
            bail!("the binding {binding} exists already\n  hint: omit --new to replace it")
        }
        made => set.one.told_in_force(&admin, made?, "set "),
    }
}

impl Set {
    fn body(&self) -> Value {
        let mut body = Map::new();
        for (key, value) in [
            ("filter", &self.filter),
            ("queue", &self.queue),
            ("topic", &self.topic),
            ("session", &self.session),
            ("from_queue", &self.from_queue),
            ("from_subscription", &self.from_subscription),
            ("publish", &self.publish),
        ] {
            if let Some(value) = value {
                body.insert(key.into(), value.as_str().into());
            }
        }
        if let Some(qos) = self.qos {
            body.insert("qos".into(), qos.into());
        }
        if self.retain {
            body.insert("retain".into(), true.into());
        }
        body.into()
    }
}

impl Binding {
    /// Returns the kind of the binding's queue or topic, as in `barid {kind} create`, and its name;
    /// `None` for a subscription.
    fn entity(&self) -> Option<(&'static str, &str)> {
        let queue = self.queue.as_deref().or(self.from_queue.as_deref());
        queue.map(|name| ("queue", name)).or(self.topic.as_deref().map(|name| ("topic", name)))
    }

    /// Describes the source and the destination of the messages.
    fn ends(&self) -> (String, String) {
        let named = |what: &str, name: &Option<String>| {
            name.as_ref().map(|name| format!("{what} {}", printable(name)))
        };
        if let Some(publish) = &self.publish {
            let from = named("queue", &self.from_queue)
                .or_else(|| named("subscription", &self.from_subscription));
            let retain = if self.retain { ", retained" } else { "" };
            let qos = self.qos.unwrap_or(1);
            let to = format!("MQTT {}, QoS {qos}{retain}", printable(publish));
            return (from.unwrap_or_default(), to);
        }
        let from = named("MQTT", &self.filter).unwrap_or_default();
        let to = named("queue", &self.queue).or_else(|| named("topic", &self.topic));
        let session = named(", session", &self.session).unwrap_or_default();
        (from, to.unwrap_or_default() + &session)
    }
}
