//! Definitions of rules.

use std::collections::BTreeMap;

use barid_core::rules::{self, CorrelationFilter, Filter, Rule, SqlFilter, SystemProperty};
use barid_core::value::Value;
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::definition::DefinitionError;
use super::path::{self, Kind};

/// The definition of a subscription's rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct RuleDefinition {
    /// The name, unique in the subscription; see [`path::check_name`].
    pub name: String,
    /// The filter and the action.
    #[serde(default)]
    pub properties: RuleProperties,
}

/// The filter of a rule, which selects messages, and its action, which changes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct RuleProperties {
    /// The kind of filter. If missing, it is that of the filter that is present; without a filter, the rule matches
    /// all messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_type: Option<FilterType>,
    /// The SQL condition that a message must meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql_filter: Option<Expression>,
    /// The properties that a message must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_filter: Option<Correlation>,
    /// The SQL statements that change a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Expression>,
}

/// A kind of filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FilterType {
    /// A SQL condition.
    Sql,
    /// Properties that a message must have.
    Correlation,
    /// All messages.
    True,
    /// No messages.
    False,
}

/// A SQL expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
#[schema(as = SqlExpression)]
pub struct Expression {
    /// The text: in a filter a condition, in an action statements.
    pub sql_expression: String,
}

/// Properties that a message must have: all that are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
#[schema(as = CorrelationFilter)]
pub struct Correlation {
    /// The content type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The correlation id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The message id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The address for replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The session id for replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    /// The session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The destination of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Application properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, PropertyValue>,
}

/// The value of an application property: a JSON value, or an object that names its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PropertyValue {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Long(i64),
    /// A number.
    Double(f64),
    /// Text.
    String(String),
    /// A value of a type that JSON does not have.
    Typed(TypedValue),
    /// `null`: what earlier versions stored for a number that JSON does not have, which no message equals.
    Unreadable(()),
}

/// A value of a type that JSON does not have, such as `{"Timestamp": 1700000000000}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum TypedValue {
    /// Milliseconds since the Unix epoch.
    Timestamp(i64),
    /// 32 hexadecimal digits, with or without hyphens.
    Uuid(String),
    /// Base64.
    Binary(String),
    /// No value. The field is always `true`.
    Null(bool),
}

impl RuleDefinition {
    /// Returns the rule that a new subscription has.
    pub fn default_rule() -> Self {
        Self { name: rules::DEFAULT_RULE.into(), properties: RuleProperties::default() }
    }

    /// Returns the definition of a rule.
    pub fn of(rule: &Rule) -> Self {
        let mut properties = RuleProperties::default();
        match &rule.filter {
            Filter::True => properties.filter_type = Some(FilterType::True),
            Filter::False => properties.filter_type = Some(FilterType::False),
            Filter::Sql(filter) => {
                properties.filter_type = Some(FilterType::Sql);
                properties.sql_filter = Some(Expression { sql_expression: filter.text().into() });
            }
            Filter::Correlation(filter) => {
                properties.filter_type = Some(FilterType::Correlation);
                properties.correlation_filter = Some(Correlation::of(filter));
            }
        }
        properties.action =
            rule.action.as_ref().map(|action| Expression { sql_expression: action.text().into() });
        Self { name: rule.name.clone().into(), properties }
    }

    /// Checks a rule that is declared anew.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), or if a value of the filter is `null`.
    pub fn check(&self) -> Result<(), DefinitionError> {
        let filter = self.properties.correlation_filter.as_ref();
        let mut values = filter.iter().flat_map(|filter| &filter.properties);
        if let Some((name, _)) = values.find(|(_, value)| **value == PropertyValue::Unreadable(()))
        {
            return Err(DefinitionError::Rule {
                rule: format!("rule {:?}", self.name).into(),
                why: format!("the value of {name} cannot be null").into(),
            });
        }
        self.compile().map(drop)
    }

    /// Compiles the rule.
    ///
    /// # Errors
    /// [`DefinitionError`] if the name is invalid, if the filter of the declared kind is missing, or if the filter
    /// or the action is invalid.
    pub fn compile(&self) -> Result<Rule, DefinitionError> {
        path::check_name(Kind::Rule, &self.name)?;
        let refuse = |why: String| DefinitionError::Rule {
            rule: format!("rule {:?}", self.name).into(),
            why: why.into(),
        };
        let filter = self.properties.filter().map_err(refuse)?;
        let action = self.properties.action.as_ref().filter(|action| !action.is_empty());
        let action = action.map(|action| action.sql_expression.parse()).transpose();
        let action =
            action.map_err(|error| refuse(format!("the action cannot be understood, {error}")))?;
        Ok(Rule { name: (*self.name).into(), filter, action })
    }
}

impl RuleProperties {
    fn filter(&self) -> Result<Filter, String> {
        let both = self.sql_filter.is_some() && self.correlation_filter.is_some();
        let said = match self.filter_type {
            Some(said) => said,
            None if both => {
                return Err("with two filters, FilterType must say which one applies".into());
            }
            None if self.sql_filter.is_some() => FilterType::Sql,
            None if self.correlation_filter.is_some() => FilterType::Correlation,
            None => FilterType::True,
        };
        match said {
            FilterType::True => Ok(Filter::True),
            FilterType::False => Ok(Filter::False),
            FilterType::Sql => {
                let filter = self
                    .sql_filter
                    .as_ref()
                    .ok_or("FilterType is Sql, but there is no SqlFilter")?;
                let filter = SqlFilter::new(&filter.sql_expression, Vec::new());
                filter
                    .map(Filter::Sql)
                    .map_err(|error| format!("the filter cannot be understood, {error}"))
            }
            FilterType::Correlation => {
                let filter = self.correlation_filter.as_ref();
                let filter =
                    filter.ok_or("FilterType is Correlation, but there is no CorrelationFilter")?;
                filter.compile().map(Filter::Correlation)
            }
        }
    }
}

impl Expression {
    fn is_empty(&self) -> bool {
        self.sql_expression.trim().is_empty()
    }
}

impl Correlation {
    fn of(filter: &CorrelationFilter) -> Self {
        let mut correlation = Self::default();
        for (property, wanted) in filter.system() {
            if let Some(slot) = correlation.slot(property) {
                *slot = Some(wanted.into());
            }
        }
        for (name, value) in &filter.properties {
            correlation.properties.insert(name.to_string(), PropertyValue::of(value));
        }
        correlation
    }

    /// Returns the field of a system property, if it has one.
    fn slot(&mut self, property: SystemProperty) -> Option<&mut Option<String>> {
        Some(match property {
            SystemProperty::ContentType => &mut self.content_type,
            SystemProperty::CorrelationId => &mut self.correlation_id,
            SystemProperty::Label => &mut self.label,
            SystemProperty::MessageId => &mut self.message_id,
            SystemProperty::ReplyTo => &mut self.reply_to,
            SystemProperty::ReplyToSessionId => &mut self.reply_to_session_id,
            SystemProperty::SessionId => &mut self.session_id,
            SystemProperty::To => &mut self.to,
            _ => return None,
        })
    }

    fn compile(&self) -> Result<CorrelationFilter, String> {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let value = |(name, value): (&String, &PropertyValue)| {
            let value =
                value.to_core().ok_or_else(|| format!("the value of {name} cannot be read"))?;
            Ok(((**name).into(), value))
        };
        Ok(CorrelationFilter {
            content_type: text(&self.content_type),
            correlation_id: text(&self.correlation_id),
            label: text(&self.label),
            message_id: text(&self.message_id),
            reply_to: text(&self.reply_to),
            reply_to_session_id: text(&self.reply_to_session_id),
            session_id: text(&self.session_id),
            to: text(&self.to),
            properties: self.properties.iter().map(value).collect::<Result<_, String>>()?,
        })
    }
}

impl PropertyValue {
    /// Returns the definition of a property's value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Typed(TypedValue::Null(true)),
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Long(number) => Self::Long(*number),
            Value::Double(number) => Self::Double(*number),
            Value::String(text) => Self::String(text.to_string()),
            Value::Binary(bytes) => Self::Typed(TypedValue::Binary(BASE64.encode(bytes))),
            Value::Uuid(id) => {
                Self::Typed(TypedValue::Uuid(uuid::Uuid::from_bytes(*id).to_string()))
            }
            Value::Timestamp(at) => Self::Typed(TypedValue::Timestamp(*at)),
        }
    }

    fn to_core(&self) -> Option<Value> {
        Some(match self {
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Long(number) => Value::Long(*number),
            // The definition could not be read again: JSON has no such numbers.
            Self::Double(number) if !number.is_finite() => return None,
            Self::Double(number) => Value::Double(*number),
            Self::String(text) => Value::String((**text).into()),
            Self::Typed(TypedValue::Timestamp(at)) => Value::Timestamp(*at),
            Self::Typed(TypedValue::Null(_)) | Self::Unreadable(()) => Value::Null,
            Self::Typed(TypedValue::Binary(text)) => {
                Value::Binary(BASE64.decode(text.as_bytes()).ok()?.into())
            }
            Self::Typed(TypedValue::Uuid(text)) => {
                let digits = text.replace('-', "");
                let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
                Value::Uuid(bytes.try_into().ok()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(properties: &str) -> Result<Rule, String> {
        let json = format!(r#"{{ "Name": "r", "Properties": {properties} }}"#);
        let definition: RuleDefinition = serde_json::from_str(&json).map_err(|e| e.to_string())?;
        definition.compile().map_err(|error| error.to_string())
    }

    #[test]
    fn filters_are_what_they_are_said_to_be() {
        assert_eq!(rule("{}").unwrap().filter, Filter::True);
        assert_eq!(rule(r#"{ "FilterType": "False" }"#).unwrap().filter, Filter::False);
        let sql = rule(
            r#"{ "FilterType": "Sql", "SqlFilter": { "SqlExpression": "a = 1" },
                            "Action": { "SqlExpression": "SET b = 2" } }"#,
        );
        let sql = sql.unwrap();
        assert!(matches!(&sql.filter, Filter::Sql(filter) if filter.text() == "a = 1"));
        assert_eq!(sql.action.unwrap().text(), "SET b = 2");
    }

    #[test]
    fn numbers_that_json_does_not_have_are_refused_and_never_keep_an_entity_from_being_read() {
        for number in [f64::NAN, f64::INFINITY] {
            let value = PropertyValue::of(&Value::Double(number));
            assert_eq!(value.to_core(), None);
            let stored = serde_json::to_string(&value).unwrap();
            let read: PropertyValue = serde_json::from_str(&stored).unwrap();
            assert!(read.to_core().is_some());
        }
        let json = r#"{ "Name": "r", "Properties": { "CorrelationFilter": { "Properties": { "a": null } } } }"#;
        let declared: RuleDefinition = serde_json::from_str(json).unwrap();
        assert!(declared.compile().is_ok() && declared.check().is_err());
    }

    #[test]
    fn a_correlation_filter_keeps_the_types_of_its_values() {
        let rule = rule(
            r#"{ "CorrelationFilter": { "Label": "l", "SessionId": "s", "Properties": { "i": 1, "d": 1.5,
                "s": "x", "b": true, "t": { "Timestamp": 7 }, "y": { "Binary": "AQI=" },
                "u": { "Uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8" }, "n": { "Null": true } } } }"#,
        )
        .unwrap();
        let Filter::Correlation(filter) = &rule.filter else { panic!("{rule:?}") };
        assert_eq!(filter.label.as_deref(), Some("l"));
        let value = |name: &str| {
            filter.properties.iter().find(|(its, _)| **its == *name).map(|(_, value)| value.clone())
        };
        assert_eq!(value("i"), Some(Value::Long(1)));
        assert_eq!(value("d"), Some(Value::Double(1.5)));
        assert_eq!(value("t"), Some(Value::Timestamp(7)));
        assert_eq!(value("y"), Some(Value::Binary([1, 2].into())));
        assert_eq!(value("n"), Some(Value::Null));
        let again = RuleDefinition::of(&rule);
        let json = serde_json::to_string(&again).unwrap();
        let again: RuleDefinition = serde_json::from_str(&json).unwrap();
        assert_eq!(again.compile().unwrap(), rule);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |properties: &str| rule(properties).unwrap_err();
        assert_eq!(
            error(r#"{ "FilterType": "Sql" }"#),
            "rule \"r\": FilterType is Sql, but there is no SqlFilter"
        );
        let both = r#"{ "SqlFilter": { "SqlExpression": "1 = 1" }, "CorrelationFilter": {} }"#;
        assert!(error(both).contains("FilterType must say"));
        let broken = error(r#"{ "SqlFilter": { "SqlExpression": "a = " } }"#);
        assert!(
            broken.starts_with("rule \"r\": the filter cannot be understood, at 5: "),
            "{broken}"
        );
        assert!(error(r#"{ "Action": { "SqlExpression": "DROP x" } }"#).contains("the action"));
    }
}
