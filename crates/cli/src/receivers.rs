//! `barid receivers`: who receives the messages of a topic.

use std::process::ExitCode;

use mqtt_proto::topic;
use serde::Deserialize;

use crate::admin::answers::Subscription;
use crate::admin::{Column, Table, TenantArgs, encode, printable};
use crate::entity::MORE;
use crate::output::print;
use crate::plural::count;

/// Show who receives the messages of a topic, and through which subscriptions
#[derive(clap::Args)]
#[command(after_help = "\
Lists the sessions that get a copy of each message that is published to the topic now, whether their clients
are connected or not, with the filters that match. Of a shared subscription one member gets a copy. Bindings
put a copy into a queue or topic, and other brokers of a cluster pass one on to their sessions.

Examples:
  barid receivers plant/4/temperature
  barid receivers plant/4/temperature --tenant acme --json | jq '.sessions[].client'")]
pub struct Args {
    /// Topic that messages are published to
    #[arg(value_name = "TOPIC", value_parser = parse_topic)]
    topic: String,
    /// Maximum number of sessions to list, and of members of each shared subscription
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    of: TenantArgs,
}

fn parse_topic(text: &str) -> Result<String, String> {
    topic::validate_name(text).map(|()| text.into()).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct Receivers {
    sessions: Vec<Receiver>,
    next: Option<String>,
    shared: Vec<Shared>,
    bindings: Vec<String>,
    brokers: Vec<String>,
}

#[derive(Deserialize)]
struct Receiver {
    client: String,
    connected: bool,
    qos: u8,
    subscriptions: Vec<Subscription>,
}

#[derive(Deserialize)]
struct Shared {
    name: String,
    filter: String,
    count: u64,
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    client: String,
    connected: bool,
    qos: u8,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let topic = encode(&args.topic);
    let answer = admin.get(&format!("{tenant}/receivers?topic={topic}&limit={}", args.limit))?;
    print(if args.of.json { format!("{answer}\n") } else { text(admin.read(answer)?) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(receivers: Receivers) -> String {
    let Receivers { sessions, next, shared, bindings, brokers } = receivers;
    if sessions.is_empty() && shared.is_empty() && bindings.is_empty() && brokers.is_empty() {
        return "nobody: no subscription and no binding matches the topic\n".into();
    }
    let connected = |connected| if connected { "yes" } else { "no" };
    let mut table = Table::new([
        Column::Left("CLIENT"),
        Column::Left("CONNECTED"),
        Column::Right("QOS"),
        Column::Left("THROUGH"),
    ]);
    for Receiver { client, connected: is_connected, qos, subscriptions } in sessions {
        let filters: Vec<_> = subscriptions.into_iter().map(|one| one.filter).collect();
        let is_connected = connected(is_connected).into();
        table.push([client, is_connected, qos.to_string(), filters.join(", ")]);
    }
    for Shared { name, filter, members, .. } in &shared {
        for Member { client, connected: is_connected, qos } in members {
            let through = format!("$share/{name}/{filter}");
            let is_connected = connected(*is_connected).into();
            table.push([client.clone(), is_connected, qos.to_string(), through]);
        }
    }
    let mut text = if table.is_empty() { String::new() } else { table.to_string() };
    if next.is_some() || shared.iter().any(|one| one.count > one.members.len() as u64) {
        text += MORE;
    }
    for Shared { name, filter, count: number, .. } in &shared {
        let members = count(*number, "member", "members");
        text += &format!(
            "one of the {members} of $share/{}/{} gets a copy\n",
            printable(name),
            printable(filter)
        );
    }
    for binding in bindings {
        text += &format!("the binding {} gets a copy\n", printable(&binding));
    }
    for broker in brokers {
        text += &format!("the broker {} gets a copy for its sessions\n", printable(&broker));
    }
    text
}
