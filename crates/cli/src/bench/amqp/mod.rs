//! `barid bench amqp`: measures the queues of a broker.

mod connection;
mod driver;
mod ledger;
mod receiver;
mod report;
mod sender;
mod template;
mod unsettled;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use barid_server::descriptors::Descriptors;
use clap::ValueEnum;

use super::target::Target;
use crate::client::{BrokerArgs, Protocol};
use crate::span;
use template::SIZE_MIN;

/// Key of the emulator's connection string. A broker without keys accepts it on loopback.
const EMULATOR_USER: &str = "RootManageSharedAccessKey";
const EMULATOR_KEY: &str = "SAS_KEY_VALUE";

/// Options of `barid bench amqp`
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Scenario to run
    #[arg(value_enum, default_value_t = Scenario::Live)]
    scenario: Scenario,
    /// Address of the queue, which must exist and be empty
    #[arg(long, value_name = "ADDRESS", default_value = "bench")]
    queue: String,
    /// The queue has no sessions; messages still carry session ids
    #[arg(long)]
    plain: bool,
    /// Number of session ids
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// Connections that send. Each uses its own sessions
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    senders: u32,
    /// Connections that receive
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    receivers: u32,
    /// Sessions that a receiver holds at once [default: enough to hold all sessions, at most 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrent: Option<u32>,
    /// Messages of a session that a receiver completes before it releases the session. It also releases
    /// a session without messages [default: 100 if there are more sessions than are held at once;
    /// otherwise sessions are kept]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u32).range(1..))]
    take: Option<u32>,
    /// Body size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_024,
        value_parser = clap::value_parser!(u32).range(SIZE_MIN..=10_000_000))]
    size: u32,
    /// Messages of each sender in flight from end to end, without --rate
    #[arg(long, value_name = "MESSAGES", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    window: u32,
    /// Messages sent per second by all senders together [default: as many as the broker can handle]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Link credit of a receiver, for each session it holds
    #[arg(long, value_name = "MESSAGES", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    credit: u32,
    /// Messages stored before the first is received, in `backlog`
    #[arg(long, value_name = "MESSAGES", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// In `accept` and `backlog`: store no messages first, use those of an earlier run
    #[arg(long)]
    no_store: bool,
    /// How long to measure, after one second to warm up: seconds, or 500ms, 5m; `accept` and `backlog`
    /// may end earlier
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = span::parse_some)]
    duration: Duration,
    /// Process id of a broker on this machine, to report its CPU time and memory; several, separated by
    /// commas, count together
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    broker: BrokerArgs,
}

/// Scenario to run.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Send, receive and complete at the same time
    Live,
    /// Store one message in every session first; then repeatedly accept the next session, complete its
    /// message, and close the session
    Accept,
    /// Store all messages first, then receive and complete them
    Backlog,
}

impl Scenario {
    /// Returns the name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Accept => "accept",
            Self::Backlog => "backlog",
        }
    }
}

impl Options {
    /// Returns the number of messages that are stored before any is received.
    fn stored_first(&self) -> u64 {
        match self.scenario {
            Scenario::Live => 0,
            _ if self.no_store => 0,
            Scenario::Accept => self.sessions.into(),
            Scenario::Backlog => self.messages.into(),
        }
    }

    /// Returns the number of links of a receiver.
    fn links(&self) -> u32 {
        match (self.scenario, self.concurrent) {
            _ if self.plain => 1,
            (Scenario::Accept, None) => 1,
            (_, Some(concurrent)) => concurrent,
            (_, None) => self.sessions.div_ceil(self.receivers).min(100),
        }
    }

    /// Returns the number of messages of a session that are completed before the session is released.
    fn taken(&self) -> Option<u32> {
        let is_short = self.links().saturating_mul(self.receivers) < self.sessions;
        match self.scenario {
            _ if self.plain => None,
            Scenario::Accept => Some(self.take.unwrap_or(1)),
            _ => self.take.or(is_short.then_some(100)),
        }
    }
}

/// Measures the broker that the options name.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let connections = u64::from(options.senders) + u64::from(options.receivers);
    if let Some(limit) = Descriptors::raise().limit()
        && connections + 32 > limit
    {
        bail!("{connections} connections need more open files than {limit}; see `ulimit -n`");
    }
    if options.senders > options.sessions {
        bail!("each sender needs its own session: --senders is greater than --sessions");
    }
    let mut target = Target::new(&options.broker, Protocol::Amqp)?;
    target.user.get_or_insert_with(|| EMULATOR_USER.into());
    target.password.get_or_insert_with(|| EMULATOR_KEY.into());
    driver::measure(options, &target)?.print()
}
