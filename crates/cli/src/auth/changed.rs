//! `barid auth changed`: users that have changed where the broker does not see it.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use crate::admin::{AdminArgs, printable};
use crate::output::print;

/// Say that users have changed where the broker does not see it
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("changed").required(true),
    after_help = "\
After a change in a database or service, the broker gives up what it remembers of these users, asks the back
end again, and disconnects clients that may not stay. Brokers that share a cache in Redis are told as well.
A client whose token, certificate or service cannot be asked again has to log in again if it is named here;
with --tenant and --all it stays.

Examples:
  barid auth changed acme/ada
  barid auth changed --tenant acme
  barid auth changed --all"
)]
pub struct Args {
    /// User, by {tenant}/{client}, or {client} for the tenant `default`
    #[arg(group = "changed", value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// All users of a tenant
    #[arg(long, group = "changed", value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    /// All users
    #[arg(long, group = "changed")]
    all: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the broker's answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (body, who): (Value, String) = match (&args.user, &args.tenant) {
        (Some(user), _) => (json!({ "user": user }), printable(user).to_string()),
        (_, Some(tenant)) => {
            (json!({ "tenant": tenant }), format!("the users of {}", printable(tenant)))
        }
        _ => (json!({ "all": true }), "all users".to_owned()),
    };
    let answer = args.admin.connect().post("/v1/logins/changed", &body)?;
    print(if args.json { format!("{answer}\n") } else { format!("{who}: asked again\n") })?;
    Ok(ExitCode::SUCCESS)
}
