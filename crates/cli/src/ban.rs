//! `barid ban`: who may not connect.

use std::process::ExitCode;

use barid_engine::names::{check_user_name, full_name};
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{
    Admin, Column, Moment, Output, Table, encode, ends_in, now, of_tenant, printable,
};
use crate::entity::{MORE, Paging, pages};
use crate::output::print;
use crate::span::parse_seconds;

/// Ban users, clients and addresses while the broker runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid ban add --user acme/sensor-7 --reason 'the device was stolen'
  barid ban add --client sensor-7 --tenant acme --for 10m
  barid ban add --address 192.0.2.0/24 --for 1d --reason 'a flood of logins'
  barid ban list
  barid ban remove acme/k3vqm2xa

A ban survives a restart of the broker. Whoever is banned is disconnected, and refused until the ban ends.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ban a user, a client or an address
    Add(Add),
    /// List the bans
    List(List),
    /// End a ban
    Remove(Remove),
}

#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("banned").required(true),
    after_help = "\
Examples:
  barid ban add --user acme/ada
  barid ban add --client sensor-7 --for 2h        in the tenant `default`
  barid ban add --address 2001:db8::/32
  barid ban add --address 192.0.2.7 --tenant acme only from this tenant"
)]
struct Add {
    /// Ban a user, by {tenant}/{client}, or {client} for the tenant `default`
    #[arg(long, group = "banned", value_parser = user_name, conflicts_with = "tenant")]
    user: Option<String>,
    /// Ban an MQTT client identifier, or a container id of AMQP, in one tenant
    #[arg(long, group = "banned", value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// Ban an address, or a network such as 192.0.2.0/24
    #[arg(long, group = "banned", value_parser = NonEmptyStringValueParser::new())]
    address: Option<String>,
    /// The tenant of --client [default: default]; or the only one that the --address is banned from
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    /// End the ban after this time; without it, the ban lasts until it is removed
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true,
        value_parser = |text: &str| parse_seconds(text, u32::MAX))]
    lasts: Option<u32>,
    /// Reason, for operators: in the log, `barid ban list` and `barid why`
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
ID is the name for `barid ban remove`.

Examples:
  barid ban list --tenant acme
  barid ban list --json | jq -r '.bans[] | select(.until == null).id'")]
struct List {
    /// Only bans that are about this tenant alone
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid ban remove acme/k3vqm2xa
  barid ban list --json | jq -r '.bans[].id' | xargs barid ban remove")]
struct Remove {
    /// Ids of the bans, as `barid ban list` shows them
    #[arg(value_name = "ID", required = true, value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// A ban as the broker reports it.
#[derive(Deserialize)]
struct Ban {
    id: String,
    user: Option<String>,
    client: Option<String>,
    address: Option<String>,
    tenant: Option<String>,
    reason: String,
    until: Option<Moment>,
}

fn user_name(text: &str) -> Result<String, String> {
    check_user_name(text)?;
    Ok(full_name(text))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add(args) => add(args),
        Command::List(args) => list(args),
        Command::Remove(args) => remove(args),
    }
}

fn add(args: &Add) -> anyhow::Result<ExitCode> {
    let admin = args.output.admin.connect();
    let answer = admin.post("/v1/bans", &args.body().into())?;
    print(if args.output.json {
        format!("{answer}\n")
    } else {
        let ban: Ban = admin.read(answer)?;
        format!("banned {}: {} is the id of the ban\n", ban.banned(), printable(&ban.id))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list(List { tenant, paging, output }: &List) -> anyhow::Result<ExitCode> {
    let admin = output.admin.connect();
    let path = of_tenant("/v1/bans", tenant.as_deref());
    let mut answer = pages(&admin, &path, "bans", paging)?;
    if output.json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let mut table = Table::new([
        Column::Left("ID"),
        Column::Left("BANNED"),
        Column::Right("ENDS"),
        Column::Left("REASON"),
    ]);
    for ban in admin.read::<Vec<Ban>>(answer["bans"].take())? {
        let ends = match &ban.until {
            Some(until) => ends_in(until, now),
            None => "never".into(),
        };
        table.push([ban.id.clone(), ban.banned(), ends, ban.reason]);
    }
    let mut text = if table.is_empty() { "no bans\n".into() } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn remove(Remove { ids, output }: &Remove) -> anyhow::Result<ExitCode> {
    let admin = output.admin.connect();
    for id in ids {
        let before = end(&admin, id)?;
        print(if output.json {
            format!("{before}\n")
        } else {
            let ban: Ban = admin.read(before)?;
            format!("removed the ban of {}\n", ban.banned())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends a ban. Returns what it was.
fn end(admin: &Admin, id: &str) -> anyhow::Result<Value> {
    let path = format!("/v1/bans/{}", encode(id));
    let before = admin.get(&path)?;
    admin.delete(&path)?;
    Ok(before)
}

impl Add {
    fn body(&self) -> Map<String, Value> {
        let tenant = self.client.as_ref().map(|_| "default".to_owned());
        let tenant = self.tenant.clone().or(tenant);
        let mut body = Map::new();
        for (member, value) in [
            ("user", &self.user),
            ("client", &self.client),
            ("address", &self.address),
            ("tenant", &tenant),
        ] {
            if let Some(value) = value {
                body.insert(member.into(), value.as_str().into());
            }
        }
        body.insert("reason".into(), self.reason.as_str().into());
        if let Some(seconds) = self.lasts {
            body.insert("for_seconds".into(), seconds.into());
        }
        body
    }
}

impl Ban {
    /// Says who is banned.
    fn banned(&self) -> String {
        let tenant = self.tenant.as_deref().map(printable);
        match (&self.user, &self.client, &self.address) {
            (Some(user), ..) => format!("user {}", printable(user)),
            (None, Some(client), _) => {
                format!("client {} of {}", printable(client), tenant.unwrap_or_default())
            }
            (None, None, address) => {
                let address = printable(address.as_deref().unwrap_or_default()).into_owned();
                match tenant {
                    Some(tenant) => format!("{address} (only {tenant})"),
                    None => address,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banned_is_named() {
        for (json, expected) in [
            (r#"{"id":"a/x","user":"a/b","reason":""}"#, "user a/b"),
            (r#"{"id":"a/x","client":"b","tenant":"a","reason":""}"#, "client b of a"),
            (r#"{"id":"x","address":"192.0.2.0/24","reason":""}"#, "192.0.2.0/24"),
            (r#"{"id":"x","address":"::1","tenant":"a","reason":""}"#, "::1 (only a)"),
        ] {
            let ban: Ban = serde_json::from_str(json).unwrap();
            assert_eq!(ban.banned(), expected);
        }
    }
}
