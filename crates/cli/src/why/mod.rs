//! `barid why`: where did my message go.

mod answer;
mod near;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use mqtt_proto::topic;
use serde_json::json;

use crate::admin::answers::{Detailed, Dropped, Drops, Tenants};
use crate::admin::{Admin, Column, Table, TenantArgs, encode, now, printable, span};
use answer::Facts;

/// Tenants that are looked through for a client that this one does not have.
const TENANTS_MAX: usize = 100;

/// Find out why a client did not get a message
#[derive(clap::Args)]
#[command(after_help = "\
Lists the messages for the client that the broker has dropped and still remembers, newest first, and what
to do about it; then, what the client's session says about the rest: whether there is one, whether it
matches the topic, what waits in it.

Examples:
  barid why --client sensor-7
  barid why --client sensor-7 --topic plant/4/temperature --tenant acme")]
pub struct Args {
    /// The client identifier
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    client: String,
    /// The topic that it was published to
    #[arg(long, value_parser = parse_topic)]
    topic: Option<String>,
    /// The most drops to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    of: TenantArgs,
}

fn parse_topic(text: &str) -> Result<String, String> {
    topic::validate_name(text).map(|()| text.into()).map_err(|error| error.to_string())
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let client = encode(&args.client);
    let mut path = format!("{tenant}/drops?client={client}&limit={}", args.limit);
    if let Some(topic) = &args.topic {
        path += &format!("&topic={}", encode(topic));
    }
    let drops = admin.find(&path)?;
    let session = admin.find(&format!("{tenant}/sessions/{client}"))?;
    let tenants = match session {
        Some(_) => None,
        None => Some(tenants_with(&admin, &client)?),
    };
    let detailed: Option<Detailed> = session.clone().map(serde_json::from_value).transpose()?;
    let known: Option<Drops> = drops.clone().map(serde_json::from_value).transpose()?;
    let answer = answer::answer(&Facts {
        client: &args.client,
        topic: args.topic.as_deref(),
        tenant: &args.of.tenant,
        drops: known.as_ref(),
        session: detailed.as_ref(),
        tenants_with: tenants.as_deref().unwrap_or_default(),
        now: now(),
    });
    if args.of.json {
        println!("{}", json!({ "drops": drops, "session": session, "answer": answer }));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(Drops { drops, .. }) = known.filter(|known| !known.drops.is_empty()) {
        print!("{}", table(&drops));
        println!();
    }
    for sentence in answer {
        println!("{}", printable(&sentence));
    }
    Ok(ExitCode::SUCCESS)
}

/// The tenants where a client of this name has a session.
fn tenants_with(admin: &Admin, client: &str) -> anyhow::Result<Vec<String>> {
    let all: Tenants = serde_json::from_value(admin.get("/v1/tenants")?)?;
    let mut with = Vec::new();
    for tenant in all.tenants.into_iter().take(TENANTS_MAX) {
        let path = format!("/v1/tenants/{}/sessions/{client}", encode(&tenant.name));
        if admin.find(&path)?.is_some() {
            with.push(tenant.name);
        }
    }
    Ok(with)
}

fn table(drops: &[Dropped]) -> String {
    let now = now();
    let mut table = Table::new([
        Column::Left("DROPPED AT"),
        Column::Right("AGO"),
        Column::Left("REASON"),
        Column::Left("TOPIC"),
    ]);
    for drop in drops {
        table.push([
            drop.at.as_str().into(),
            span(drop.at.until(now)),
            drop.reason.clone(),
            drop.topic.clone().unwrap_or("(not in memory any more)".into()),
        ]);
    }
    let explanations: BTreeMap<_, _> =
        drops.iter().map(|drop| (&*drop.reason, &*drop.explanation)).collect();
    let mut text = table.to_string();
    for (reason, explanation) in explanations {
        text += &format!("\n{reason}: {explanation}");
    }
    text + "\n"
}
