//! `barid check-config`: reports all problems of a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use barid_server::settings::Settings;
use serde_json::json;

use crate::config::{self, Overrides, validate};
use crate::output::print;
use crate::plural::count;

/// Check a configuration file
#[derive(clap::Args)]
#[command(after_help = "\
Checks the file as `barid serve --config FILE` reads it, but without environment variables.

Exit status: 0 the file is valid, 1 it is not.")]
pub struct Args {
    /// Configuration file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = config::load(Some(&args.file), &Overrides::default());
    let warnings = outcome
        .as_ref()
        .map_or(Vec::new(), |settings| config::warnings(Some(&args.file), settings));
    if args.json {
        let problems = outcome.as_ref().err().map_or(&[][..], |problems| &problems.0);
        let ok = outcome.is_ok();
        let found =
            json!({ "file": args.file, "ok": ok, "problems": problems, "warnings": warnings });
        print(format!("{found}\n"))?;
    } else {
        match &outcome {
            Ok(settings) => {
                print(format!("{}: ok\n{}\n", args.file.display(), summary(settings)))?;
                for warning in warnings {
                    print(format!("warning: {warning}\n"))?;
                }
            }
            Err(problems) => print(format!("{problems}\n"))?,
        }
    }
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says who may connect: a title and a line.
pub fn logins(settings: &Settings) -> (&'static str, String) {
    let auth = &settings.auth;
    let users = settings.users.len();
    let name = |name: &str| match name {
        "file" => format!("file ({})", count(users as u64, "user", "users")),
        _ if auth.redis.contains_key(name) => format!("{name} (mysql, cached in redis)"),
        _ if auth.mysql.contains_key(name) => format!("{name} (mysql)"),
        _ if auth.jwt.contains_key(name) => format!("{name} (jwt)"),
        _ if auth.http.contains_key(name) => format!("{name} (http)"),
        _ if auth.certificate.contains_key(name) => format!("{name} (certificate)"),
        _ => name.to_owned(),
    };
    let chain = match &auth.chain {
        Some(chain) => chain.iter().map(|one| name(one)).collect(),
        None if users == 0 => Vec::new(),
        None => vec![name("file"), name("store")],
    };
    if chain.is_empty() {
        return ("users", "none: anybody may connect, with any password".into());
    }
    ("logins", chain.join(", "))
}

fn summary(settings: &Settings) -> String {
    let mut lines: Vec<String> = validate::listeners(settings)
        .map(|(name, listener)| format!("  {name:<8} {}", listener.address))
        .collect();
    lines.push(format!("  {:<8} {}", "admin", settings.admin.address));
    lines.push(format!("  {:<8} {}", "data", settings.data_dir.display()));
    let (title, logins) = logins(settings);
    lines.push(format!("  {title:<8} {logins}"));
    let keys = match settings.keys.len() {
        0 => "none: on loopback the connection string of the emulator is valid".into(),
        n => n.to_string(),
    };
    lines.push(format!("  {:<8} {keys}", "keys"));
    let of_bindings = settings.bindings.iter().map(|binding| &*binding.name).collect();
    for (title, names) in [
        ("queues", settings.queues.iter().map(|queue| &*queue.name).collect::<Vec<_>>()),
        ("topics", settings.topics.iter().map(|topic| &*topic.name).collect()),
        ("bindings", of_bindings),
    ] {
        if !names.is_empty() {
            lines.push(format!("  {title:<8} {}", names.join(", ")));
        }
    }
    if !settings.tenants.is_empty() {
        let names: Vec<_> = settings.tenants.keys().map(String::as_str).collect();
        lines.push(format!("  {:<8} {}", "tenants", names.join(", ")));
    }
    lines.join("\n")
}
