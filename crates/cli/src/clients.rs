//! `barid client`: the clients that are connected to a running broker.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::answers::Subscription;
use crate::admin::{Column, Moment, Table, TenantArgs, bytes, encode, now, printable, span};
use crate::entity::{MORE, Paging, limit, missing, not_answered, pages};
use crate::output::print;
use crate::{plural, trace};

/// List the clients that are connected to a running broker, trace and disconnect them
#[derive(clap::Args)]
#[command(after_help = "\
Clients of MQTT and AMQP that are connected now. `barid session` has the sessions, also those whose clients
are away.

Examples:
  barid client list --tenant acme
  barid client list --search sensor- --protocol mqtt --json | jq -r '.clients[].address'
  barid client show sensor-7
  barid client trace sensor-7               its packets as they pass
  barid client kick sensor-7                it keeps its session, and may connect again")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List clients by identifier, those of AMQP last
    List(ListArgs),
    /// Show a client of MQTT, with its subscriptions
    Show(One),
    /// Show the packets of a client as they pass
    Trace(TraceArgs),
    /// Disconnect a client
    Kick(KickArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
FOR is the time since the client has connected. SUBS counts its subscriptions, QUEUED the messages that wait
for it, IN FLIGHT those sent and not acknowledged. A client of AMQP is listed with its container name, and
with its key if it is no user. In a cluster the list is that of all brokers, and BROKER has the connection;
with --broker, that of one.

Examples:
  barid client list
  barid client list --user acme/till --tenant acme
  barid client list --rates --limit 1000 | head
  barid client list --address 10.7. --limit 1000")]
struct ListArgs {
    /// Only clients whose identifier contains this
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only clients that are this user, {tenant}/{client}
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only clients whose address begins with this
    #[arg(long, value_name = "TEXT")]
    address: Option<String>,
    /// Only clients of this protocol
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Watch for a second, and list by messages in it, the busiest first
    #[arg(long)]
    rates: bool,
    /// Maximum number of clients to list
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    limit: usize,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Protocol {
    Mqtt,
    Amqp,
}

/// Client identifier of one client.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid client show sensor-7
  barid client show sensor-7 --tenant acme --json")]
struct One {
    /// Client identifier
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
#[command(after_help = trace::EXAMPLES)]
struct TraceArgs {
    /// Client identifier, or container name of a client of AMQP
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    options: trace::Options,
}

#[derive(clap::Args)]
#[command(after_help = "\
The client is told (MQTT 5: 0x98 Administrative action), and may connect again at once. A session that
outlives its connection stays; `barid session drop` ends it, too. To keep a client out, ban it (`barid ban
add`) or disable its user (`barid user disable`).

Examples:
  barid client kick sensor-7
  barid client kick --amqp 17               the CONNECTION of an AMQP client in `barid client list`")]
struct KickArgs {
    /// Client identifier
    #[arg(value_name = "CLIENT", value_parser = NonEmptyStringValueParser::new(), required_unless_present = "amqp")]
    client: Option<String>,
    /// The number of the connection of an AMQP client
    #[arg(long, value_name = "CONNECTION", conflicts_with = "client")]
    amqp: Option<u64>,
    #[command(flatten)]
    of: TenantArgs,
}

/// A client. `S` is the number of its subscriptions, or a list of them.
#[derive(Deserialize)]
struct Client<S> {
    client: String,
    connection: u64,
    protocol: String,
    version: String,
    user: Option<String>,
    key: Option<String>,
    address: String,
    listener: Option<String>,
    /// The broker of the cluster that has it, in a list.
    broker: Option<String>,
    connected_at: Moment,
    keep_alive: Option<u16>,
    subscriptions: Option<S>,
    in_flight: Option<u64>,
    queued_messages: Option<u64>,
    queued_bytes: Option<u64>,
    #[serde(flatten)]
    traffic: Traffic,
}

/// Messages since the client has connected, and the bytes of their packets.
#[derive(Clone, Copy, Deserialize)]
struct Traffic {
    received_messages: u64,
    received_bytes: u64,
    sent_messages: u64,
    sent_bytes: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(one) => show(one),
        Command::Trace(args) => trace::follow(&args.client, &args.options),
        Command::Kick(args) => kick(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let (path, first) = (path(args, &tenant), Paging::first(args.limit));
    let mut answer = pages(&admin, &path, "clients", &first)?;
    if args.rates {
        let before: Vec<Client<u64>> = admin.read(answer["clients"].take())?;
        let since = Instant::now();
        thread::sleep(Duration::from_secs(1));
        answer = pages(&admin, &path, "clients", &first)?;
        add_rates(&mut answer["clients"], &before, since.elapsed());
    }
    if args.of.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let clients = answer["clients"].take();
    let mut text = match clients.as_array().is_none_or(Vec::is_empty) {
        true => "no such client is connected\n".into(),
        false if args.rates => rates(admin.read(clients)?).to_string(),
        false => table(admin.read(clients)?).to_string(),
    };
    if !answer["next"].is_null() {
        text += MORE;
    }
    text += &missing(&not_answered(&answer));
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of the list of clients that are wanted.
fn path(args: &ListArgs, tenant: &str) -> String {
    let protocol = args.protocol.map(|protocol| match protocol {
        Protocol::Mqtt => "mqtt",
        Protocol::Amqp => "amqp",
    });
    let wanted = [
        ("search", args.search.as_deref()),
        ("user", args.user.as_deref()),
        ("address", args.address.as_deref()),
        ("protocol", protocol),
    ];
    let given = wanted.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let parameters: Vec<_> =
        given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("{tenant}/clients?{}", parameters.join("&"))
}

fn table(clients: Vec<Client<u64>>) -> Table<10> {
    let now = now();
    let mut table = Table::new([
        Column::Left("CLIENT"),
        Column::Left("USER"),
        Column::Left("ADDRESS"),
        Column::Left("PROTOCOL"),
        Column::Right("FOR"),
        Column::Right("SUBS"),
        Column::Right("QUEUED"),
        Column::Right("IN FLIGHT"),
        Column::Right("CONNECTION"),
        Column::Optional("BROKER"),
    ]);
    for client in clients {
        let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
        table.push([
            client.client,
            client.user.or(client.key).unwrap_or("-".into()),
            client.address,
            format!("{} {}", client.protocol, client.version),
            span(client.connected_at.until(now)),
            number(client.subscriptions),
            number(client.queued_messages),
            number(client.in_flight),
            client.connection.to_string(),
            client.broker.unwrap_or_default(),
        ]);
    }
    table
}

/// Adds to each client the rates since `before`, and sorts by messages, the busiest first.
fn add_rates(clients: &mut Value, before: &[Client<u64>], elapsed: Duration) {
    let earlier: HashMap<(Option<&str>, u64), Traffic> = before
        .iter()
        .map(|client| ((client.broker.as_deref(), client.connection), client.traffic))
        .collect();
    let mut busiest = Vec::new();
    for mut client in clients.take().as_array_mut().map(std::mem::take).unwrap_or_default() {
        let of = |client: &Value, name: &str| client[name].as_u64().unwrap_or_default();
        // One that has connected meanwhile has sent everything in this time.
        let before = earlier.get(&(client["broker"].as_str(), of(&client, "connection")));
        let rate = |name: &str, before: Option<u64>| {
            let passed = of(&client, name).saturating_sub(before.unwrap_or_default());
            (passed as f64 / elapsed.as_secs_f64()).round() as u64
        };
        let rates = json!({
            "received_messages": rate("received_messages", before.map(|one| one.received_messages)),
            "received_bytes": rate("received_bytes", before.map(|one| one.received_bytes)),
            "sent_messages": rate("sent_messages", before.map(|one| one.sent_messages)),
            "sent_bytes": rate("sent_bytes", before.map(|one| one.sent_bytes)),
        });
        let messages = of(&rates, "received_messages") + of(&rates, "sent_messages");
        client["rates"] = rates;
        busiest.push((messages, client));
    }
    busiest.sort_by_key(|(messages, _)| Reverse(*messages));
    *clients = busiest.into_iter().map(|(_, client)| client).collect();
}

/// A client with its rates, each per second.
#[derive(Deserialize)]
struct Busy {
    client: String,
    user: Option<String>,
    key: Option<String>,
    address: String,
    broker: Option<String>,
    rates: Traffic,
}

fn rates(clients: Vec<Busy>) -> Table<8> {
    let mut table = Table::new([
        Column::Left("CLIENT"),
        Column::Left("USER"),
        Column::Left("ADDRESS"),
        Column::Right("IN/s"),
        Column::Right("BYTES IN/s"),
        Column::Right("OUT/s"),
        Column::Right("BYTES OUT/s"),
        Column::Optional("BROKER"),
    ]);
    for Busy { client, user, key, address, broker, rates } in clients {
        table.push([
            client,
            user.or(key).unwrap_or("-".into()),
            address,
            rates.received_messages.to_string(),
            bytes(rates.received_bytes),
            rates.sent_messages.to_string(),
            bytes(rates.sent_bytes),
            broker.unwrap_or_default(),
        ]);
    }
    table
}

fn show(one: &One) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = one.of.connect();
    let answer = admin.get(&format!("{tenant}/clients/{}", encode(&one.client)))?;
    print(if one.of.json { format!("{answer}\n") } else { described(&admin.read(answer)?) })?;
    Ok(ExitCode::SUCCESS)
}

fn described(client: &Client<Vec<Subscription>>) -> String {
    let mut text = String::new();
    let keep_alive = match client.keep_alive.unwrap_or_default() {
        0 => "off".into(),
        seconds => format!("{seconds} s"),
    };
    let queued = client.queued_messages.unwrap_or_default();
    for (name, value) in [
        ("client", client.client.clone()),
        ("user", client.user.clone().unwrap_or("-".into())),
        ("address", client.address.clone()),
        ("listener", client.listener.clone().unwrap_or("-".into())),
        ("protocol", format!("{} {}", client.protocol, client.version)),
        ("connected", format!("for {}", span(client.connected_at.until(now())))),
        ("keep alive", keep_alive),
        ("queued", format!("{queued}, {}", bytes(client.queued_bytes.unwrap_or_default()))),
        ("in flight", client.in_flight.unwrap_or_default().to_string()),
        ("received", passed(client.traffic.received_messages, client.traffic.received_bytes)),
        ("sent", passed(client.traffic.sent_messages, client.traffic.sent_bytes)),
    ] {
        text += &format!("{name:12} {}\n", printable(&value));
    }
    let mut table = Table::new([Column::Left("SUBSCRIPTION"), Column::Right("QOS")]);
    for Subscription { filter, qos, .. } in client.subscriptions.iter().flatten() {
        table.push([filter.clone(), qos.to_string()]);
    }
    if !table.is_empty() {
        text += &format!("\n{table}");
    }
    text
}

/// Describes messages since the client has connected.
fn passed(messages: u64, size: u64) -> String {
    format!("{}, {}", plural::count(messages, "message", "messages"), bytes(size))
}

fn kick(args: &KickArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let (path, name) = match (&args.client, args.amqp) {
        (Some(client), _) => {
            (format!("{tenant}/clients/{}", encode(client)), printable(client).into_owned())
        }
        (None, connection) => {
            let number = connection.unwrap_or_default();
            (format!("{tenant}/amqp-connections/{number}"), format!("the AMQP connection {number}"))
        }
    };
    admin.delete(&path)?;
    print(if args.of.json {
        format!("{}\n", json!({ "disconnected": args.client, "connection": args.amqp }))
    } else {
        format!("disconnected {name}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
