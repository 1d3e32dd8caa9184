//! `barid bench state`: measures the state store of a broker.

mod requester;

use std::process::ExitCode;

use mio::Registry;
use mqtt_proto::Version;

use super::load::{self, Shape};
use super::target::Target;
use crate::client::{BrokerArgs, Protocol};
use requester::Requester;

/// Options of `barid bench state`
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct Options {
    #[command(flatten)]
    shape: Shape,
    /// Send only the properties that a request must have, instead of all that the SDKs of Azure IoT
    /// Operations send
    #[arg(long)]
    plain: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    broker: BrokerArgs,
}

/// Measures the broker that the options name.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let target = Target::new(&options.broker, Protocol::Mqtt(Version::V5))?;
    let begin = |registry: &Registry, index| target.begin(registry, index);
    let dialogue = |index| Requester::new(options, &target, index);
    let report = load::measure(&options.shape, begin, dialogue, |error| target.unreachable(error))?;
    report.print("state")
}
