//! `barid tenant`: tenants, and the settings that they get while the broker runs.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use barid_engine::limits::Limits;
use barid_engine::names::check_tenant_name;
use barid_engine::rights::{Rights, Rule};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{Admin, Column, Output, Table, encode, printable, span};
use crate::entity::{Confirmation, MORE, Paging, confirm, missing, not_answered, pages};
use crate::limit;
use crate::output::print;
use crate::plural::count;
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
    /// Show one tenant, its settings, and its limits with what is used of them
    Show(Show),
    /// Set limits, rules and back ends of a tenant
    Set(Box<Set>),
    /// Remove the settings of a tenant; its users, sessions and messages stay
    Remove(Remove),
}

#[derive(clap::Args)]
#[command(after_help = "\
LIMIT lists the limits that are not at their default, that the settings name, or of which something is used.
USED is - for rates, and for limits of each client or user. REFUSED counts refusals since the broker started.
WAITED is the time for which connections had to wait, all together; - for limits that only refuse.
--json has all limits.

Examples:
  barid tenant show acme
  barid tenant show acme --json | jq .limits_in_force.max_connections")]
struct Show {
    #[command(flatten)]
    one: One,
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
SETTINGS says whether a tenant has settings that were made while the broker ran. In a cluster, sessions and connections are those at
all brokers.

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

Limits, which docs/operating/limits.md explains:
{}

Examples:
  barid tenant set acme --limit max_connections=500 --no-limit max_sessions
  barid tenant set acme --auth store,file
  barid tenant set acme --rules acme.json", rights::RULES_HELP, limit::names()))]
struct Set {
    #[command(flatten)]
    one: One,
    /// Set a limit, as in [limits] of the configuration; KEY=default is --no-limit KEY
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = limit::parse)]
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
    /// All limits, by key. Lists do not have them.
    #[serde(default)]
    limits_in_force: Map<String, Value>,
    #[serde(default)]
    quotas: BTreeMap<String, Quota>,
    /// Reason why the broker cannot read the settings.
    problem: Option<String>,
    /// The brokers of a cluster whose part is missing.
    #[serde(default)]
    not_answered: Vec<String>,
}

/// A limit, with what is used of it, and the refusals and waits that it has caused.
#[derive(Deserialize)]
struct Quota {
    limit: u64,
    used: Option<u64>,
    refused: u64,
    throttled_seconds: Option<f64>,
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
        Command::Show(Show { one }) => {
            let (admin, path) = one.connect();
            let answer = admin.get(&path)?;
            // The answer has the problem if nobody can log in.
            let back_ends = admin.back_ends(&one.tenant);
            one.told(&admin, answer, |tenant| described(tenant, back_ends.as_deref()))
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
    text += &missing(&not_answered(&answer));
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn set(args: &Set) -> anyhow::Result<ExitCode> {
    let body = args.body()?;
    if body.is_empty() {
        bail!("nothing to set: name a limit, a back end or rules; --help lists the options");
    }
    let (admin, path) = args.one.connect();
    let said = changed(&body);
    let answer = admin.change(&path, &body.into())?;
    args.one.told(&admin, answer, |tenant| {
        let problem = tenant.problem.as_deref().map(told).unwrap_or_default();
        format!("changed {}: {said}\n{problem}", printable(&tenant.name))
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
        limit::insert(&mut body, removed.chain(self.limits.iter().cloned()));
        if self.no_auth {
            body.insert("auth".into(), Value::Null);
        } else if !self.auth.is_empty() {
            body.insert("auth".into(), self.auth.clone().into());
        }
        Ok(body)
    }
}

/// Says what a request changes.
fn changed(body: &Map<String, Value>) -> String {
    let mut parts = Vec::new();
    for (key, value) in body.get("limits").and_then(Value::as_object).into_iter().flatten() {
        parts.push(match value {
            Value::Null => format!("{} is that of the configuration", printable(key)),
            value => format!("{} is {}", printable(key), printable(&limit::shown(value))),
        });
    }
    match body.get("auth") {
        None => {}
        Some(Value::Array(names)) => {
            let names: Vec<_> = names.iter().map(limit::shown).collect();
            parts.push(format!("its back ends are {}", printable(&names.join(", then "))));
        }
        Some(_) => parts.push("its back ends are those of the configuration".into()),
    }
    match body.get("rules") {
        None => {}
        Some(Value::Array(rules)) if !rules.is_empty() => {
            parts.push(format!("it has {}", count(rules.len() as u64, "rule", "rules")));
        }
        Some(_) => parts.push("it has no rules".into()),
    }
    parts.join(", ")
}

fn described(tenant: &Tenant, back_ends: Option<&[String]>) -> String {
    let mut text = String::new();
    for (name, value) in [
        ("tenant", printable(&tenant.name).into_owned()),
        ("sessions", tenant.sessions.to_string()),
        ("connections", tenant.connections.to_string()),
        ("retained", tenant.retained_messages.to_string()),
    ] {
        text += &format!("{name:<11} {value}\n");
    }
    if let Some(back_ends) = back_ends {
        let shown = match back_ends {
            [] => "any client may connect".into(),
            _ => printable(&back_ends.join(", ")).into_owned(),
        };
        text += &format!("{:<11} {shown}\n", "logins");
    }
    text += &settings(tenant);
    let limits = limits(tenant);
    if !limits.is_empty() {
        text += &format!("\n{limits}");
    }
    text + &missing(&tenant.not_answered)
}

/// Tells a problem of the settings.
fn told(problem: &str) -> String {
    format!("nobody can log in to it: {}\n", printable(problem))
}

/// Returns the limits that are not at their default, that the settings name, or of which something is used.
fn limits(tenant: &Tenant) -> Table<5> {
    let defaults = serde_json::to_value(Limits::default()).expect("limits have text for keys");
    let named = tenant.settings.as_ref().map(|settings| &settings.limits);
    let mut keys: Vec<_> = tenant.limits_in_force.keys().chain(tenant.quotas.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut table = Table::new([
        Column::Left("LIMIT"),
        Column::Right("VALUE"),
        Column::Right("USED"),
        Column::Right("REFUSED"),
        Column::Right("WAITED"),
    ]);
    for key in keys {
        let (value, quota) = (tenant.limits_in_force.get(key), tenant.quotas.get(key));
        let is_set = named.is_some_and(|named| named.contains_key(key))
            || value.is_some_and(|value| Some(value) != defaults.get(key));
        if !is_set && !quota.is_some_and(Quota::is_used) {
            continue;
        }
        let value = match (value, quota) {
            (Some(value), _) => limit::shown(value),
            (None, quota) => number(quota.map(|quota| quota.limit)),
        };
        let waited = quota.and_then(|quota| quota.throttled_seconds).map(waited);
        table.push([
            key.clone(),
            value,
            number(quota.and_then(|quota| quota.used)),
            number(quota.map(|quota| quota.refused)),
            waited.unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

impl Quota {
    fn is_used(&self) -> bool {
        let waited = self.throttled_seconds.is_some_and(|seconds| seconds > 0.0);
        self.used.is_some_and(|used| used > 0) || self.refused > 0 || waited
    }
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

/// Formats a time for which connections waited. Short waits have decimals: even they are felt.
fn waited(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 60.0 {
        return format!("{seconds:.1}s");
    }
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn settings(tenant: &Tenant) -> String {
    if let Some(problem) = &tenant.problem {
        return told(problem);
    }
    let Some(Settings { rules, auth, .. }) = &tenant.settings else {
        return "no settings: the configuration decides\n".into();
    };
    let mut text = String::new();
    if let Some(auth) = auth {
        text += &format!("{:<11} {}\n", "auth", printable(&auth.join(", ")));
    }
    if !rules.is_empty() {
        let rights = Rights { rules: rules.clone(), ..Rights::default() };
        text += &format!("\n{}", rights::table(&rights));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tenant_is_described() {
        let tenant: Tenant = serde_json::from_str(
            r#"{"name":"acme","sessions":1,"connections":2,"retained_messages":3,"has_settings":true,
                "settings":{"rules":[{"deny":"all"}],"auth":["store","file"],"limits":{"max_qos":2}},
                "limits_in_force":{"max_qos":2,"max_sessions":1000000,"publish_rate":10,"receive_maximum":65535,
                                   "max_queued_messages":10000,"queue_overflow":"reject"},
                "quotas":{"max_sessions":{"limit":1000000,"used":1,"refused":0,"throttled_seconds":null},
                          "publish_rate":{"limit":10,"used":null,"refused":0,"throttled_seconds":2.5},
                          "max_queued_messages":{"limit":10000,"used":null,"refused":0,"throttled_seconds":null},
                          "user_publish_rate":{"limit":0,"used":null,"refused":7,"throttled_seconds":90.0}}}"#,
        )
        .unwrap();
        let text = described(&tenant, Some(&["file".into(), "store".into()]));
        for line in ["connections 2\n", "auth        store, file\n", "deny  all      everything\n"]
        {
            assert!(text.contains(line), "{text}");
        }
        let (_, table) = text.split_once("\nLIMIT").expect("there is a table of limits");
        let rows: Vec<_> = table.lines().skip(1).map(str::split_whitespace).collect();
        let rows: Vec<Vec<_>> = rows.into_iter().map(Iterator::collect).collect();
        assert_eq!(
            rows,
            [
                ["max_qos", "2", "-", "-", "-"],
                ["max_sessions", "1000000", "1", "0", "-"],
                ["publish_rate", "10", "-", "0", "2.5s"],
                ["queue_overflow", "reject", "-", "-", "-"],
                ["user_publish_rate", "0", "-", "7", "1m"],
            ],
        );
    }

    #[test]
    fn a_change_is_one_sentence() {
        let changed = |body: Value| changed(body.as_object().unwrap());
        let limits =
            json!({"limits": {"max_qos": 1, "queue_overflow": "reject", "max_sessions": null}});
        assert_eq!(
            changed(limits),
            "max_qos is 1, max_sessions is that of the configuration, queue_overflow is reject"
        );
        assert_eq!(
            changed(json!({"auth": ["store", "file"], "rules": [{"allow": "all"}]})),
            "its back ends are store, then file, it has 1 rule"
        );
        assert_eq!(
            changed(json!({"auth": null, "rules": null})),
            "its back ends are those of the configuration, it has no rules"
        );
    }
}
