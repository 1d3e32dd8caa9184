//! `barid`: the broker and its tools in one program.

mod admin;
mod backup;
mod bench;
mod binding;
mod check_config;
mod client;
mod config;
mod doctor;
mod entity;
mod output;
mod passwd;
mod progress;
mod publish;
mod queue;
mod restore;
mod serve;
mod session;
mod state;
mod stored;
mod subscribe;
mod timestamp;
mod topic;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// Message payloads are allocated by one thread and freed by another, all day long. The allocator of
// the C library takes a lock for that and keeps what it once had; this one does neither.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An MQTT broker, and tools to talk to any MQTT broker
#[derive(Parser)]
#[command(name = "barid", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  barid serve                               a broker on 127.0.0.1:1883
  barid sub -t 'sensors/#' -v               print what arrives
  barid pub -t sensors/kitchen -m 21.5      publish one message
  barid state set config/rate 20            set a key of the state store
  barid queue create orders                 a queue for clients of Service Bus
  barid why --client kitchen                where its messages went
  barid bench pairs -n 50 --rate 10000      measure a broker

Each command tells more with --help.";

#[derive(Subcommand)]
enum Command {
    /// Run the broker
    Serve(Box<serve::Args>),
    /// Check a configuration file
    CheckConfig(check_config::Args),
    /// Hash a password for the configuration file
    Passwd(passwd::Args),
    /// Publish messages, in the manner of mosquitto_pub
    Pub(Box<publish::Args>),
    /// Subscribe to topics and print messages, in the manner of mosquitto_sub
    Sub(Box<subscribe::Args>),
    /// Use the state store of a broker: keys and values, watched and locked
    State(state::Args),
    /// Make, change and look into the queues of a running broker
    Queue(queue::Args),
    /// Make and change the topics of a running broker, their subscriptions and rules
    Topic(topic::Args),
    /// Send what MQTT clients publish into queues, and publish what queues have
    Binding(binding::Args),
    /// Measure a broker
    Bench(bench::Args),
    /// See and end the sessions of a running broker
    Session(session::Args),
    /// Find out why a client did not get a message
    Why(why::Args),
    /// Back up a running broker
    Backup(backup::Args),
    /// Make a data directory of a backup
    Restore(restore::Args),
    /// Check a data directory
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::CheckConfig(args) => Ok(check_config::run(&args)),
        Command::Passwd(args) => passwd::run(&args),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args),
        Command::State(args) => state::run(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Topic(args) => topic::run(&args),
        Command::Binding(args) => binding::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Session(args) => session::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("barid: {error:#}");
        client::exit_code(&error)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn all_flags_fit_together() {
        super::Cli::command().debug_assert();
    }
}
