//! `barid topic subscription rule`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::subscription::One as Subscription;
use crate::admin::{Admin, Column, Present, Table, encode, printable};
use crate::entity::Named;
use crate::output::print;

/// Rules of a subscription: which messages it gets
#[derive(clap::Args)]
#[command(after_help = "\
A subscription gets each message that any of its rules matches. A new subscription has the rule $Default,
which matches everything: delete it so that only other rules choose.

Examples:
  barid topic subscription rule create events billing large --sql \"amount > 1000 AND kind = 'order'\"
  barid topic subscription rule create events billing red --match sys.Label=red --match colour=red
  barid topic subscription rule create events billing tag --sql 'TRUE' --action \"SET tagged = 1\"
  barid topic subscription rule delete events billing '$Default'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a rule
    Create(Create),
    /// List rules
    List(Subscription),
    /// Delete a rule
    Delete(Chosen),
}

/// Name of one rule.
#[derive(clap::Args)]
struct Chosen {
    #[command(flatten)]
    subscription: Subscription,
    /// Name of the rule
    #[arg(value_name = "RULE", value_parser = NonEmptyStringValueParser::new())]
    rule: String,
}

#[derive(clap::Args)]
struct Create {
    #[command(flatten)]
    chosen: Chosen,
    /// Match messages for which this condition holds (SQL filter)
    #[arg(long, value_name = "CONDITION", conflicts_with = "matches")]
    sql: Option<String>,
    /// Match messages with this property (correlation filter); if repeated, all must match. `sys.Label` and
    /// the like are properties of the message, all others application properties
    #[arg(long = "match", value_name = "NAME=TEXT", value_parser = parse_match)]
    matches: Vec<(String, String)>,
    /// Change the copy that the subscription gets: SET and REMOVE statements
    #[arg(long, value_name = "STATEMENTS")]
    action: Option<String>,
}

#[derive(Deserialize)]
struct Rule {
    name: String,
    properties: Map<String, Value>,
}

impl Chosen {
    fn connect(&self) -> (Admin, String) {
        let (admin, subscription) = self.subscription.connect();
        (admin, format!("{}/rules/{}", subscription.path, encode(&self.rule)))
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Create(args) => create(args),
        Command::List(subscription) => list(subscription),
        Command::Delete(chosen) => delete(chosen),
    }
}

fn create(args: &Create) -> anyhow::Result<ExitCode> {
    let (admin, path) = args.chosen.connect();
    let rule = printable(&args.chosen.rule);
    let answer = match admin.create(&path, &args.properties()) {
        Err(error) if error.is::<Present>() => bail!(
            "the rule {rule} exists already\n  hint: delete it first: `barid topic subscription rule delete`"
        ),
        made => made?,
    };
    print(if args.chosen.subscription.of.json {
        format!("{answer}\n")
    } else {
        let made: Rule = admin.read(answer)?;
        format!("created the rule {rule}: {}\n", made.filter())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list(subscription: &Subscription) -> anyhow::Result<ExitCode> {
    let (admin, entity) = subscription.connect();
    let answer = admin.get(&format!("{}/rules", entity.path))?;
    print(if subscription.of.json {
        format!("{answer}\n")
    } else {
        let rules: Vec<Value> = admin.read(answer["rules"].clone())?;
        table(&rules)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn delete(chosen: &Chosen) -> anyhow::Result<ExitCode> {
    let (admin, path) = chosen.connect();
    let before = admin.get(&path)?;
    admin.delete(&path)?;
    print(if chosen.subscription.of.json {
        format!("{before}\n")
    } else {
        format!("deleted the rule {}\n", printable(&chosen.rule))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Formats rules as the broker reports them, one per line.
pub fn table(rules: &[Value]) -> String {
    if rules.is_empty() {
        return "no rules: the subscription gets no messages\n".into();
    }
    let mut table =
        Table::new([Column::Left("RULE"), Column::Left("MESSAGES"), Column::Left("ACTION")]);
    for rule in rules {
        if let Ok(rule) = Rule::deserialize(rule) {
            table.push([rule.name.clone(), rule.filter(), rule.action()]);
        }
    }
    table.to_string()
}

impl Rule {
    /// Describes the messages that the rule matches.
    fn filter(&self) -> String {
        match self.properties.get("FilterType").and_then(Value::as_str) {
            Some("Sql") => self.expression("SqlFilter"),
            Some("Correlation") => {
                let filter = self.properties.get("CorrelationFilter").unwrap_or(&Value::Null);
                let mut conditions = Vec::new();
                for (name, value) in filter.as_object().into_iter().flatten() {
                    match value {
                        Value::Object(own) => conditions
                            .extend(own.iter().map(|(name, value)| format!("{name} = {value}"))),
                        value => conditions.push(format!("sys.{name} = {value}")),
                    }
                }
                conditions.join(" and ")
            }
            Some("False") => "none".into(),
            _ => "all".into(),
        }
    }

    fn action(&self) -> String {
        self.expression("Action")
    }

    fn expression(&self, of: &str) -> String {
        let expression = self.properties.get(of).and_then(|of| of.get("SqlExpression"));
        expression.and_then(Value::as_str).unwrap_or_default().into()
    }
}

impl Create {
    fn properties(&self) -> Value {
        let mut properties = Map::new();
        if let Some(sql) = &self.sql {
            properties.insert("FilterType".into(), "Sql".into());
            properties.insert("SqlFilter".into(), json!({ "SqlExpression": sql }));
        } else if !self.matches.is_empty() {
            let (mut system, mut own) = (Map::new(), Map::new());
            for (name, value) in &self.matches {
                match name.strip_prefix("sys.") {
                    Some(name) => system.insert(name.into(), value.as_str().into()),
                    None => own.insert(name.clone(), value.as_str().into()),
                };
            }
            if !own.is_empty() {
                system.insert("Properties".into(), own.into());
            }
            properties.insert("FilterType".into(), "Correlation".into());
            properties.insert("CorrelationFilter".into(), system.into());
        } else {
            properties.insert("FilterType".into(), "True".into());
        }
        if let Some(action) = &self.action {
            properties.insert("Action".into(), json!({ "SqlExpression": action }));
        }
        properties.into()
    }
}

fn parse_match(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=TEXT, as in colour=red or sys.Label=red".into()),
    }
}
