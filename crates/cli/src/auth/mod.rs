//! `barid auth`: the back ends of users.

mod changed;
mod init_mysql;

use std::process::ExitCode;

use clap::Subcommand;

/// Databases and services that have the users
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid auth init-mysql --print                           show the table
  barid auth init-mysql --url-file /etc/barid/mysql.url   create the table
  barid auth changed acme/ada                             after a change in the database")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the table of users in MySQL or MariaDB
    InitMysql(init_mysql::Args),
    /// Say that users have changed where the broker does not see it
    Changed(changed::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::InitMysql(args) => init_mysql::run(args),
        Command::Changed(args) => changed::run(args),
    }
}
