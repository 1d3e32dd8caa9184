//! `barid bench state`: measures the state store of a broker.

mod requester;

use std::net::SocketAddr;
use std::process::ExitCode;

use super::load::{self, Shape};
use super::target::Target;
use requester::Requester;

/// What to measure
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    shape: Shape,
    /// Only those properties that a request must have; otherwise all that the SDKs of Azure IoT Operations
    /// send
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    pub target: Target,
}

/// Measures the broker at `address`.
pub fn run(options: &Options, address: SocketAddr) -> anyhow::Result<ExitCode> {
    let report = load::measure(&options.shape, address, |index| Requester::new(options, index))?;
    Ok(report.print("state"))
}
