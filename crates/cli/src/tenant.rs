//! `barid tenant`: tenants, and the settings that they get while the broker runs.

use std::process::ExitCode;

use anyhow::bail;
use barid_engine::names::check_tenant_name;
use barid_engine::rights::{Rights, Rule};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{Admin, Column, Output, Table, encode, printable};
use crate::entity::{Confirmation, MORE, Paging, confirm, pages};
use crate::output::print;
use crate::rights::{self, RuleArgs};

/// List tenants, and change their limits and rules while the broker runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid tenant list
  barid tenant set acme --limit max_connections=500 --limit max_qos=1
  barid tenant set acme --deny publish:config/# --allow all
  barid tenant show acme
  barid tenant remove acme --yes                  remove its settings; its users and sessions stay

A tenant needs no settings: it exists as soon as one of its clients connects. Limits that are set here are
used instead of those in the configuration.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the tenants
    List(List),
    /// Show one tenant and its settings
    Show(One),
    /// Set limits, rules and back ends of a tenant
    Set(Box<Set>),
    /// Remove the settings of a tenant; its users, sessions and messages stay
    Remove(Remove),
}

/// Name of one tenant.
#[derive(clap::Args)]
struct One {
    /// Name of the tenant
    #[arg(value_name = "TENANT", value_parser = tenant_name)]
    tenant: String,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
SETTINGS says whether a tenant has settings that were made while the broker ran.

Examples:
  barid tenant list --limit 1000
  barid tenant list --json | jq -r '.tenants[] | select(.connections > 100).name'")]
struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = format!("\
What is not named stays. --allow and --deny replace all rules of the tenant. They are for all of its users, and
come after the rules of the user.

{}

Examples:
  barid tenant set acme --limit max_connections=500 --no-limit max_sessions
  barid tenant set acme --auth store,file
  barid tenant set acme --rules acme.json", rights::RULES_HELP))]
struct Set {
    #[command(flatten)]
    one: One,
    /// Set a limit, as in [limits] of the configuration
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = limit)]
    limits: Vec<(String, Value)>,
    /// Remove a limit, so that the configuration decides
    #[arg(long = "no-limit", value_name = "KEY")]
    no_limits: Vec<String>,
    /// Back ends that are asked for the tenant's users, in this order
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    auth: Vec<String>,
    /// Ask the back ends of the configuration
    #[arg(long, conflicts_with = "auth")]
    no_auth: bool,
    #[command(flatten)]
    rules: RuleArgs,
    /// Remove all rules of the tenant
    #[arg(long, conflicts_with_all = ["allow", "deny", "rules"])]
    no_rules: bool,
}

#[derive(clap::Args)]
struct Remove {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// A tenant as the broker reports it.
#[derive(Deserialize)]
struct Tenant {
    name: String,
    sessions: u64,
    connections: u64,
    retained_messages: u64,
    has_settings: bool,
    settings: Option<Settings>,
    /// Reason why the broker cannot read the settings.
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    rules: Vec<Rule>,
    auth: Option<Vec<String>>,
    #[serde(default)]
    limits: Map<String, Value>,
}

fn tenant_name(text: &str) -> Result<String, String> {
    check_tenant_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads `max_qos=1`. A value that is not JSON is a text.
fn limit(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok((key.to_owned(), value))
        }
        _ => Err("a limit is KEY=VALUE, such as max_connections=500".into()),
    }
}

impl One {
    fn connect(&self) -> (Admin, String) {
        (self.output.admin.connect(), format!("/v1/tenants/{}", encode(&self.tenant)))
    }

    fn told(
        &self,
        admin: &Admin,
        answer: Value,
        text: impl FnOnce(&Tenant) -> String,
    ) -> anyhow::Result<ExitCode> {
        let json = self.output.json;
        print(if json { format!("{answer}\n") } else { text(&admin.read(answer)?) })?;
        Ok(ExitCode::SUCCESS)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(one) => {
            let (admin, path) = one.connect();
            one.told(&admin, admin.get(&path)?, described)
        }
        Command::Set(args) => set(args),
        Command::Remove(Remove { one, confirmation }) => {
            let (admin, path) = one.connect();
            let before = admin.get(&path)?;
            confirm(confirmation, &format!("remove the settings of {}", printable(&one.tenant)))?;
            admin.delete(&path)?;
            one.told(&admin, before, |tenant| {
                format!("removed the settings of {}\n", printable(&tenant.name))
            })
        }
    }
}

fn list(List { paging, output }: &List) -> anyhow::Result<ExitCode> {
    let admin = output.admin.connect();
    let mut answer = pages(&admin, "/v1/tenants", "tenants", paging)?;
    if output.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        Column::Left("TENANT"),
        Column::Right("SESSIONS"),
        Column::Right("CONNECTIONS"),
        Column::Right("RETAINED"),
        Column::Left("SETTINGS"),
    ]);
    for tenant in admin.read::<Vec<Tenant>>(answer["tenants"].take())? {
        table.push([
            tenant.name,
            tenant.sessions.to_string(),
            tenant.connections.to_string(),
            tenant.retained_messages.to_string(),
            if tenant.has_settings { "yes".into() } else { "-".into() },
        ]);
    }
    let mut text = table.to_string();
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn set(args: &Set) -> anyhow::Result<ExitCode> {
    let body = args.body()?;
    if body.is_empty() {
        bail!("nothing to set: name a limit, a back end or rules; --help lists the options");
    }
    let (admin, path) = args.one.connect();
    let answer = admin.change(&path, &body.into())?;
    args.one.told(&admin, answer, |tenant| {
        format!("set the settings of {}\n{}", printable(&tenant.name), settings(tenant))
    })
}

impl Set {
    fn body(&self) -> anyhow::Result<Map<String, Value>> {
        let mut body = self.rules.members()?;
        if let Some(member) = body.keys().find(|member| *member != "rules") {
            bail!("a tenant has `rules`, and no `{member}`, which is a right of a user");
        }
        if self.no_rules {
            body.insert("rules".into(), Value::Null);
        }
        let removed = self.no_limits.iter().map(|key| (key.clone(), Value::Null));
        let limits: Map<_, _> = removed.chain(self.limits.iter().cloned()).collect();
        if !limits.is_empty() {
            body.insert("limits".into(), limits.into());
        }
        if self.no_auth {
            body.insert("auth".into(), Value::Null);
        } else if !self.auth.is_empty() {
            body.insert("auth".into(), self.auth.clone().into());
        }
        Ok(body)
    }
}

fn described(tenant: &Tenant) -> String {
    let mut text = String::new();
    for (name, value) in [
        ("tenant", printable(&tenant.name).into_owned()),
        ("sessions", tenant.sessions.to_string()),
        ("connections", tenant.connections.to_string()),
        ("retained", tenant.retained_messages.to_string()),
    ] {
        text += &format!("{name:<11} {value}\n");
    }
    text + &settings(tenant)
}

fn settings(tenant: &Tenant) -> String {
    if let Some(problem) = &tenant.problem {
        return format!("its settings cannot be read: {}\n", printable(problem));
    }
    let Some(Settings { rules, auth, limits }) = &tenant.settings else {
        return "no settings: the configuration decides\n".into();
    };
    let mut text = String::new();
    if let Some(auth) = auth {
        text += &format!("{:<11} {}\n", "auth", printable(&auth.join(", ")));
    }
    for (key, value) in limits {
        text += &format!("{:<11} {key} = {value}\n", "limit");
    }
    if !rules.is_empty() {
        let rights = Rights { rules: rules.clone(), ..Rights::default() };
        text += &format!("\n{}", rights::table(&rights));
    }
    if text.is_empty() { "its settings are empty\n".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_values_of_all_types() {
        assert_eq!(limit("max_qos=1"), Ok(("max_qos".into(), 1.into())));
        assert_eq!(limit("retain_available=false"), Ok(("retain_available".into(), false.into())));
        let overflow = limit("queue_overflow=drop-oldest").unwrap();
        assert_eq!(overflow.1, Value::from("drop-oldest"));
        for bad in ["max_qos", "=1", "max_qos="] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tenant_is_described() {
        let tenant: Tenant = serde_json::from_str(
            r#"{"name":"acme","sessions":1,"connections":2,"retained_messages":3,"has_settings":true,
                "settings":{"rules":[{"deny":"all"}],"auth":["store","file"],"limits":{"max_qos":1}}}"#,
        )
        .unwrap();
        let text = described(&tenant);
        for line in ["connections 2\n", "auth        store, file\n", "limit       max_qos = 1\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.ends_with("deny  all      everything\n"), "{text}");
    }
}
