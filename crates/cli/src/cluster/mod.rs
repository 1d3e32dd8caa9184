//! `barid cluster`: the cluster that a running broker belongs to, and the configuration of a new one.

mod init;
mod spread;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use barid_server::CLOCK_SKEW;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;

use crate::admin::{AdminArgs, Column, Moment, Table, TenantArgs, bytes, encode, now, span};
use crate::entity::{MORE, Paging, pages};
use crate::output::print;
use crate::plural::count;

/// Show the cluster that a running broker belongs to, move its slots, or begin a new one
#[derive(clap::Args)]
#[command(after_help = "\
Brokers that have a [cluster] in their configuration are peers: a client may connect to any of them. Each
one sees the cluster with its own eyes, so ask several of them if they disagree.

Examples:
  barid cluster status
  barid cluster members --admin 127.0.0.1:9081
  barid cluster members --json | jq '.members[] | select(.state != \"up\")'
  barid cluster slots
  barid cluster routes --tenant acme --topic plant/7/temperature
  barid cluster move 7 b2
  barid cluster drain b3
  barid cluster init plant b1=10.0.0.1 b2=10.0.0.2 b3=10.0.0.3")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show this broker, and what is wrong in the cluster
    #[command(after_help = "\
Exits with 1 if another broker cannot be reached, has another clock or other settings, or has slots and is not
up, if an address in `peers` does not answer, or if this broker takes no clients. `wrong` in the JSON has the sentences.

Examples:
  barid cluster status
  barid cluster status --json | jq -r '.wrong[]'")]
    Status(ClusterArgs),
    /// List the brokers
    #[command(after_help = "\
STATE is joining, up, unreachable, down or left, and FOR how long; the broker that is asked comes first. HEARS says whether that broker hears this one. SAME
says whether it had the same users, settings, bans, tokens and retained messages when the two last compared them: every
10 s, and under load a change may be on its way. FILTERS is the number of topic filters that its clients have subscribed
to. SENT counts the messages to it, LOST those
of QoS 0 for which the link had no room, and WAITING the bytes that it has not acknowledged.

Examples:
  barid cluster members
  barid cluster members --json")]
    Members(ClusterArgs),
    /// List the slots, and the broker that has each
    #[command(after_help = "\
Sessions that outlive their connections belong to slots, and each slot has a broker, its home. A client may
connect to any broker, which passes its bytes on to the home of its slot. A load balancer that knows the slots
connects it at once. The slot of a client is XXH3-64 of `{tenant}/{client identifier}`, modulo their number.

--haproxy prints a map file for HAProxy, with a line `SLOT BROKER` for each slot: docs/operating/cluster.md
has a configuration that uses it.

What a tenant has at one broker, its state store, queues, topics and bindings, is at the broker of the slot of
`{tenant}/`.

Examples:
  barid cluster slots
  barid cluster slots --tenant acme
  barid cluster slots --tenant acme --client sensor-7
  barid cluster slots --haproxy > /etc/haproxy/slots.map
  barid cluster slots --json | jq -r '.slots[] | select(.state != \"up\").slot'")]
    Slots(SlotsArgs),
    /// List the topic filters to which clients of other brokers have subscribed
    #[command(after_help = "\
Messages that match a filter are sent to its BROKERS, and each of them gives them to its own clients. Of a shared
subscription, `$share/NAME/FILTER`, one of the brokers gets a message, or the one that is asked if it has members too. The
list is what that broker has heard from the others.

`barid why` explains whether a certain client gets a message.

Examples:
  barid cluster routes
  barid cluster routes --tenant acme
  barid cluster routes --tenant acme --topic plant/7/temperature
  barid cluster routes --json | jq -r '.routes[] | select(.brokers | length > 1).filter'")]
    Routes(RoutesArgs),
    /// Move a slot to another broker
    #[command(after_help = "\
The stored sessions of the slot go to the broker, and with them the state stores, queues, topics and bindings of the
tenants whose slot it is. Any broker may be asked. All brokers have to be up, or down for good.

The clients of the slot are disconnected and connect again; until the contents are at the other broker they are refused
(0x88). For a part of that time no broker of the cluster reads messages from clients, so nothing is lost and nothing
arrives twice. Clients of state stores stay connected, unless a broker fails meanwhile. How long both took is printed.

Examples:
  barid cluster move 7 b2")]
    Move(MoveArgs),
    /// Move all slots of a broker to the others
    #[command(after_help = "\
Each slot goes to the broker that has the fewest of those that are up, one slot after the other. Do this before a broker is
switched off for good. It goes on as a broker without slots: clients may connect to it, and those whose sessions end
with their connections stay. If a slot cannot be moved the command ends, and goes on where it was when it is run again.

Examples:
  barid cluster drain b3 --dry-run
  barid cluster drain b3")]
    Drain(spread::DrainArgs),
    /// Move slots until all brokers have equally many
    #[command(after_help = "\
As few slots as possible are moved, one after the other, between the brokers that are up. Do this when a broker is new.

Examples:
  barid cluster balance --dry-run
  barid cluster balance")]
    Balance(spread::Options),
    /// Write the configuration files of a new cluster
    #[command(after_help = "\
Writes a file for each broker, with a secret that all of them have. The slots are divided among the brokers in the order in
which they are named; that stays, and `barid cluster move` moves single slots. Of three brokers two go on when the third one fails.
Two brokers both go on when they lose each other, and may then acknowledge messages that the other one's clients do not get.

Examples:
  barid cluster init plant b1=10.0.0.1 b2=10.0.0.2 b3=10.0.0.3
  barid cluster init plant b1=mq1.internal:7000 b2=mq2.internal:7000 b3=mq3.internal:7000 --dir plant --slots 128")]
    Init(init::Args),
}

#[derive(clap::Args)]
struct MoveArgs {
    #[command(flatten)]
    of: ClusterArgs,
    /// The number of the slot, as `barid cluster slots` lists it
    slot: u16,
    /// The name of the broker that is to have it
    #[arg(value_name = "TO")]
    to: String,
}

#[derive(Deserialize)]
struct MovedSlot {
    broker: String,
    sessions: u64,
    bytes: u64,
    closed_ms: u64,
    held_ms: u64,
    is_active: bool,
}

impl MovedSlot {
    /// Returns the line that says what is still to come, if anything is.
    fn warning(&self) -> String {
        match self.is_active {
            true => String::new(),
            false => format!(
                "! {} has not said yet that its clients can connect: it takes the slot over when it can be reached\n",
                self.broker
            ),
        }
    }
}

#[derive(clap::Args)]
struct SlotsArgs {
    #[command(flatten)]
    of: ClusterArgs,
    /// Print a map file for HAProxy
    #[arg(long, conflicts_with = "json")]
    haproxy: bool,
    /// List only the slot of this client; with --tenant if that is not `default`
    #[arg(long, value_name = "CLIENT", conflicts_with = "haproxy", value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// List only the slot of the state store, queues, topics and bindings of this tenant
    #[arg(long, conflicts_with = "haproxy")]
    tenant: Option<String>,
}

#[derive(clap::Args)]
struct RoutesArgs {
    /// List only filters that match this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(Deserialize)]
struct Route {
    filter: String,
    brokers: Vec<String>,
}

#[derive(Deserialize)]
struct Slots {
    slots: Vec<Slot>,
}

#[derive(Deserialize)]
struct Slot {
    slot: u16,
    broker: String,
    state: String,
    generation: u64,
    moving_to: Option<String>,
}

/// Broker to ask, and output format.
#[derive(clap::Args)]
struct ClusterArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the broker's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct View {
    cluster: String,
    broker: String,
    address: String,
    encrypted: bool,
    takes_clients: bool,
    has_quorum: bool,
    certificate_expires_at: Option<Moment>,
    filters: u64,
    members: Vec<Member>,
    problems: Vec<Problem>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    address: String,
    state: String,
    since: Moment,
    hears_us: bool,
    clock_ahead: i64,
    other_settings: Vec<String>,
    filters: u64,
    link: Link,
    replicas: Replicas,
}

#[derive(Deserialize)]
struct Replicas {
    are_same: Option<bool>,
}

#[derive(Deserialize)]
struct Link {
    messages: u64,
    lost: u64,
    waiting: u64,
}

#[derive(Deserialize)]
struct Problem {
    address: String,
    reason: String,
}

/// Time before the end of a certificate from which on it is a problem.
const CERTIFICATE_REMINDER: Duration = Duration::from_secs(14 * 86_400);

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Status(of) => status(of),
        Command::Members(of) => members(of),
        Command::Slots(args) => slots(args),
        Command::Routes(args) => routes(args),
        Command::Move(args) => move_slot(args),
        Command::Drain(args) => spread::drain(args),
        Command::Balance(options) => spread::balance(options),
        Command::Init(args) => init::run(args),
    }
}

fn status(of: &ClusterArgs) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let answer = admin.get("/v1/cluster")?;
    let mut shown = answer.clone();
    let view: View = admin.read(answer)?;
    let mut wrong = wrong(&view);
    let slots = admin.find("/v1/cluster/slots")?.map(|slots| admin.read(slots)).transpose()?;
    wrong.extend(slots.iter().flat_map(without_broker));
    print(if of.json {
        shown["wrong"] = wrong.clone().into();
        format!("{shown}\n")
    } else {
        let View { cluster, broker, address, encrypted, filters, members, .. } = &view;
        let up = members.iter().filter(|member| member.state == "up").count();
        let others = match members.len() {
            0 => "has heard of no other broker yet".into(),
            all => format!("{up} of {all} other brokers are up"),
        };
        let mut lines = format!(
            "broker {broker} of the cluster {cluster}, at {address}\n{others}; {} here{}\n",
            count(*filters, "topic filter", "topic filters"),
            if *encrypted { "; links use TLS" } else { "" },
        );
        for sentence in &wrong {
            lines += &format!("! {sentence}\n");
        }
        lines
    })?;
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a sentence for each broker that has slots and is not up.
fn without_broker(Slots { slots }: &Slots) -> Vec<String> {
    let mut away = BTreeMap::<&str, (u64, &str)>::new();
    for Slot { broker, state, .. } in slots.iter().filter(|slot| slot.state != "up") {
        away.entry(broker).or_insert((0, state)).0 += 1;
    }
    let sentence = |(broker, (slots, state)): (&str, (u64, &str))| {
        format!(
            "{} at {broker}, which is {state}: clients whose sessions are there, and tenants whose queues and state store are, wait for it",
            count(slots, "slot is", "slots are")
        )
    };
    away.into_iter().map(sentence).collect()
}

/// Returns a sentence for everything that is not as it should be.
fn wrong(view: &View) -> Vec<String> {
    let mut wrong = Vec::new();
    if !view.has_quorum {
        let heard = view.members.iter().filter(|one| one.state == "up" && one.hears_us).count();
        wrong.push(format!(
            "this broker does not read from clients: it needs to be heard by more than half of all brokers, itself included, and is \
             heard by {}. Start those that are missing",
            count(heard as u64 + 1, "broker", "brokers")
        ));
    } else if !view.takes_clients {
        wrong.push(
            "this broker takes no clients yet: it waits until all others hear it, and it them"
                .into(),
        );
    }
    for Member { name, state, hears_us, clock_ahead, other_settings, .. } in &view.members {
        match state.as_str() {
            "left" => continue,
            "up" if !hears_us => wrong.push(format!(
                "{name} does not hear this broker: it cannot open or keep a link to {}",
                view.address
            )),
            "up" => {}
            state => wrong.push(format!("{name} is {state}")),
        }
        if clock_ahead.unsigned_abs() > CLOCK_SKEW {
            let direction = if *clock_ahead > 0 { "ahead" } else { "behind" };
            let millis = clock_ahead.abs();
            wrong.push(format!("the clock of {name} is {millis} ms {direction}"));
        }
        if state == "up" && !other_settings.is_empty() {
            wrong.push(format!(
                "{name} has other settings than this broker: {}",
                other_settings.join(", ")
            ));
        }
    }
    let soon = now() + CERTIFICATE_REMINDER;
    if let Some(at) = view.certificate_expires_at.as_ref().filter(|at| !at.until(soon).is_zero()) {
        wrong.push(format!(
            "the certificate of this broker for links expires at {}: replace it in the file and reload (kill -HUP)",
            at.as_str()
        ));
    }
    let problems = view.problems.iter();
    wrong.extend(problems.map(|it| format!("no link to {}: {}", it.address, it.reason)));
    wrong
}

fn members(of: &ClusterArgs) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let answer = admin.get("/v1/cluster")?;
    print(if of.json {
        format!("{answer}\n")
    } else {
        let (view, now): (View, _) = (admin.read(answer)?, now());
        let mut table = Table::new([
            Column::Left("BROKER"),
            Column::Left("ADDRESS"),
            Column::Left("STATE"),
            Column::Right("FOR"),
            Column::Left("HEARS"),
            Column::Left("SAME"),
            Column::Right("FILTERS"),
            Column::Right("SENT"),
            Column::Right("LOST"),
            Column::Right("WAITING"),
        ]);
        let filters = view.filters.to_string();
        let nothing = || "-".to_owned();
        table.push([
            view.broker,
            view.address,
            "asked".into(),
            nothing(),
            nothing(),
            nothing(),
            filters,
            nothing(),
            nothing(),
            nothing(),
        ]);
        for member in view.members {
            let Member { name, address, state, since, hears_us, filters, link, replicas, .. } =
                member;
            let hears = if hears_us { "yes" } else { "no" };
            let same = match replicas.are_same {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            table.push([
                name,
                address,
                state,
                span(since.until(now)),
                hears.into(),
                same.into(),
                filters.to_string(),
                link.messages.to_string(),
                link.lost.to_string(),
                bytes(link.waiting),
            ]);
        }
        table.to_string()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn slots(SlotsArgs { of, haproxy, tenant, client }: &SlotsArgs) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let of_tenant = tenant.as_ref().map(|tenant| format!("tenant={}", encode(tenant)));
    let of_client = client.as_ref().map(|client| format!("client={}", encode(client)));
    let query: Vec<_> = of_tenant.into_iter().chain(of_client).collect();
    let answer = admin.get(&format!("/v1/cluster/slots?{}", query.join("&")))?;
    print(if of.json {
        format!("{answer}\n")
    } else {
        let Slots { slots } = admin.read(answer)?;
        if *haproxy {
            slots.iter().map(|Slot { slot, broker, .. }| format!("{slot} {broker}\n")).collect()
        } else {
            let mut table = Table::new([
                Column::Right("SLOT"),
                Column::Left("BROKER"),
                Column::Left("STATE"),
                Column::Right("MOVES"),
            ]);
            for Slot { slot, broker, state, generation, moving_to } in slots {
                let state = moving_to.map_or(state, |to| format!("moving to {to}"));
                table.push([slot.to_string(), broker, state, generation.to_string()]);
            }
            table.to_string()
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn routes(RoutesArgs { topic, paging, of }: &RoutesArgs) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = of.connect();
    let of_topic = topic.as_ref().map(|topic| format!("?topic={}", encode(topic)));
    let path = format!("{tenant}/routes{}", of_topic.unwrap_or_default());
    let mut answer = pages(&admin, &path, "routes", paging)?;
    print(if of.json {
        format!("{answer}\n")
    } else {
        let mut table = Table::new([Column::Left("FILTER"), Column::Left("BROKERS")]);
        for Route { filter, brokers } in admin.read::<Vec<Route>>(answer["routes"].take())? {
            table.push([filter, brokers.join(" ")]);
        }
        let none = "no client of another broker has such a subscription\n";
        let text = if table.is_empty() { none.into() } else { table.to_string() };
        if answer["next"].is_null() { text } else { text + MORE }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn move_slot(MoveArgs { of, slot, to }: &MoveArgs) -> anyhow::Result<ExitCode> {
    let admin = of.admin.connect();
    let wanted = serde_json::json!({ "broker": to });
    let answer = admin.change(&format!("/v1/cluster/slots/{slot}"), &wanted)?;
    print(if of.json {
        format!("{answer}\n")
    } else {
        let moved: MovedSlot = admin.read(answer)?;
        let lines = format!(
            "slot {slot} is at {} now, with {} and {}\nits clients could not connect for {} ms; no broker took messages for {} ms\n",
            moved.broker,
            count(moved.sessions, "session", "sessions"),
            bytes(moved.bytes),
            moved.closed_ms,
            moved.held_ms
        );
        lines + &moved.warning()
    })?;
    Ok(ExitCode::SUCCESS)
}
