//! `barid`: the broker and its tools in one program.

// All printing goes through `output`: a closed reader, such as `head`, must not cause a panic.
#![warn(clippy::print_stdout)]

mod admin;
mod auth;
mod backup;
mod ban;
mod bench;
mod binding;
mod check_config;
mod client;
mod clients;
mod cluster;
mod completions;
mod config;
mod doctor;
mod entity;
mod events;
mod limit;
mod man;
mod migrate;
mod output;
mod passwd;
mod plural;
mod progress;
mod publish;
mod queue;
mod receivers;
mod restore;
mod retained;
mod rights;
mod serve;
mod session;
mod shard;
mod span;
mod state;
mod stored;
mod subscribe;
mod tenant;
mod timestamp;
mod token;
mod topic;
mod trace;
mod user;
mod why;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

// Message payloads are allocated by one thread and freed by another. The allocator of the C library takes a
// lock for that and never returns the memory; this one does neither.
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

For details of a command use its --help.";

#[derive(Subcommand)]
enum Command {
    /// Run the broker
    Serve(Box<serve::Args>),
    /// Check a configuration file
    CheckConfig(check_config::Args),
    /// Hash a password for the configuration file
    Passwd(passwd::Args),
    /// Write a configuration from the files of another broker
    Migrate(migrate::Args),
    /// Prepare the databases of users
    Auth(auth::Args),
    /// Publish messages, in the manner of mosquitto_pub
    Pub(Box<publish::Args>),
    /// Subscribe to topics and print messages, in the manner of mosquitto_sub
    Sub(Box<subscribe::Args>),
    /// Use the state store of a broker: keys and values, watched and locked
    State(state::Args),
    /// Add, change and remove users while the broker runs
    User(user::Args),
    /// List tenants, and change their limits and rules while the broker runs
    Tenant(tenant::Args),
    /// Ban users, clients and addresses while the broker runs
    Ban(ban::Args),
    /// Create and revoke tokens of the admin API
    Token(token::Args),
    /// Create, change and inspect the queues of a running broker
    Queue(queue::Args),
    /// Create and change the topics of a running broker, their subscriptions and rules
    Topic(topic::Args),
    /// Forward MQTT messages to queues and topics, and publish messages of queues to MQTT clients
    Binding(binding::Args),
    /// Measure a broker
    Bench(bench::Args),
    /// List the clients that are connected to a running broker, trace and disconnect them
    Client(clients::Args),
    /// Show who receives the messages of a topic
    Receivers(receivers::Args),
    /// List, show and remove the retained messages of a running broker
    Retained(retained::Args),
    /// List and end the sessions of a running broker
    Session(session::Args),
    /// Find out why a client did not get a message
    Why(why::Args),
    /// Show the packets of a client as they pass
    Trace(trace::Args),
    /// Show what happens in a running broker
    Events(events::Args),
    /// Show the cluster that a running broker belongs to, move its slots, or begin a new one
    Cluster(cluster::Args),
    /// List, close and open the shards of a running broker
    Shard(shard::Args),
    /// Back up a running broker
    Backup(backup::Args),
    /// Create a data directory from a backup
    Restore(restore::Args),
    /// Check a data directory, and salvage a damaged one
    Doctor(doctor::Args),
    /// Print a shell script that completes the commands and options of barid
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(Cli { command }) => command,
        Err(error) => explained(error).exit(),
    };
    let outcome = match command {
        Command::Serve(args) => serve::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Passwd(args) => passwd::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Auth(args) => auth::run(&args),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args),
        Command::State(args) => state::run(&args),
        Command::User(args) => user::run(&args),
        Command::Tenant(args) => tenant::run(&args),
        Command::Ban(args) => ban::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Topic(args) => topic::run(&args),
        Command::Binding(args) => binding::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Client(args) => clients::run(&args),
        Command::Receivers(args) => receivers::run(&args),
        Command::Retained(args) => retained::run(&args),
        Command::Session(args) => session::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Shard(args) => shard::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("barid: {error:#}");
        client::exit_code(&error)
    })
}

/// Adds advice to a usage error of clap: `-h` without a value, where it takes the host, names the option for
/// help.
fn explained(mut error: clap::Error) -> clap::Error {
    let is_host = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(name)) if name.starts_with("--host")
    );
    let has_no_value = matches!(
        error.get(ContextKind::InvalidValue),
        Some(ContextValue::String(value)) if value.is_empty()
    );
    if error.kind() == ErrorKind::InvalidValue && is_host && has_no_value {
        let tip = "here -h takes the host of the broker, as in mosquitto_pub; --help prints help";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::parser::ValueSource;

    use super::*;

    #[test]
    fn all_flags_fit_together() {
        Cli::command().debug_assert();
    }

    /// Calls `visit` for each command without subcommands, with its words on the command line.
    fn each_command(
        command: &clap::Command,
        words: &str,
        visit: &mut impl FnMut(&str, &clap::Command),
    ) {
        if !command.has_subcommands() {
            visit(words, command);
        }
        for below in command.get_subcommands() {
            each_command(below, &format!("{words} {}", below.get_name()), visit);
        }
    }

    fn all_commands(mut visit: impl FnMut(&str, &clap::Command)) {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        each_command(&command, "barid", &mut visit);
    }

    #[test]
    fn short_h_is_the_host_where_there_is_one_and_else_help() {
        let mut with_host = Vec::new();
        all_commands(|words, command| {
            let short = |name: &str| {
                let argument = command.get_arguments().find(|argument| argument.get_id() == name);
                argument.map(|argument| argument.get_short())
            };
            match (short("host"), short("help")) {
                (Some(host), Some(help)) => {
                    assert_eq!((host, help), (Some('h'), None), "{words}");
                    with_host.push(words.to_owned());
                }
                (None, Some(help)) => assert_eq!(help, Some('h'), "{words}"),
                (_, None) => panic!("{words} has no --help"),
            }
        });
        for words in
            ["barid pub", "barid sub", "barid state get", "barid bench pairs", "barid bench amqp"]
        {
            assert!(with_host.iter().any(|with| with == words), "{words}");
        }
    }

    #[test]
    fn who_wants_help_with_short_h_is_told_how() {
        let Err(error) = Cli::try_parse_from(["barid", "pub", "-h"]) else {
            panic!("-h has no value")
        };
        let text = explained(error).to_string();
        assert!(text.contains("--help prints help"), "{text}");
    }

    #[test]
    fn every_span_of_time_is_read_in_the_same_way() {
        let mut spans = 0;
        all_commands(|words, command| {
            for argument in command.get_arguments() {
                let names: Vec<_> = argument
                    .get_value_names()
                    .unwrap_or_default()
                    .iter()
                    .map(|name| name.as_str())
                    .collect();
                assert!(
                    !names.contains(&"SECONDS"),
                    "{words} {}: a span is called TIME",
                    argument.get_id()
                );
                if names != ["TIME"] {
                    continue;
                }
                spans += 1;
                let flag = format!("--{}", argument.get_long().expect("a span has a long name"));
                for text in ["2", "2s", "2000ms"] {
                    // Other missing arguments do not matter.
                    let lenient = command.clone().ignore_errors(true);
                    let matches = lenient.try_get_matches_from(["barid", &flag, text]);
                    let source = matches
                        .expect("errors are ignored")
                        .value_source(argument.get_id().as_str());
                    assert_eq!(source, Some(ValueSource::CommandLine), "{words} {flag} {text}");
                }
            }
        });
        assert!(spans > 20, "{spans}");
    }
}
