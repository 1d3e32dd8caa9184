//! `barid token`: who may use the admin API.

use std::process::ExitCode;

use anyhow::bail;
use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{
    AdminArgs, Column, Moment, Output, Table, encode, ends_in, now, of_tenant, printable,
};
use crate::output::print;
use crate::span::parse_seconds;

/// Create and revoke tokens of the admin API
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid token create --role admin > ~/.barid-token
  barid token create --role viewer --note Grafana
  barid token create --role admin --tenant acme --for 90d
  barid token list
  barid token revoke k3vqm2xa

While there are no tokens, every program on the broker's machine may use the admin API. As soon as there is one, every
request needs one: name its file with --token-file or BARID_TOOLS_TOKEN_FILE. Create one with the role admin first.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a token, and print it
    Create(Create),
    /// List the tokens
    List(List),
    /// Revoke tokens
    Revoke(Revoke),
}

/// What a token allows.
#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// See names, counts and settings
    Viewer,
    /// Also see messages and values, and change sessions, connections, bans, queues, topics and bindings
    Operator,
    /// Also change users, settings of tenants and tokens
    Admin,
}

#[derive(clap::Args)]
#[command(after_help = "\
The token is printed once. The broker stores only a hash of it.

Examples:
  barid token create --role admin > ~/.barid-token
  barid token create --role viewer --tenant acme --for 30d --note 'the dashboard of acme'")]
struct Create {
    /// What the token allows
    #[arg(long, value_enum)]
    role: Role,
    /// Allow it only for this tenant
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    /// End the token after this time; without it, it lasts until it is revoked
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true,
        value_parser = |text: &str| parse_seconds(text, u32::MAX))]
    lasts: Option<u32>,
    /// Note, to recognize it in the list
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
ID is the name for `barid token revoke`.

Examples:
  barid token list
  barid token list --json | jq -r '.tokens[] | select(.role == \"admin\").id'")]
struct List {
    /// Only tokens for this tenant
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid token revoke k3vqm2xa

When the last token is revoked, requests need none again.")]
struct Revoke {
    /// Ids of the tokens, as `barid token list` shows them
    #[arg(value_name = "ID", required = true, value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// A token as the broker reports it.
#[derive(Deserialize)]
struct Token {
    id: String,
    role: String,
    tenant: Option<String>,
    note: String,
    until: Option<Moment>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Create(args) => create(args),
        Command::List(args) => list(args),
        Command::Revoke(args) => revoke(args),
    }
}

fn create(args: &Create) -> anyhow::Result<ExitCode> {
    let Create { role, tenant, lasts, note, output } = args;
    let role = role.to_possible_value().expect("no role is hidden");
    let mut body = Map::new();
    body.insert("role".into(), role.get_name().into());
    body.insert("note".into(), note.as_str().into());
    if let Some(tenant) = tenant {
        body.insert("tenant".into(), tenant.as_str().into());
    }
    if let Some(seconds) = lasts {
        body.insert("for_seconds".into(), (*seconds).into());
    }
    let admin = output.admin.connect();
    if role.get_name() != "admin" || tenant.is_some() || lasts.is_some() {
        let mut answer = admin.get("/v1/tokens")?;
        if admin.read::<Vec<Token>>(answer["tokens"].take())?.is_empty() {
            bail!(
                "this would be the first token. From then on every request needs one, and only an admin's makes others\n  \
                 hint: begin with `barid token create --role admin`, without --tenant and --for"
            );
        }
    }
    let answer = admin.post("/v1/tokens", &body.into())?;
    print(match answer["token"].as_str() {
        Some(token) if !output.json => format!("{token}\n"),
        _ => format!("{answer}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list(List { tenant, output }: &List) -> anyhow::Result<ExitCode> {
    let admin = output.admin.connect();
    let mut answer: Value = admin.get(&of_tenant("/v1/tokens", tenant.as_deref()))?;
    if output.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let mut table = Table::new([
        Column::Left("ID"),
        Column::Left("ROLE"),
        Column::Left("TENANT"),
        Column::Right("ENDS"),
        Column::Left("NOTE"),
    ]);
    for token in admin.read::<Vec<Token>>(answer["tokens"].take())? {
        let ends = match &token.until {
            Some(until) if until.since(now).is_zero() => "has ended".into(),
            Some(until) => ends_in(until, now),
            None => "never".into(),
        };
        table.push([
            token.id,
            token.role,
            token.tenant.unwrap_or_else(|| "all".into()),
            ends,
            token.note,
        ]);
    }
    print(if table.is_empty() { "no tokens\n".into() } else { table.to_string() })?;
    Ok(ExitCode::SUCCESS)
}

fn revoke(Revoke { ids, admin }: &Revoke) -> anyhow::Result<ExitCode> {
    let admin = admin.connect();
    for id in ids {
        admin.delete(&format!("/v1/tokens/{}", encode(id)))?;
        print(format!("revoked {}\n", printable(id)))?;
    }
    Ok(ExitCode::SUCCESS)
}
