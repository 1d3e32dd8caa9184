//! Requests about the rules of a subscription.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_amqp::Error;
use barid_amqp::message::{
    Correlation as SentCorrelation, Filter as SentFilter, Rule as SentRule, ValueRef,
};
use barid_core::rules::{Filter, Rule};

use super::{Asked, Done, missing};
use crate::amqp::refusals::{condition, no_entity};
use crate::entities::value::{encoded, kept};
use crate::entities::{
    Correlation, EntityError, Expression, FilterType, PropertyValue, Queue, RuleDefinition,
    RuleProperties,
};

/// Maximum number of rules in one response.
const RULES_MAX: usize = 1_000;

fn subscription<'a>(asked: &Asked<'a>) -> Result<&'a Arc<Queue>, Error> {
    Some(asked.queue)
        .filter(|queue| queue.is_subscription())
        .ok_or_else(|| Error::new(condition::NOT_ALLOWED, "Only subscriptions have rules."))
}

/// Returns the error for a request about the rule of this name. Clients look for the texts of the first two
/// errors.
fn refused(error: &EntityError, subscription: &Queue, name: &str) -> Error {
    let path = || format!("{}/Rules/{name}", subscription.path());
    match error {
        EntityError::NotFound(_) => no_entity(&path()),
        EntityError::Exists(_) => Error::new(
            condition::ALREADY_EXISTS,
            format!("The messaging entity '{}' already exists.", path()),
        ),
        _ => Error::new(condition::ARGUMENT_ERROR, error.to_string()),
    }
}

/// `add-rule`: adds a rule.
pub(super) fn add(asked: &mut Asked<'_>) -> Result<Done, Error> {
    const DESCRIPTION: &str = "rule-description";
    let subscription = subscription(asked)?;
    let sent = SentRule::parse(asked.request.argument(DESCRIPTION));
    let rule = definition(asked.text("rule-name")?, &sent.ok_or_else(|| missing(DESCRIPTION))?)?;
    let added = asked.entities.add_rule(subscription, &rule, asked.commits);
    added.map_err(|error| refused(&error, subscription, &rule.name))?;
    Ok(Done::empty())
}

/// `remove-rule`: removes a rule.
pub(super) fn remove(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let subscription = subscription(asked)?;
    let name = asked.request.argument("rule-name").text().ok_or_else(|| missing("rule-name"))?;
    let removed = asked.entities.remove_rule(subscription, name, asked.commits);
    removed.map_err(|error| refused(&error, subscription, name))?;
    Ok(Done::empty())
}

/// `enumerate-rules`: lists the rules, sorted by name as in Service Bus.
pub(super) fn enumerate(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let subscription = subscription(asked)?;
    let number = |name: &str| asked.request.argument(name).integer();
    let skip = usize::try_from(number("skip").unwrap_or(0)).unwrap_or(0);
    let top = number("top").and_then(|top| usize::try_from(top).ok()).unwrap_or(RULES_MAX);
    let configured = subscription.configured();
    let top = top.min(RULES_MAX).min(configured.rules.len().saturating_sub(skip));
    if top == 0 {
        return Ok(Done::Nothing);
    }
    Ok(Done::body(move |map| {
        let mut rules: Vec<_> = configured.rules.iter().collect();
        rules.sort_unstable_by_key(|rule| &rule.name);
        map.value(ValueRef::String("rules"));
        map.list(|list| {
            for rule in rules.into_iter().skip(skip).take(top) {
                list.map(|map| {
                    map.value(ValueRef::String("rule-description"));
                    as_sent(rule).write(map);
                });
            }
        });
    }))
}

/// Returns the declaration of a rule that a client has sent.
fn definition(name: &str, sent: &SentRule<'_>) -> Result<RuleDefinition, Error> {
    let expression = |sql: &str| Expression { sql_expression: sql.into() };
    let mut properties =
        RuleProperties { action: sent.action.map(expression), ..Default::default() };
    match &sent.filter {
        SentFilter::True => properties.filter_type = Some(FilterType::True),
        SentFilter::False => properties.filter_type = Some(FilterType::False),
        SentFilter::Sql(sql) => properties.sql_filter = Some(expression(sql)),
        SentFilter::Correlation(filter) => {
            properties.correlation_filter = Some(correlation(filter)?);
        }
    }
    Ok(RuleDefinition { name: name.into(), properties })
}

fn correlation(sent: &SentCorrelation<'_>) -> Result<Correlation, Error> {
    let text = |text: Option<&str>| text.map(Into::into);
    let mut properties = BTreeMap::new();
    for (name, value) in &sent.properties {
        let value = kept(*value).ok_or_else(|| {
            let text =
                format!("The property {name} of the filter has a type that is not supported.");
            Error::new(condition::ARGUMENT_ERROR, text)
        })?;
        properties.insert((*name).into(), PropertyValue::of(&value));
    }
    Ok(Correlation {
        content_type: text(sent.content_type),
        correlation_id: text(sent.correlation_id),
        label: text(sent.label),
        message_id: text(sent.message_id),
        reply_to: text(sent.reply_to),
        reply_to_session_id: text(sent.reply_to_session_id),
        session_id: text(sent.session_id),
        to: text(sent.to),
        properties,
    })
}

fn as_sent(rule: &Rule) -> SentRule<'_> {
    let filter = match &rule.filter {
        Filter::True => SentFilter::True,
        Filter::False => SentFilter::False,
        Filter::Sql(sql) => SentFilter::Sql(sql.text()),
        Filter::Correlation(filter) => SentFilter::Correlation(Box::new(SentCorrelation {
            correlation_id: filter.correlation_id.as_deref(),
            message_id: filter.message_id.as_deref(),
            to: filter.to.as_deref(),
            reply_to: filter.reply_to.as_deref(),
            label: filter.label.as_deref(),
            session_id: filter.session_id.as_deref(),
            reply_to_session_id: filter.reply_to_session_id.as_deref(),
            content_type: filter.content_type.as_deref(),
            properties: filter
                .properties
                .iter()
                .map(|(name, value)| (&**name, encoded(value)))
                .collect(),
        })),
    };
    let action = rule.action.as_ref().map(|action| action.text());
    SentRule { name: Some(&rule.name), filter, action }
}
