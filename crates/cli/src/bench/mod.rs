//! `barid bench`: measures a broker from outside.

mod amqp;
mod bar;
mod connect;
mod connection;
mod engine;
mod figures;
mod handshake;
mod load;
mod process;
mod relay;
mod report;
mod scenario;
mod state;
mod stream;
mod target;
mod usable;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use barid_server::descriptors::Descriptors;
use clap::Subcommand;
use mqtt_proto::{QoS, Version};

use crate::client::{BrokerArgs, Protocol, parse_qos, parse_version};
use crate::output::print;
use crate::span;
use engine::Engine;
use process::Process;
use report::Report;
use scenario::{Plan, Scenario};
use target::Target;

/// Measure a broker
#[derive(clap::Args)]
#[command(after_help = "\
Without --rate each publisher keeps --window messages in flight from end to end, which measures the
highest throughput of the broker. With --rate messages are sent at that rate, whether or not earlier
ones have arrived, and latency counts from the moment when a message was due.

Examples:
  barid bench pairs                                    as fast as possible
  barid bench pairs -n 100 --rate 20000 --qos 1
  barid bench pairs --qos 1 --persistent               the cost of storing messages
  barid bench pairs --cafile ca.pem -h broker.example  over TLS; --ws: over WebSocket
  barid bench fanout -n 1000 --size 16 --pid $(pidof barid)
  barid bench connections -n 10000 --pid $(pidof barid) --json
  barid bench pairs --find-max                         the highest rate without loss, p99 < 500 ms
  barid bench state                                    keys and values
  barid bench amqp                                     queues with sessions
  barid bench relay --listen 127.0.0.1:1884            the limit of the machine itself

Exit status: 0 nothing was lost; 1 messages were lost, connections were dropped, or an error.")]
pub struct Args {
    #[command(subcommand)]
    scenario: Command,
}

#[derive(Subcommand)]
enum Command {
    /// N publishers and N subscribers, one topic for each pair
    #[command(after_help = MQTT)]
    Pairs(Box<Options>),
    /// One publisher, N subscribers to its topic
    #[command(after_help = MQTT)]
    Fanout(Box<Options>),
    /// N publishers, one subscriber to all their topics
    #[command(after_help = MQTT)]
    Fanin(Box<Options>),
    /// N idle connections, each with a subscription: how fast they connect, and what each costs
    #[command(after_help = MQTT)]
    Connections(Box<Options>),
    /// N clients that set and get keys of the state store
    #[command(after_help = STATE)]
    State(Box<state::Options>),
    /// Queues with sessions, over AMQP 1.0: send, receive, complete
    #[command(after_help = AMQP)]
    Amqp(Box<amqp::Options>),
    /// Run a minimal relay in place of a broker, to measure the cost of the machine itself
    #[command(after_help = RELAY)]
    Relay(relay::Args),
}

const MQTT: &str = "\
Examples:
  barid bench pairs -n 100 -h broker.example -u acme/bench       the password is in BARID_PASSWORD
  barid bench pairs -L mqtts://broker.example --cafile ca.pem    over TLS
  barid bench pairs --subscribers 127.0.0.1:1888 --pid 711,712   over two brokers of a cluster
  barid bench fanout -n 1000 --ws                                over WebSocket
  barid bench connections -n 10000 -d 1m
  barid bench connections -n 10000 -u 'acme/device-%n'           each connection is another user

Exit status: 0 nothing was lost; 1 messages were lost, connections were dropped, or an error; 3 the
broker refused; 27 the broker does not answer.";

const STATE: &str = "\
A request counts as answered when both its acknowledgement and its response have arrived. The example
crates/cli/examples/redis_load.rs puts the same load on a server that speaks RESP.

Examples:
  barid bench state                                    50 clients with 10 requests each
  barid bench state --size 1024 --pid $(pidof barid) --json
  barid bench state -n 1 --in-flight 1 --sets 100      how long one SET takes

Exit status: 0 all requests were answered; 1 wrong or missing answers, or an error.";

const AMQP: &str = "\
Receivers lock each message, complete it individually, and wait until the broker confirms this. Every
message must arrive exactly once, and in order within its session. The queue needs RequiresSession,
unless --plain is given; with --plain, other brokers can be measured too.

Examples:
  barid bench amqp --pid $(pidof barid)                send, receive, complete
  barid bench amqp --rate 5000 --json
  barid bench amqp accept --sessions 100000 --receivers 1
  barid bench amqp backlog --messages 1000000
  barid bench amqp --plain --queue /amq/queue/bench --user guest --pw guest    RabbitMQ 3

Exit status: 0 all messages arrived; 1 messages were lost, duplicated, refused or out of order, or an error.";

const RELAY: &str = "\
The relay is not a broker: it has one thread, and no sessions, queues or retained messages. It copies
whole PUBLISH packets from the socket of a publisher to the sockets of the subscribers that its first
topic had when it first published. It acknowledges QoS 1 at once, and refuses QoS 2. Its cost is the cost
of the sockets on this machine: measure the relay and a broker in turn, and the difference is the
cost of the broker itself.

Example:
  barid bench relay & barid bench pairs --port 1884 --pid $!";

/// Options of the MQTT scenarios
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
struct Options {
    /// Number N of the scenario
    #[arg(short, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: u32,
    /// Payload size in bytes, 16 or more
    #[arg(long, value_name = "BYTES", default_value_t = 1_024,
        value_parser = clap::value_parser!(u32).range(16..=100_000_000))]
    size: u32,
    /// Quality of Service of publishers and subscriptions
    #[arg(short, long, value_parser = parse_qos, default_value = "0")]
    qos: QoS,
    /// Keep the subscribers' sessions when their connections end, so that the broker stores each
    /// message until it is acknowledged. With MQTT 5 the sessions end a minute later, with MQTT 3
    /// they stay
    #[arg(long)]
    persistent: bool,
    /// Messages published per second by all publishers together [default: as many as the broker can
    /// handle]
    #[arg(long, value_name = "MESSAGES")]
    rate: Option<u32>,
    /// Find the highest rate without loss and with a p99 below 500 ms, accurate to 5 %; takes about
    /// eight measurements
    #[arg(long, conflicts_with = "rate")]
    find_max: bool,
    /// Messages of each publisher in flight at once, without --rate
    #[arg(long, value_name = "MESSAGES", default_value_t = 20)]
    window: u32,
    /// How long to measure, after one second to warm up: seconds, or 500ms, 5m
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = span::parse_some)]
    duration: Duration,
    /// MQTT version: 5, 311 or 31
    #[arg(short = 'V', long = "protocol-version", alias = "version", value_name = "VERSION",
        value_parser = parse_version, default_value = "5")]
    version: Version,
    /// Process id of a broker on this machine, to report its CPU time and memory; several, separated by
    /// commas, count together
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    /// Another broker of the same cluster, HOST:PORT, to which the subscribers connect
    #[arg(long, value_name = "ADDR")]
    subscribers: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (scenario, options) = match &args.scenario {
        Command::Pairs(options) => (Scenario::Pairs, options),
        Command::Fanout(options) => (Scenario::Fanout, options),
        Command::Fanin(options) => (Scenario::Fanin, options),
        Command::Connections(options) => (Scenario::Connections, options),
        Command::State(options) => return state::run(options),
        Command::Amqp(options) => return amqp::run(options),
        Command::Relay(args) => return relay::run(args).map(|()| ExitCode::SUCCESS),
    };
    if options.find_max && scenario == Scenario::Connections {
        bail!("--find-max is for the other scenarios: idle connections have no rate");
    }
    let mut target = Target::new(&options.broker, Protocol::Mqtt(options.version))?;
    if let Some(address) = &options.subscribers {
        target.set_subscribers(address)?;
    }
    let plan = Plan::new(scenario, options.n);
    if let Some(limit) = Descriptors::raise().limit()
        && (plan.clients.len() as u64) + 32 > limit
    {
        bail!(
            "{} connections need more open files than {limit}; see `ulimit -n`",
            plan.clients.len()
        );
    }
    let process = Process::all(&options.pid)?;

    let report = if options.find_max {
        let (options, setup, traffic) = usable::find(options, &plan, process.as_ref(), &target)?;
        Report { scenario, options, setup, traffic: Some(traffic) }
    } else {
        let mut engine = Engine::new(options, &plan, process)?;
        let setup = engine.connect(&target)?;
        let traffic = match scenario {
            Scenario::Connections => None,
            _ => Some(engine.measure()?),
        };
        Report { scenario, options: (**options).clone(), setup, traffic }
    };
    print(if options.json { format!("{}\n", report.json()) } else { report.table() })?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
