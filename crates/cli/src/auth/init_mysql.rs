//! `barid auth init-mysql`: the default schema of the back end `mysql`.

use std::path::PathBuf;
use std::process::ExitCode;

use barid_auth::mysql::MysqlSettings;
use barid_auth::mysql::schema::{self, Created};

use crate::output::print;

/// Create the table of users in MySQL or MariaDB
#[derive(clap::Args)]
#[command(after_help = "\
Creates the table barid_users, which the back end `mysql` reads unless it has queries of its own. A table
that is there already is left as it is. The URL is mysql://user:password@host:port/database, and its user
needs the privilege CREATE here; the user of the broker needs SELECT only.

Examples:
  barid auth init-mysql --url-file /etc/barid/mysql.url
  barid auth init-mysql --print | mariadb users")]
pub struct Args {
    /// File that contains the URL of the database
    #[arg(long, value_name = "FILE", required_unless_present = "print")]
    url_file: Option<PathBuf>,
    /// Use TLS, with the authorities that the system trusts
    #[arg(long)]
    tls: bool,
    /// Use TLS, with the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print the statements, and execute nothing
    #[arg(long)]
    print: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.print {
        print(schema::SQL)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = MysqlSettings {
        url_file: args.url_file.clone(),
        tls: args.tls,
        ca_file: args.ca_file.clone(),
        ..MysqlSettings::default()
    };
    let done = match schema::create(&settings).map_err(anyhow::Error::msg)? {
        Created::Now => "created the table barid_users\n",
        Created::Before => "nothing to do: the table barid_users is there\n",
    };
    print(done)?;
    Ok(ExitCode::SUCCESS)
}
