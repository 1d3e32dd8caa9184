//! `barid session list`.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use crate::admin::answers::{AmqpConnection, Session};
use crate::admin::{Admin, Column, Moment, Table, TenantArgs, bytes, now, span};
use crate::entity::{MORE, PAGE, Paging, missing, not_answered, pages};
use crate::output::print;

/// List sessions by client identifier
#[derive(clap::Args)]
#[command(after_help = "\
QUEUED and BYTES are the number and size of the waiting messages, OLDEST is how long the first of them has
waited, IN FLIGHT counts messages sent and not acknowledged. AMQP clients have no such sessions: their
connections are listed below the sessions, with the container name, the key, and their age. In a cluster the
list is that of all brokers, and BROKER has the session; with --broker, that of one.

Examples:
  barid session list
  barid session list --away --limit 20 --tenant acme
  barid session list --limit 100000 --json | jq '.sessions | map(.queued_bytes) | add'")]
pub struct Args {
    /// Only sessions whose client is connected
    #[arg(long, conflicts_with = "away")]
    connected: bool,
    /// Only sessions whose client is not connected
    #[arg(long)]
    away: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let mut path = format!("{tenant}/sessions");
    if args.connected || args.away {
        path += &format!("?connected={}", args.connected);
    }
    let mut answer = pages(&admin, &path, "sessions", &args.paging)?;
    // They are at the home of the tenant, without which the sessions of the other brokers can be listed.
    let amqp = fetch_amqp(args, &admin, &tenant);
    if args.of.json {
        answer["amqp_connections"] = amqp.map_or(Value::Null, |(amqp, _)| amqp.into());
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = table(&admin, admin.read(answer["sessions"].take())?)?;
    let mut text = if table.is_empty() { "no sessions\n".into() } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    text += &missing(&not_answered(&answer));
    match amqp {
        Err(error) => text += &format!("! connections of AMQP are missing: {error:#}\n"),
        Ok((amqp, _)) if amqp.is_empty() => {}
        Ok((amqp, are_more)) => {
            text += &format!("\n{}", amqp_table(&admin, amqp)?);
            if are_more {
                text += MORE;
            }
        }
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Gets the AMQP connections, and whether there are more. Returns none if the list is limited to clients that
/// are away, or starts after a session.
fn fetch_amqp(args: &Args, admin: &Admin, tenant: &str) -> anyhow::Result<(Vec<Value>, bool)> {
    if args.away || args.paging.after.is_some() {
        return Ok((Vec::new(), false));
    }
    let path = format!("{tenant}/amqp-connections?limit={}", args.paging.limit.min(PAGE));
    let mut page = admin.get(&path)?;
    let connections = admin.read(page["connections"].take())?;
    Ok((connections, !page["next"].is_null()))
}

fn amqp_table(admin: &Admin, connections: Vec<Value>) -> anyhow::Result<Table<5>> {
    let now = now();
    let mut table = Table::new([
        Column::Left("AMQP CONTAINER"),
        Column::Left("USER OR KEY"),
        Column::Left("ADDRESS"),
        Column::Right("FOR"),
        Column::Right("CONNECTION"),
    ]);
    for connection in connections {
        let connection: AmqpConnection = admin.read(connection)?;
        let since = span(connection.connected_at.until(now));
        let id = connection.id.to_string();
        let name = connection.user.or(connection.key).unwrap_or("-".into());
        table.push([connection.container, name, connection.address, since, id]);
    }
    Ok(table)
}

fn table(admin: &Admin, sessions: Vec<Value>) -> anyhow::Result<Table<8>> {
    let now = now();
    let mut table = Table::new([
        Column::Left("CLIENT"),
        Column::Left("CONNECTED"),
        Column::Right("QUEUED"),
        Column::Right("BYTES"),
        Column::Right("OLDEST"),
        Column::Right("IN FLIGHT"),
        Column::Left("EXPIRES"),
        Column::Optional("BROKER"),
    ]);
    for session in sessions {
        let session: Session<u64> = admin.read(session)?;
        let age = |oldest: &Moment| span(oldest.until(now));
        table.push([
            session.client.clone(),
            session.protocol.as_ref().map_or("no".into(), |version| format!("MQTT {version}")),
            session.queued_messages.to_string(),
            bytes(session.queued_bytes),
            session.oldest_queued_at.as_ref().map_or("-".into(), age),
            session.in_flight.to_string(),
            expires(&session, now),
            session.broker.unwrap_or_default(),
        ]);
    }
    Ok(table)
}

/// Describes when a session ends by itself.
pub fn expires<S>(session: &Session<S>, now: Duration) -> String {
    match (session.expiry_seconds, &session.expires_at) {
        (None, _) => "never".into(),
        (Some(0), _) => "with its connection".into(),
        (Some(_), Some(at)) => format!("in {}", span(at.since(now))),
        (Some(seconds), None) => {
            format!("{} after leaving", span(Duration::from_secs(u64::from(seconds))))
        }
    }
}
