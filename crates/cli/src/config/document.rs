//! A configuration file as a tree that knows the position of each value.

use std::ops::Range;

use barid_server::settings::Settings;
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use super::hints;
use super::problem::{Place, Problem, Step};

/// Maximum number of problems reported for one file; more would bury the first ones.
const MAX_PROBLEMS: usize = 50;

/// A TOML text without syntax errors.
pub struct Document<'a> {
    origin: &'a str,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Parses `text`; `origin` is the file's name in reports.
    pub fn parse(origin: &'a str, text: &'a str) -> Result<Self, Vec<Problem>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Self { origin, text, root });
        }
        let problem = |error: &toml::de::Error| {
            let (message, hint) = hints::explain(error.message());
            Problem::in_text(origin, text, error.span().unwrap_or(0..0), message, hint)
        };
        // A further error on the same line is most often a consequence of the first.
        let mut problems: Vec<_> = errors.iter().map(problem).collect();
        problems.dedup_by_key(|problem| problem.line);
        problems.truncate(MAX_PROBLEMS);
        Err(problems)
    }

    /// Reads the settings from the text, or returns all problems that prevent this.
    ///
    /// After a problem the entry that causes it is removed and the rest is read again, so that one
    /// mistake does not hide the next.
    pub fn settings(&self) -> Result<Settings, Vec<Problem>> {
        let mut root = self.root.clone();
        let off = take_listeners_off(root.get_mut());
        let mut problems = Vec::new();
        let mut removed: Vec<String> = Vec::new();
        while problems.len() < MAX_PROBLEMS {
            let error = match Settings::deserialize(Deserializer::from(root.clone())) {
                Ok(mut settings) if problems.is_empty() => {
                    switch_off(&mut settings, &off);
                    return Ok(settings);
                }
                Ok(_) => break,
                Err(error) => error,
            };
            let span = error.span().unwrap_or(0..0);
            // A key that was removed here is not missing in the text.
            if !removed.iter().any(|key| hints::is_missing(error.message(), key)) {
                let (message, hint) = hints::explain(error.message());
                let problem = Problem::in_text(self.origin, self.text, span.clone(), message, hint);
                problems.push(problem);
            }
            match remove_entry(root.get_mut(), &span) {
                Some(key) => removed.push(key),
                None => break,
            }
        }
        Err(problems)
    }

    /// Returns the position of `place`, or of the innermost table or array on the way to it. `None`
    /// if not even the first step is in the text.
    pub fn locate(&self, place: &Place) -> Option<Range<usize>> {
        let (Step::Key(first), rest) = place.0.split_first()? else { return None };
        let (key, mut value) = entry(self.root.get_ref(), first)?;
        let mut span = shown(key.span(), value);
        for step in rest {
            (value, span) = match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => match entry(table, key) {
                    Some((key, value)) => (value, shown(key.span(), value)),
                    None => break,
                },
                (Step::Index(index), DeValue::Array(array)) => match array.get(*index) {
                    Some(value) => (value, value.span()),
                    None => break,
                },
                _ => break,
            };
        }
        Some(span)
    }
}

fn entry<'t, 'a>(
    table: &'t DeTable<'a>,
    wanted: &str,
) -> Option<(&'t Spanned<DeString<'a>>, &'t Spanned<DeValue<'a>>)> {
    table.iter().find(|(key, _)| key.get_ref() == wanted)
}

/// Returns the range to mark for an entry: the value if it is a scalar, else the key.
fn shown(key: Range<usize>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    match value.get_ref() {
        DeValue::Table(_) | DeValue::Array(_) => key,
        _ => value.span(),
    }
}

/// Removes the listeners whose value is `false`, which switches them off because TOML has no null.
/// Everywhere else a listener is a table, so these entries must not stay in the tree.
fn take_listeners_off(root: &mut DeTable<'_>) -> Vec<&'static str> {
    let listeners = root.iter_mut().find(|(key, _)| key.get_ref() == "listeners");
    let Some(DeValue::Table(listeners)) = listeners.map(|(_, value)| value.get_mut()) else {
        return Vec::new();
    };
    let is_off = |name: &&str| match entry(listeners, name) {
        Some((_, value)) => matches!(value.get_ref(), DeValue::Boolean(false)),
        None => false,
    };
    let off: Vec<_> =
        ["mqtt", "mqtts", "ws", "wss", "amqp", "amqps"].into_iter().filter(is_off).collect();
    for name in &off {
        remove_key(listeners, |key, _| key.get_ref() == name);
    }
    off
}

fn switch_off(settings: &mut Settings, off: &[&str]) {
    for name in off {
        let listeners = &mut settings.listeners;
        match *name {
            "mqtt" => listeners.mqtt = None,
            "mqtts" => listeners.mqtts = None,
            "ws" => listeners.ws = None,
            "wss" => listeners.wss = None,
            "amqp" => listeners.amqp = None,
            _ => listeners.amqps = None,
        }
    }
}

/// Removes the innermost entry that contains `span`, and returns its key.
fn remove_entry(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    if let Some(key) = table.iter_mut().find_map(|(_, value)| remove_within(value, span)) {
        return Some(key);
    }
    remove_key(table, |key, value| covers(&key.span(), span) || covers(&value.span(), span))
}

/// Removes the first entry for which `wanted` holds, and returns its key.
fn remove_key<'a>(
    table: &mut DeTable<'a>,
    wanted: impl Fn(&Spanned<DeString<'a>>, &Spanned<DeValue<'a>>) -> bool,
) -> Option<String> {
    let key = table.iter().find(|(key, value)| wanted(key, value)).map(|(key, _)| key.clone())?;
    table.remove(&key).map(|_| key.into_inner().into_owned())
}

fn remove_within(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    match value.get_mut() {
        DeValue::Table(table) => remove_entry(table, span),
        DeValue::Array(array) => {
            if let Some(key) = array.iter_mut().find_map(|element| remove_within(element, span)) {
                return Some(key);
            }
            let index = array.iter().position(|element| covers(&element.span(), span))?;
            let rest = array.iter().enumerate().filter(|(i, _)| *i != index);
            *array = rest.map(|(_, element)| element.clone()).collect();
            Some(index.to_string())
        }
        _ => None,
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
