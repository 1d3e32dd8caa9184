//! `barid auth`: the back ends of users.

mod init_mysql;

use std::process::ExitCode;

use clap::Subcommand;

/// Prepare the databases of users
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid auth init-mysql --print                           show the table
  barid auth init-mysql --url-file /etc/barid/mysql.url   create the table")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the table of users in MySQL or MariaDB
    InitMysql(init_mysql::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::InitMysql(args) => init_mysql::run(args),
    }
}
