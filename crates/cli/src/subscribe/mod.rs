//! `barid sub`: subscribes and prints messages, in the manner of mosquitto_sub.

mod format;
mod json;
mod subscriber;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mqtt_proto::{QoS, topic};

use crate::client::{ConnectArgs, parse_qos};
use crate::span;
use format::Format;

/// Subscribe to topics and print messages, in the manner of mosquitto_sub
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = after_help())]
pub struct Args {
    /// Topic filter to subscribe to; may be repeated
    #[arg(short, long, value_name = "FILTER", required_unless_present = "url")]
    topic: Vec<String>,
    /// Quality of Service: 0, 1 or 2
    #[arg(short, long, value_parser = parse_qos, default_value = "0")]
    qos: QoS,
    /// Print the topic before the payload
    #[arg(short, long)]
    verbose: bool,
    /// Print messages in this format; see below
    #[arg(short = 'F', long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<String>,
    /// Print a JSON object for each message
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
    /// Print no newline after a message
    #[arg(short = 'N')]
    no_eol: bool,
    /// Exit after this number of messages
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time, with status 27: seconds, or 500ms, 5m, 1h
    #[arg(short = 'W', long, value_name = "TIME", value_parser = span::parse_some)]
    timeout: Option<Duration>,
    /// Exit as soon as the broker has granted the subscriptions
    #[arg(short = 'E')]
    exit_after_subscribing: bool,
    /// Print no messages whose topics match this; may be repeated
    #[arg(short = 'T', long, value_name = "FILTER")]
    filter_out: Vec<String>,
    /// Unsubscribe from this filter first; may be repeated
    #[arg(short = 'U', long, value_name = "FILTER")]
    unsubscribe: Vec<String>,
    /// Print no retained messages
    #[arg(short = 'R', conflicts_with = "retained_only")]
    no_retained: bool,
    /// Print retained messages only, and exit at the first other message
    #[arg(long)]
    retained_only: bool,
    /// Remove each retained message that arrives
    #[arg(long)]
    remove_retained: bool,
    /// Receive the RETAIN flag as the publisher set it (MQTT 5)
    #[arg(long)]
    retain_as_published: bool,
    /// Do not receive what this client publishes (MQTT 5)
    #[arg(long)]
    no_local: bool,
    /// Exit when the connection is lost instead of connecting again
    #[arg(long)]
    no_reconnect: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

fn after_help() -> String {
    format!(
        "\
Fields of -F:
{}

Examples:
  barid sub -t 'sensors/#' -v
  barid sub -t sensors/kitchen -C 1 -W 5            one message, or status 27 after 5 s
  barid sub -t '$share/workers/jobs' -q 1 -c -i worker-1
  barid sub -t '#' -F '%I %t %q %l bytes'
  barid sub -t 'old/#' --remove-retained --retained-only -W 2

Exit status: 0 as asked for; 1 an error; 2 wrong usage; 3 the broker refused; 27 time is up.",
        format::FIELDS_HELP
    )
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = args.connect.target()?;
    let filters = if args.topic.is_empty() {
        vec![target.topic.clone().context("the URL has no topic; name one with -t")?]
    } else {
        args.topic.clone()
    };
    for (flag, filters) in [("-t", &filters), ("-T", &args.filter_out), ("-U", &args.unsubscribe)] {
        for filter in filters {
            topic::validate_filter(filter).with_context(|| format!("{flag} {filter}"))?;
        }
    }
    if !target.version.is_v5() && (args.no_local || args.retain_as_published) {
        bail!("--no-local and --retain-as-published need MQTT 5 (-V 5)");
    }
    let format = match &args.format {
        Some(text) => Format::parse(text)?,
        None if args.json => Format::json(),
        None => Format::plain(args.verbose),
    };
    subscriber::Subscriber::new(args, target, filters, format)?.run()
}
