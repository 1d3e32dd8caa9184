//! `barid bench state`: measures the state store of a broker.

mod requester;

use std::net::SocketAddr;
use std::process::ExitCode;

use super::load::{self, Shape};
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
    /// The broker's host
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The broker's port (MQTT over TCP)
    #[arg(short, long, default_value_t = 1883)]
    pub port: u16,
    /// User name
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,
    /// Password
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        env = "BARID_PASSWORD",
        hide_env_values = true
    )]
    pw: Option<String>,
}

/// Measures the broker at `address`.
pub fn run(options: &Options, address: SocketAddr) -> anyhow::Result<ExitCode> {
    let report = load::measure(&options.shape, address, |index| Requester::new(options, index))?;
    Ok(report.print("state"))
}
