//! The ACL file of mosquitto, and the rules of each user that mean the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use barid_engine::rights::{Action, Actions, Rule};

use super::conf::text_of;
use super::notes::{Notes, Place};

/// The contents of an ACL file.
#[derive(Debug, Default)]
pub struct Acl {
    /// The lines before the first `user`, for clients without a user name.
    pub anonymous: Vec<Entry>,
    /// The lines of each user, with the line of the first `user`.
    pub users: BTreeMap<String, (Place, Vec<Entry>)>,
    /// The `pattern` lines, for all users.
    pub patterns: Vec<Entry>,
}

/// A line with a topic.
#[derive(Debug)]
pub struct Entry {
    pub place: Place,
    access: Access,
    topic: String,
}

/// What a line allows or denies, in the order in which the rules must stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Deny,
    Read,
    Write,
    ReadWrite,
}

impl Acl {
    /// Reads an ACL file.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that mosquitto does not accept, either: it does not start then.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = text_of(path)?;
        let file: Rc<str> = path.display().to_string().into();
        let mut acl = Self::default();
        let mut user = None;
        for (number, line) in text.lines().enumerate() {
            let place = Place { file: Rc::clone(&file), line: number + 1 };
            let trimmed = line.trim_matches(' ').trim_end();
            if line.starts_with('#') || trimmed.is_empty() {
                continue;
            }
            let (word, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
            let rest = rest.trim();
            let is_pattern = word == "pattern";
            match word {
                _ if rest.is_empty() => anyhow::bail!("{place}: `{word}` needs a value"),
                "user" => {
                    let entry = acl.users.entry(rest.into());
                    entry.or_insert_with(|| (place, Vec::new()));
                    user = Some(rest.to_owned());
                }
                "topic" | "pattern" => {
                    let entry = Entry::read(place, rest)?;
                    let entries = match &user {
                        _ if is_pattern => &mut acl.patterns,
                        None => &mut acl.anonymous,
                        Some(user) => {
                            &mut acl.users.get_mut(user).expect("its line was before this one").1
                        }
                    };
                    entries.push(entry);
                }
                _ => anyhow::bail!("{place}: `{word}` is none of user, topic and pattern"),
            }
        }
        Ok(acl)
    }

    /// Returns the rules of a user. mosquitto tries first the lines of the user, then the patterns, and `deny` first
    /// in each; what no line allows is denied.
    pub fn rules(&self, user: &str, notes: &mut Notes) -> Vec<Rule> {
        let own = self.users.get(user).map_or(&[][..], |(_, entries)| entries);
        let mut rules = rules(own, user, false, notes);
        // mosquitto denies everything here, too: + and # would be wildcards.
        if !user.contains(['+', '#']) {
            rules.extend(self::rules(&self.patterns, user, true, notes));
        }
        if rules.is_empty() {
            // A user without any rule could do everything.
            rules.push(Rule::everywhere(false, Action::All));
        }
        rules
    }
}

impl Entry {
    fn read(place: Place, text: &str) -> anyhow::Result<Self> {
        let (access, topic) = match text.split_once(' ') {
            None => (Access::ReadWrite, text),
            Some(("read", topic)) => (Access::Read, topic),
            Some(("write", topic)) => (Access::Write, topic),
            Some(("readwrite", topic)) => (Access::ReadWrite, topic),
            Some(("deny", topic)) => (Access::Deny, topic),
            Some((word, _)) => {
                anyhow::bail!("{place}: `{word}` is none of read, write, readwrite and deny")
            }
        };
        let topic = topic.trim();
        mqtt_proto::topic::validate_filter(topic).map_err(|error| {
            anyhow::anyhow!("{place}: {topic:?} is not a topic filter: {error}")
        })?;
        Ok(Self { place, access, topic: topic.into() })
    }

    /// Returns the topic filter for a user. `None`: it cannot be expressed.
    fn filter(&self, user: &str, is_pattern: bool, notes: &mut Notes) -> Option<String> {
        // Only patterns have variables; in `topic` the characters stand for themselves. In a rule of Barid %c and %u
        // are always variables.
        let is_literal = |text: &str| !text.contains("%c") && !text.contains("%u");
        let (filter, is_exact) = if is_pattern {
            (self.topic.replace("%u", user), is_literal(user) || !self.topic.contains("%u"))
        } else {
            (self.topic.clone(), is_literal(&self.topic))
        };
        let what = format!("topic {filter:?} of user {user:?}");
        if !is_exact && self.access != Access::Deny {
            notes.at(&self.place, what, "left out: here %c and %u are always variables");
            return None;
        }
        let filter = if is_exact {
            filter
        } else {
            // Rather too much is denied than too little.
            let level = |level| if is_literal(level) { level } else { "+" };
            let wider = filter.split('/').map(level).collect::<Vec<_>>().join("/");
            notes.at(
                &self.place,
                what,
                format!("denies {wider:?}, as here %c and %u are always variables"),
            );
            wider
        };
        let rule = Rule { topics: Some(vec![filter.clone()]), ..self.access.rule() };
        match rule.check(user) {
            Ok(()) => Some(filter),
            Err(error) => {
                notes.at(&self.place, format!("user {user:?}"), format!("left out: {error}"));
                None
            }
        }
    }
}

impl Access {
    /// Returns a rule without topics.
    fn rule(self) -> Rule {
        let both = Actions::Many(vec![Action::Publish, Action::Subscribe]);
        let (allow, deny) = match self {
            Self::Deny => (None, Some(both)),
            Self::Read => (Some(Actions::One(Action::Subscribe)), None),
            Self::Write => (Some(Actions::One(Action::Publish)), None),
            Self::ReadWrite => (Some(both), None),
        };
        Rule { allow, deny, ..Rule::default() }
    }
}

/// Returns one rule for each kind of access. Their order among those that allow does not matter.
fn rules(entries: &[Entry], user: &str, is_pattern: bool, notes: &mut Notes) -> Vec<Rule> {
    let mut topics = BTreeMap::<Access, Vec<String>>::new();
    for entry in entries {
        if let Some(filter) = entry.filter(user, is_pattern, notes) {
            let topics = topics.entry(entry.access).or_default();
            if !topics.contains(&filter) {
                topics.push(filter);
            }
        }
    }
    topics
        .into_iter()
        .map(|(access, topics)| Rule { topics: Some(topics), ..access.rule() })
        .collect()
}
