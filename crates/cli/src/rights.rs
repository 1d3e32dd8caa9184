//! Rights of users and rules of tenants: options, and their description.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use barid_engine::rights::{Action, Actions, Rights, Rule};
use clap::Args;
use serde_json::{Map, Value};

use crate::admin::{Column, Table};
use crate::plural::count;

/// The members of a file with rules.
const MEMBERS: [&str; 4] = ["rules", "publish", "subscribe", "state"];

/// Rules that are given on the command line.
#[derive(Args)]
pub struct RuleArgs {
    /// Allow actions, everywhere or on one target: publish,subscribe:devices/%c/#
    #[arg(long, value_name = "ACTIONS[:TARGET]", value_parser = parse)]
    allow: Vec<Given>,
    /// Deny actions in the same way; denials come before what is allowed
    #[arg(long, value_name = "ACTIONS[:TARGET]", value_parser = parse)]
    deny: Vec<Given>,
    /// Read the rules from a JSON file: a list of rules, or an object with `rules`; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["allow", "deny"])]
    rules: Option<PathBuf>,
}

/// What the rules of a command line look like, for help texts.
pub const RULES_HELP: &str = "\
Actions are publish and subscribe on topic filters (%c is the client identifier, %u the user name), read and
write on keys of the state store, send, receive and manage on queues and topics; or all. Rules are tried in
order, and the first that matches decides: first those of --deny, then those of --allow. What no rule matches
is denied.";

/// Actions, and their target.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    actions: Actions,
    target: Option<(Kind, String)>,
}

/// What actions are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Topics,
    Keys,
    Entities,
}

impl RuleArgs {
    /// Returns the members of a user or tenant that are given. If there are none, they stay as they are.
    pub fn members(&self) -> anyhow::Result<Map<String, Value>> {
        if let Some(path) = &self.rules {
            return from_file(path);
        }
        let denied = self.deny.iter().map(|given| given.rule(false));
        let allowed = self.allow.iter().map(|given| given.rule(true));
        let rules: Vec<Rule> = denied.chain(allowed).collect();
        let mut members = Map::new();
        if !rules.is_empty() {
            let rules = serde_json::to_value(rules).expect("rules have text for keys");
            members.insert("rules".into(), rules);
        }
        Ok(members)
    }
}

/// Returns the members that a user has no more if all rights are removed.
pub fn no_rights() -> Map<String, Value> {
    MEMBERS.iter().map(|member| ((*member).to_owned(), Value::Null)).collect()
}

fn from_file(path: &PathBuf) -> anyhow::Result<Map<String, Value>> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let rules: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    match rules {
        Value::Array(_) => Ok(Map::from_iter([("rules".to_owned(), rules)])),
        Value::Object(members) => {
            match members.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
                None => Ok(members),
                Some(member) => bail!(
                    "{}: unknown member `{member}`\n  hint: rights have the members {}",
                    path.display(),
                    MEMBERS.join(", ")
                ),
            }
        }
        _ => bail!("{} has neither a list of rules nor an object", path.display()),
    }
}

/// Reads `publish,subscribe:devices/#`.
fn parse(text: &str) -> Result<Given, String> {
    let (actions, target) = match text.split_once(':') {
        Some((actions, target)) => (actions, Some(target)),
        None => (text, None),
    };
    let actions: Vec<Action> = actions.split(',').map(action).collect::<Result<_, _>>()?;
    let target = target.map(|target| {
        if target.is_empty() {
            return Err("there is nothing behind the colon".to_owned());
        }
        let kinds: Vec<_> = actions.iter().map(|action| kind(*action)).collect();
        match kinds[0] {
            Some(kind) if kinds.iter().all(|other| *other == Some(kind)) => {
                Ok((kind, target.to_owned()))
            }
            _ => Err(
                "actions with a target are all on topics, all on keys, or all on queues; use the \
                      option twice"
                    .to_owned(),
            ),
        }
    });
    let target = target.transpose()?;
    let actions = match actions[..] {
        [one] => Actions::One(one),
        _ => Actions::Many(actions),
    };
    Ok(Given { actions, target })
}

fn action(name: &str) -> Result<Action, String> {
    serde_json::from_value(name.trim().into()).map_err(|_| {
        format!(
            "there is no action {name:?}; the actions are publish, subscribe, read, write, send, receive, manage \
             and all"
        )
    })
}

fn kind(action: Action) -> Option<Kind> {
    match action {
        Action::All => None,
        Action::Publish | Action::Subscribe => Some(Kind::Topics),
        Action::Read | Action::Write => Some(Kind::Keys),
        Action::Send | Action::Receive | Action::Manage => Some(Kind::Entities),
    }
}

impl Given {
    fn rule(&self, allows: bool) -> Rule {
        let actions = Some(self.actions.clone());
        let target = |of| match &self.target {
            Some((kind, target)) if *kind == of => Some(vec![target.clone()]),
            _ => None,
        };
        Rule {
            allow: actions.clone().filter(|_| allows),
            deny: actions.filter(|_| !allows),
            topics: target(Kind::Topics),
            keys: target(Kind::Keys),
            entities: target(Kind::Entities),
            ..Rule::default()
        }
    }
}

/// Describes rights in a few words, for a list.
pub fn in_short(rights: &Rights) -> String {
    if rights.are_empty() {
        return "everything".into();
    }
    let short = [
        ("publish", &rights.publish.as_ref().map(Vec::len)),
        ("subscribe", &rights.subscribe.as_ref().map(Vec::len)),
        ("state", &rights.state.as_ref().map(Vec::len)),
    ];
    let mut parts = Vec::new();
    if !rights.rules.is_empty() {
        parts.push(count(rights.rules.len() as u64, "rule", "rules"));
    }
    parts.extend(short.into_iter().filter(|(_, len)| len.is_some()).map(|(name, _)| name.into()));
    parts.join(", ")
}

/// Describes rights in a table with one row for each rule.
pub fn table(rights: &Rights) -> Table<3> {
    let mut table = Table::new([Column::Left("RULE"), Column::Left("ACTIONS"), Column::Left("ON")]);
    for rule in &rights.rules {
        let (effect, actions) = match (&rule.allow, &rule.deny) {
            (Some(actions), _) => ("allow", actions),
            (_, Some(actions)) => ("deny", actions),
            _ => continue,
        };
        table.push([effect.into(), names(actions), targets(rule)]);
    }
    for (action, filters) in [("publish", &rights.publish), ("subscribe", &rights.subscribe)] {
        if let Some(filters) = filters {
            table.push(["allow".into(), action.into(), named("topics", filters)]);
        }
    }
    if let Some(rules) = &rights.state {
        let keys: Vec<_> = rules.iter().flat_map(|rule| rule.keys.iter().cloned()).collect();
        table.push(["allow".into(), "state".into(), named("keys", &keys)]);
    }
    table
}

fn names(actions: &Actions) -> String {
    let text = serde_json::to_value(actions).expect("actions are text");
    match text {
        Value::Array(all) => {
            let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
            all.join(", ")
        }
        one => one.as_str().unwrap_or_default().to_owned(),
    }
}

fn targets(rule: &Rule) -> String {
    let mut parts = Vec::new();
    for (what, targets) in
        [("topics", &rule.topics), ("keys", &rule.keys), ("queues", &rule.entities)]
    {
        if let Some(targets) = targets {
            parts.push(named(what, targets));
        }
    }
    if parts.is_empty() {
        parts.push("everything".into());
    }
    if let Some(levels) = &rule.qos {
        let levels: Vec<_> = levels.iter().map(u8::to_string).collect();
        parts.push(format!("QoS {}", levels.join(" ")));
    }
    if let Some(retain) = rule.retain {
        parts.push(if retain { "retained".into() } else { "not retained".into() });
    }
    parts.join(", ")
}

fn named(what: &str, targets: &[String]) -> String {
    if targets.is_empty() { format!("no {what}") } else { format!("{what} {}", targets.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> String {
        let all = |texts: &[&str]| texts.iter().map(|text| parse(text).unwrap()).collect();
        let args = RuleArgs { allow: all(allow), deny: all(deny), rules: None };
        serde_json::to_string(&args.members().unwrap()).unwrap()
    }

    #[test]
    fn rules_are_read_from_options() {
        assert_eq!(rules(&[], &[]), "{}");
        assert_eq!(
            rules(&["publish,subscribe:a/%c:b/#", "read:x*"], &["all"]),
            r##"{"rules":[{"deny":"all"},{"allow":["publish","subscribe"],"topics":["a/%c:b/#"]},{"allow":"read","keys":["x*"]}]}"##
        );
        assert_eq!(
            rules(&["send:orders"], &[]),
            r#"{"rules":[{"allow":"send","entities":["orders"]}]}"#
        );
        for (text, expected) in [
            ("pubish:a", "no action \"pubish\""),
            ("", "no action"),
            ("publish:", "nothing behind the colon"),
            ("publish,read:a", "use the option twice"),
            ("all:a", "use the option twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn rights_are_described() {
        let rights: Rights = serde_json::from_str(
            r##"{"rules":[{"deny":"publish","topics":["config/#"],"retain":true},{"allow":["read","write"],"keys":["a"]}],"publish":[]}"##,
        )
        .unwrap();
        assert_eq!(in_short(&rights), "2 rules, publish");
        assert_eq!(in_short(&Rights::default()), "everything");
        let text = table(&rights).to_string();
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "RULE ACTIONS ON",
                "deny publish topics config/#, retained",
                "allow read, write keys a",
                "allow publish no topics"
            ]
        );
    }
}
