//! `barid migrate`: configurations from the files of other brokers.

mod acl;
mod conf;
mod document;
mod limits;
mod listeners;
mod mosquitto;
mod notes;
mod options;
mod passwords;
mod security;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

/// Write a configuration from the files of another broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid migrate mosquitto --conf /etc/mosquitto/mosquitto.conf --output barid.toml")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Read mosquitto.conf, and its password and ACL files
    Mosquitto(mosquitto::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Mosquitto(args) => mosquitto::run(args),
    }
}
