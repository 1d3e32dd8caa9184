//! `barid user`: users in the broker's own store.

mod password;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use barid_engine::names::{check_user_name, full_name};
use barid_engine::rights::Rights;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{
    Admin, Column, Moment, Output, Present, Table, encode, now, of_tenant, printable, span,
};
use crate::entity::{Confirmation, MORE, Paging, confirm, pages};
use crate::limit;
use crate::output::print;
use crate::rights::{self, RuleArgs};
use password::{Made, PasswordArgs};

/// Add, change and remove users while the broker runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid user add acme/ada                         asks for a password
  barid user add acme/sensor-7 --random --allow publish:devices/%c/# > password.txt
  barid user set acme/sensor-7 --allow publish,subscribe:devices/%c/#
  barid user set acme/sensor-7 --limit publish_rate=10 --limit max_connections=1
  barid user disable acme/sensor-7                it may not log in, until it is enabled
  barid user usage acme/sensor-7                  what belongs to it, and its limits
  barid user list --tenant acme
  barid user remove acme/sensor-7 --yes

These users are in the broker's own store. Users in the configuration file are neither listed nor changed.
As soon as there has been one user, clients without a user are refused, even if all users are removed.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a user
    Add(Box<Add>),
    /// Change the password, the rights, the limits or the note of a user
    Set(Box<Set>),
    /// Show one user, its rights and its limits
    Show(One),
    /// Show what belongs to a user of any back end: sessions, waiting and retained messages, keys
    Usage(Usage),
    /// List users
    List(List),
    /// Remove a user
    Remove(Remove),
    /// Keep a user from logging in, and keep its password and rights
    Disable(One),
    /// Let a disabled user log in again
    Enable(One),
}

/// What the limits of a command line look like, for help texts.
const LIMITS_HELP: &str = "\
Limits are max_connections, connect_rate, publish_rate, inbound_bytes_rate, outbound_bytes_rate, max_sessions,
max_subscriptions, max_queued_bytes, max_retained_messages, max_retained_bytes, max_state_keys and
max_state_bytes. They are used instead of those that the tenant sets for each of its users. 0 is no limit.";

/// Name of one user.
#[derive(clap::Args)]
struct One {
    /// User name, {tenant}/{client}, or {client} for the tenant `default`
    #[arg(value_name = "USER", value_parser = user_name)]
    user: String,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = format!("\
Without --password-file, --random or --password-hash it asks for a password. --random prints the password to
standard output, alone on the last line; it is not stored, and cannot be shown again.

Without rules a user may do everything in its tenant that the rules of the tenant allow.

{}

{LIMITS_HELP}

Examples:
  barid user add acme/ada --deny publish:config/# --allow publish,subscribe:#
  barid user add acme/sensor-7 --random --json | jq -r .password
  barid user add acme/pump --password-file pump.txt --cost device --rules pump.json", rights::RULES_HELP))]
struct Add {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    rules: RuleArgs,
    /// Set a limit of this user, instead of that for every user of its tenant
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = limit::parse)]
    limits: Vec<(String, Value)>,
    /// A note for operators
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Do not let the user log in before `barid user enable`
    #[arg(long)]
    disabled: bool,
}

#[derive(clap::Args)]
#[command(after_help = format!("\
What is not named stays. --allow and --deny replace all rules of the user.

{}

{LIMITS_HELP} KEY=default removes a limit of the user.

Examples:
  barid user set acme/ada --new-password
  barid user set acme/ada --limit publish_rate=10 --limit connect_rate=default
  barid user set acme/sensor-7 --random
  barid user set acme/sensor-7 --no-rules --note 'moved to the pump house'", rights::RULES_HELP))]
struct Set {
    #[command(flatten)]
    one: One,
    /// Ask for a new password
    #[arg(long, conflicts_with_all = ["password_file", "random", "password_hash"])]
    new_password: bool,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    rules: RuleArgs,
    /// Remove all rules, so that the user may do everything that the rules of its tenant allow
    #[arg(long, conflicts_with_all = ["allow", "deny", "rules"])]
    no_rules: bool,
    /// Set a limit of this user, or remove it: publish_rate=default
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = limit::parse)]
    limits: Vec<(String, Value)>,
    /// A note for operators; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
RIGHTS says how many rules a user has; `barid user show` lists them.

Examples:
  barid user list
  barid user list --tenant acme --limit 1000
  barid user list --json | jq -r '.users[] | select(.disabled).user'")]
struct List {
    /// Only users of this tenant
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
A session belongs to the user who has opened it, a retained message or a key to the user who has set it last. What
was stored by a version before this one, or by a client without a user, belongs to nobody. A limit of `?` is not
known, because the user has not logged in since the broker started.

Examples:
  barid user usage acme/sensor-7
  barid user usage acme/sensor-7 --json | jq .quotas.max_user_queued_bytes.used")]
struct Usage {
    #[command(flatten)]
    one: One,
}

#[derive(clap::Args)]
struct Remove {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// A user as the broker reports it.
#[derive(Deserialize)]
struct User {
    user: String,
    #[serde(default)]
    disabled: bool,
    #[serde(flatten)]
    rights: Rights,
    note: Option<String>,
    created_at: Option<Moment>,
    /// Reason why the broker cannot read the user.
    problem: Option<String>,
}

/// A user as the broker sees it, whatever back end it is from.
#[derive(Deserialize)]
struct Seen {
    shadowed_by: Option<String>,
    quotas: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
struct Quantity {
    used: u64,
    limit: Option<u64>,
}

/// The back end of the users that this command adds.
const STORE: &str = "store";

/// Reads a user name in its full form.
fn user_name(text: &str) -> Result<String, String> {
    check_user_name(text)?;
    Ok(full_name(text))
}

impl One {
    fn connect(&self) -> (Admin, String) {
        let (tenant, client) = self.user.split_once('/').unwrap_or_default();
        (self.output.admin.connect(), format!("/v1/users/{}/{}", encode(tenant), encode(client)))
    }

    /// The path of the user as the broker sees it, whatever back end it is from.
    fn seen_at(&self) -> String {
        let (tenant, client) = self.user.split_once('/').unwrap_or_default();
        format!("/v1/tenants/{}/users/{}", encode(tenant), encode(client))
    }

    fn name(&self) -> String {
        printable(&self.user).into_owned()
    }

    /// Prints the broker's answer: as JSON, or as `text` of the user. A secret that was made here follows.
    fn told(
        &self,
        admin: &Admin,
        mut answer: Value,
        secret: Option<String>,
        text: impl FnOnce(&User) -> String,
    ) -> anyhow::Result<ExitCode> {
        print(if self.output.json {
            if let (Value::Object(members), Some(secret)) = (&mut answer, secret) {
                members.insert("password".into(), secret.into());
            }
            format!("{answer}\n")
        } else {
            let secret = secret.map(|secret| secret + "\n").unwrap_or_default();
            text(&admin.read(answer)?) + &secret
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add(args) => add(args),
        Command::Set(args) => set(args),
        Command::Show(one) => {
            let (admin, path) = one.connect();
            one.told(&admin, admin.get(&path)?, None, |user| described(user, now()))
        }
        Command::Usage(Usage { one }) => usage(one),
        Command::List(args) => list(args),
        Command::Remove(Remove { one, confirmation }) => {
            let (admin, path) = one.connect();
            let before = admin.get(&path)?;
            confirm(confirmation, &format!("remove the user {}", one.name()))?;
            admin.delete(&path)?;
            one.told(&admin, before, None, |user| format!("removed {}\n", printable(&user.user)))
        }
        Command::Disable(one) => switch(one, true),
        Command::Enable(one) => switch(one, false),
    }
}

fn add(args: &Add) -> anyhow::Result<ExitCode> {
    let Add { one, password, rules, limits, note, disabled } = args;
    let mut body = rules.members()?;
    limit::insert(&mut body, limits.iter().cloned());
    let Made { hash, secret } = password.hash()?;
    body.insert("password_hash".into(), hash.into());
    if let Some(note) = note.as_deref().filter(|note| !note.is_empty()) {
        body.insert("note".into(), note.into());
    }
    body.insert("disabled".into(), (*disabled).into());
    let (admin, path) = one.connect();
    let (tenant, _) = one.user.split_once('/').unwrap_or_default();
    let before = admin.back_ends(tenant);
    let answer = match admin.create(&path, &body.into()) {
        Err(error) if error.is::<Present>() => {
            let name = one.name();
            bail!("the user {name} exists already\n  hint: `barid user set {name}` changes it")
        }
        made => made?,
    };
    let to_standard_error = |user: &User| {
        let said = format!("added {}: {}\n", printable(&user.user), what_it_may(user));
        // Only the password goes to standard output, from where a script takes it.
        if secret.is_some() {
            eprint!("{said}");
            String::new()
        } else {
            said
        }
    };
    let status = one.told(&admin, answer, secret.clone(), to_standard_error)?;
    warn(&admin, one, before.as_deref());
    Ok(status)
}

/// Warns of what an operator may not expect of a change of a user. `before`: for a new user, the back ends that decided on
/// the logins of its tenant until now.
fn warn(admin: &Admin, one: &One, before: Option<&[String]>) {
    let (tenant, _) = one.user.split_once('/').unwrap_or_default();
    let now = admin.back_ends(tenant);
    let seen = admin.get(&one.seen_at());
    let seen = seen.ok().and_then(|answer| admin.read::<Seen>(answer).ok());
    let shadow = seen.and_then(|seen| seen.shadowed_by);
    if let Some(warning) = warning(before, now.as_deref(), shadow.as_deref()) {
        eprintln!("barid: warning: {warning}");
    }
}

/// Returns what an operator may not expect of a user. `before`, `now`: the back ends that decide on the logins of its
/// tenant; `None`: the broker does not say, or it was not asked. `shadow`: the back end that has the user as well, and is
/// asked before the store.
fn warning(
    before: Option<&[String]>,
    now: Option<&[String]>,
    shadow: Option<&str>,
) -> Option<String> {
    if let Some(shadow) = shadow {
        let shadow = printable(shadow);
        return Some(format!(
            "`{shadow}` has a user of this name, too, and is asked before `{STORE}`: its password and its rights decide\n  \
             hint: remove the user from `{shadow}`, or name `{STORE}` first in `chain` of [auth]"
        ));
    }
    let now = now?;
    if now.is_empty() {
        let advice = "any client may connect to the tenant, so nobody asks for this user\n  hint: name `store` \
                      in `chain` of [auth], or in --auth of `barid tenant set`";
        return Some(advice.into());
    }
    if !now.iter().any(|name| name == STORE) {
        let names = printable(&now.join(", ")).into_owned();
        return Some(format!(
            "the logins of the tenant are decided by {names}, so nobody asks for this user\n  hint: add `{STORE}` \
             to `chain` of [auth], or to --auth of `barid tenant set`"
        ));
    }
    let was_open = before.is_some_and(<[String]>::is_empty);
    was_open.then(|| {
        "until now any client could connect. From now on a client of MQTT needs a user; those that are connected \
         without one have been disconnected"
            .into()
    })
}

fn set(args: &Set) -> anyhow::Result<ExitCode> {
    let Set { one, new_password, password, rules, no_rules, limits, note } = args;
    let mut body = if *no_rules { rights::no_rights() } else { rules.members()? };
    limit::insert(&mut body, limits.iter().cloned());
    if let Some(note) = note {
        let note = if note.is_empty() { Value::Null } else { note.as_str().into() };
        body.insert("note".into(), note);
    }
    let mut made = None;
    if password.have_only_cost() && !new_password {
        bail!(
            "--cost and --scram are for a new password\n  hint: add --new-password, --password-file or --random"
        );
    }
    if *new_password || password.are_given() {
        let Made { hash, secret } = password.hash()?;
        body.insert("password_hash".into(), hash.into());
        made = secret;
    }
    if body.is_empty() {
        bail!(
            "nothing to change: name a password, rules, a limit or a note; --help lists the options"
        );
    }
    change(one, body, made, |user| {
        format!("changed {}: {}\n", printable(&user.user), what_it_may(user))
    })
}

fn switch(one: &One, disabled: bool) -> anyhow::Result<ExitCode> {
    let body = Map::from_iter([("disabled".to_owned(), Value::Bool(disabled))]);
    change(one, body, None, |user| {
        let done = if disabled { "disabled" } else { "enabled" };
        format!("{done} {}\n", printable(&user.user))
    })
}

fn change(
    one: &One,
    body: Map<String, Value>,
    secret: Option<String>,
    text: impl FnOnce(&User) -> String,
) -> anyhow::Result<ExitCode> {
    let (admin, path) = one.connect();
    let answer = admin.change(&path, &body.into())?;
    let has_secret = secret.is_some();
    let status = one.told(&admin, answer, secret, |user| {
        let said = text(user);
        if has_secret {
            eprint!("{said}");
            String::new()
        } else {
            said
        }
    })?;
    warn(&admin, one, None);
    Ok(status)
}

fn usage(one: &One) -> anyhow::Result<ExitCode> {
    let admin = one.output.admin.connect();
    let answer = admin.get(&one.seen_at())?;
    if one.output.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let seen: Seen = admin.read(answer)?;
    print(seen.table())?;
    Ok(ExitCode::SUCCESS)
}

impl Seen {
    fn table(&self) -> String {
        if self.quotas.is_empty() {
            return "nothing: no client of its tenant has connected\n".into();
        }
        if self.quotas.values().all(|quantity| quantity.used == 0 && quantity.limit.is_none()) {
            return "nothing: no client has logged in with this name since the broker started, and nothing belongs to it\n"
                .into();
        }
        let limit = Column::Right("LIMIT");
        let mut table = Table::new([Column::Left("QUOTA"), Column::Right("USED"), limit]);
        for (quota, Quantity { used, limit }) in &self.quotas {
            let limit = match limit {
                None => "?".into(),
                Some(0) => "-".into(),
                Some(limit) => limit.to_string(),
            };
            table.push([quota.clone(), used.to_string(), limit]);
        }
        table.to_string()
    }
}

/// Returns the limits that a user has of its own.
fn limits_of(user: &User) -> Map<String, Value> {
    match serde_json::to_value(&user.rights.limits) {
        Ok(Value::Object(limits)) => limits,
        _ => Map::new(),
    }
}

/// Describes in a few words what a user may do.
fn what_it_may(user: &User) -> String {
    let mut may = match rights::in_short(&user.rights) {
        short if user.rights.are_empty() => {
            format!("may do {short} that the rules of its tenant allow")
        }
        short => format!("has {short}"),
    };
    let limits = limits_of(user);
    if !limits.is_empty() {
        let limits = limits.iter().map(|(key, value)| format!("{key} = {}", limit::shown(value)));
        may += &format!(", with {}", limits.collect::<Vec<_>>().join(", "));
    }
    if user.disabled { format!("{may}, and is disabled") } else { may }
}

fn list(List { tenant, paging, output }: &List) -> anyhow::Result<ExitCode> {
    let admin = output.admin.connect();
    let path = of_tenant("/v1/users", tenant.as_deref());
    let mut answer = pages(&admin, &path, "users", paging)?;
    if output.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let mut table = Table::new([
        Column::Left("USER"),
        Column::Left("LOGIN"),
        Column::Left("RIGHTS"),
        Column::Right("LIMITS"),
        Column::Right("CREATED"),
        Column::Left("NOTE"),
    ]);
    for user in admin.read::<Vec<User>>(answer["users"].take())? {
        let login = match (&user.problem, user.disabled) {
            (Some(_), _) => "unreadable",
            (None, true) => "disabled",
            (None, false) => "yes",
        };
        let created = user.created_at.as_ref().map_or("-".into(), |at| span(at.until(now)));
        let rights = match user.problem {
            Some(_) => "-".into(),
            None => rights::in_short(&user.rights),
        };
        let limits = match limits_of(&user).len() {
            0 => "-".into(),
            count => count.to_string(),
        };
        let note = user.note.unwrap_or_default();
        table.push([user.user, login.into(), rights, limits, created, note]);
    }
    let mut text = if table.is_empty() { "no users\n".into() } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn described(user: &User, now: Duration) -> String {
    let created = match &user.created_at {
        Some(at) => format!("{}, {} ago", at.as_str(), span(at.until(now))),
        None => "-".into(),
    };
    let mut text = String::new();
    for (name, value) in [
        ("user", printable(&user.user).into_owned()),
        ("may log in", if user.disabled { "no, it is disabled".into() } else { "yes".into() }),
        ("created", created),
        ("note", user.note.as_deref().map_or("-".into(), |note| printable(note).into_owned())),
    ] {
        text += &format!("{name:<11} {value}\n");
    }
    for (key, value) in limits_of(user) {
        text += &format!("{:<11} {key} = {}\n", "limit", limit::shown(&value));
    }
    if user.rights.are_empty() {
        text + "no rules: it may do everything that the rules of its tenant allow\n"
    } else {
        format!("{text}\n{}", rights::table(&user.rights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_described() {
        let user: User = serde_json::from_str(
            r##"{"user":"acme/a","disabled":true,"publish":["a/#"],"limits":{"publish_rate":10,"max_connections":0},"created_at":"1970-01-01T00:01:00.000Z"}"##,
        )
        .unwrap();
        let text = described(&user, Duration::from_secs(120));
        assert!(text.contains("may log in  no, it is disabled\n"), "{text}");
        assert!(text.contains("1970-01-01T00:01:00.000Z, 1m ago\n"), "{text}");
        assert!(text.contains("limit       publish_rate = 10\n"), "{text}");
        assert!(text.ends_with("allow  publish  topics a/#\n"), "{text}");
        let may = "has publish, with max_connections = 0, publish_rate = 10, and is disabled";
        assert_eq!(what_it_may(&user), may);
        let problem = r#"{"user":"acme/a","problem":"later"}"#;
        assert!(serde_json::from_str::<User>(problem).unwrap().problem.is_some());
    }

    #[test]
    fn an_operator_is_warned_of_what_a_new_user_brings() {
        let chain =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let warned = |before: &[&str], now: &[&str]| {
            warning(Some(&chain(before)), Some(&chain(now)), None).unwrap_or_default()
        };
        assert!(warned(&[], &["store"]).starts_with("until now any client could connect"));
        assert!(
            warned(&["db"], &["db"]).starts_with("the logins of the tenant are decided by db,")
        );
        assert!(warned(&[], &[]).contains("nobody asks for this user"));
        assert_eq!(warned(&["file", "store"], &["file", "store"]), "");
        assert_eq!(warning(None, None, None), None);
        let both = chain(&["file", "store"]);
        let shadowed = warning(None, Some(&both), Some("file")).unwrap();
        assert!(shadowed.starts_with("`file` has a user of this name, too,"), "{shadowed}");
    }

    #[test]
    fn a_user_name_has_its_tenant() {
        assert_eq!(user_name("sensor-7"), Ok("default/sensor-7".into()));
        assert_eq!(user_name("acme/a/b"), Ok("acme/a/b".into()));
        assert!(user_name("acme/").unwrap_err().contains("is empty"));
        assert!(user_name("a b/c").unwrap_err().contains("cannot contain"));
    }
}
