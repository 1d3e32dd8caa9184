//! Peeking: showing messages without receiving them.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Entity, Named, With};
use crate::admin::{Admin, Column, Moment, Table, bytes, encode, now, span};
use crate::output::print;

/// Maximum number of messages in one request.
const PAGE: usize = 100;

/// Part of a queue or subscription.
#[derive(ClapArgs)]
pub struct PartArgs {
    /// Use the dead-letter queue
    #[arg(long, conflicts_with = "transfer_dead_letter")]
    dead_letter: bool,
    /// Use the transfer dead-letter queue: messages that could not be forwarded
    #[arg(long)]
    transfer_dead_letter: bool,
}

impl PartArgs {
    /// Returns the name of the part in the admin API.
    pub fn name(&self) -> &'static str {
        match (self.dead_letter, self.transfer_dead_letter) {
            (true, _) => "dead-letter",
            (_, true) => "transfer-dead-letter",
            _ => "main",
        }
    }

    /// Returns the words to put behind `messages` in a sentence.
    pub fn words(&self) -> &'static str {
        match (self.dead_letter, self.transfer_dead_letter) {
            (true, _) => " in the dead-letter queue",
            (_, true) => " in the transfer dead-letter queue",
            _ => "",
        }
    }
}

/// Range of messages.
#[derive(ClapArgs)]
pub struct Args {
    /// Maximum number of messages to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// First sequence number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Only messages of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    part: PartArgs,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Value>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    sequence_number: u64,
    state: String,
    session: Option<String>,
    message_id: Option<String>,
    delivery_count: u64,
    enqueued_at: Moment,
    size: u64,
    subject: Option<String>,
    #[serde(default)]
    application_properties: Map<String, Value>,
    body: Option<String>,
}

pub fn run<N: Named + ClapArgs>(with: &With<N, Args>) -> anyhow::Result<ExitCode> {
    let (admin, entity) = with.named.connect();
    let args = &with.args;
    let Page { messages, next } = fetch(args, &admin, &entity)?;
    if with.named.wants_json() {
        print(format!("{}\n", json!({ "messages": messages, "next": next })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let messages: Vec<Message> = admin.read(messages.into())?;
    let mut text = if messages.is_empty() {
        format!("no messages{} of {}\n", args.part.words(), entity.name)
    } else {
        table(&messages).to_string()
    };
    if let Some(next) = next {
        text += &format!("… and more: continue with --from {next}\n");
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Gets the messages page by page, and the sequence number of the next one if there are more.
fn fetch(args: &Args, admin: &Admin, entity: &Entity) -> anyhow::Result<Page> {
    let mut all = Page { messages: Vec::new(), next: Some(args.from) };
    while let Some(from) = all.next
        && all.messages.len() < args.limit
    {
        let wanted = PAGE.min(args.limit - all.messages.len());
        let part = args.part.name();
        let mut path = format!("{}/messages?part={part}&limit={wanted}&from={from}", entity.path);
        if let Some(session) = &args.session {
            path += &format!("&session={}", encode(session));
        }
        let page: Page = admin.read(admin.get(&path)?)?;
        all.messages.extend(page.messages);
        all.next = page.next;
    }
    Ok(all)
}

fn table(messages: &[Message]) -> Table<8> {
    let now = now();
    let mut table = Table::new([
        Column::Right("NUMBER"),
        Column::Left("STATE"),
        Column::Left("SESSION"),
        Column::Left("MESSAGE ID"),
        Column::Right("DELIVERIES"),
        Column::Right("AGE"),
        Column::Right("SIZE"),
        Column::Left("WHAT"),
    ]);
    for message in messages {
        table.push([
            message.sequence_number.to_string(),
            message.state.clone(),
            message.session.clone().unwrap_or_else(|| "-".into()),
            message.message_id.clone().unwrap_or_else(|| "-".into()),
            message.delivery_count.to_string(),
            span(message.enqueued_at.until(now)),
            bytes(message.size),
            message.what(),
        ]);
    }
    table
}

impl Message {
    /// Returns the reason of a dead letter; for other messages the subject and the beginning of the
    /// body.
    fn what(&self) -> String {
        let property = |name: &str| self.application_properties.get(name)?.as_str();
        if let Some(reason) = property("DeadLetterReason") {
            let description = property("DeadLetterErrorDescription").unwrap_or_default();
            return format!("{reason}: {description}");
        }
        let (subject, body) = (self.subject.as_deref(), self.body.as_deref());
        [subject, body].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
