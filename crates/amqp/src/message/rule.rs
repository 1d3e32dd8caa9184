//! Rules of a subscription, as requests and responses of `$management` have them.

use crate::wire::{Map, ValueRef, Writer};

/// Which messages a subscription gets, and what becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule<'a> {
    /// Its name; requests have it beside the rule.
    pub name: Option<&'a str>,
    /// Which messages.
    pub filter: Filter<'a>,
    /// An SQL action.
    pub action: Option<&'a str>,
}

/// A condition for messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter<'a> {
    /// All.
    True,
    /// None.
    False,
    /// Those for which an SQL expression is true.
    Sql(&'a str),
    /// Those with certain properties.
    Correlation(Box<Correlation<'a>>),
}

/// Properties that a message must have; `None` stands for any.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Correlation<'a> {
    pub correlation_id: Option<&'a str>,
    pub message_id: Option<&'a str>,
    pub to: Option<&'a str>,
    pub reply_to: Option<&'a str>,
    pub label: Option<&'a str>,
    pub session_id: Option<&'a str>,
    pub reply_to_session_id: Option<&'a str>,
    pub content_type: Option<&'a str>,
    /// Application properties.
    pub properties: Vec<(&'a str, ValueRef<'a>)>,
}

const RULE: u64 = 0x0000_0137_0000_0004;
const NO_ACTION: u64 = 0x0000_0137_0000_0005;
const SQL_ACTION: u64 = 0x0000_0137_0000_0006;
// The others have one zero less, and clients compare them so.
const SQL_FILTER: u64 = 0x0000_0013_7000_0006;
const TRUE_FILTER: u64 = 0x0000_0013_7000_0007;
const FALSE_FILTER: u64 = 0x0000_0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0000_0013_7000_0009;

impl<'a> Rule<'a> {
    /// The rule that the argument `rule-description` describes; `None` if it does not.
    pub fn parse(description: ValueRef<'a>) -> Option<Self> {
        let description = description.map()?;
        let part = |name: &str| description.get(name).filter(|value| !value.is_null());
        let expression = |name: &str| part(name)?.map()?.get("expression")?.text();
        let filter = if part("sql-filter").is_some() {
            Filter::Sql(expression("sql-filter")?)
        } else if let Some(filter) = part("correlation-filter") {
            Filter::Correlation(Box::new(Correlation::parse(filter.map()?)))
        } else if part("false-filter").is_some() {
            Filter::False
        } else {
            Filter::True
        };
        let name = part("rule-name").and_then(ValueRef::text);
        Some(Self { name, filter, action: expression("sql-rule-action") })
    }

    /// Writes the described list that `enumerate-rules` answers with.
    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(RULE, |rule| {
            match &self.filter {
                Filter::True => rule.composite(TRUE_FILTER, |_| {}),
                Filter::False => rule.composite(FALSE_FILTER, |_| {}),
                Filter::Sql(sql) => rule.composite(SQL_FILTER, |list| list.value(*sql)),
                Filter::Correlation(filter) => {
                    rule.composite(CORRELATION_FILTER, |list| filter.write(list));
                }
            }
            match self.action {
                None => rule.composite(NO_ACTION, |_| {}),
                Some(sql) => rule.composite(SQL_ACTION, |list| list.value(sql)),
            }
            rule.value(self.name);
        });
    }
}

impl<'a> Correlation<'a> {
    fn parse(map: Map<'a>) -> Self {
        let text = |name: &str| map.get(name)?.text();
        let properties = map.get("properties").and_then(ValueRef::map).unwrap_or(Map::EMPTY);
        Self {
            correlation_id: text("correlation-id"),
            message_id: text("message-id"),
            to: text("to"),
            reply_to: text("reply-to"),
            label: text("label"),
            session_id: text("session-id"),
            reply_to_session_id: text("reply-to-session-id"),
            content_type: text("content-type"),
            properties: properties.iter().collect(),
        }
    }

    fn write(&self, list: &mut Writer<'_>) {
        let fields = [
            self.correlation_id,
            self.message_id,
            self.to,
            self.reply_to,
            self.label,
            self.session_id,
            self.reply_to_session_id,
            self.content_type,
        ];
        for field in fields {
            list.value(field);
        }
        list.map(|map| {
            for (name, value) in &self.properties {
                map.entry(name, *value);
            }
        });
    }
}
