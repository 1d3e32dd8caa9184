//! Rules of a subscription, in the form of `$management` requests and responses.

use crate::wire::{Map, ValueRef, Writer};

/// A rule: which messages a subscription gets, and what is changed in them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule<'a> {
    /// Name of the rule; requests carry it beside the rule.
    pub name: Option<&'a str>,
    /// Filter that a message must pass.
    pub filter: Filter<'a>,
    /// SQL expression that changes the messages.
    pub action: Option<&'a str>,
}

/// Condition that a message must meet.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter<'a> {
    /// Matches all messages.
    True,
    /// Matches no message.
    False,
    /// Matches messages for which the SQL expression is true.
    Sql(&'a str),
    /// Matches messages that have certain properties.
    Correlation(Box<Correlation<'a>>),
}

/// Properties that a message must have; `None` matches any value.
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
// The filter codes have one zero less than the codes above; clients compare exactly these.
const SQL_FILTER: u64 = 0x0000_0013_7000_0006;
const TRUE_FILTER: u64 = 0x0000_0013_7000_0007;
const FALSE_FILTER: u64 = 0x0000_0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0000_0013_7000_0009;

impl<'a> Rule<'a> {
    /// Reads the argument `rule-description`; `None` if it does not describe a rule.
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

    /// Writes the rule as the described list that answers `enumerate-rules`.
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
