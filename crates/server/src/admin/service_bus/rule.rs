//! Rules as XML, in both directions.

use std::collections::BTreeMap;

use barid_engine::entities::{
    Correlation, Expression, FilterType, PropertyValue, RuleDefinition, RuleProperties, TypedValue,
};
use roxmltree::Node;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use super::xml::{self, INSTANCE, SCHEMA, SERVICE_BUS, Writer};
use crate::admin::answer::Refusal;

/// Reads the filter and the action of a rule.
pub fn read(description: Node<'_, '_>) -> Result<RuleProperties, Refusal> {
    let mut properties = RuleProperties::default();
    if let Some(filter) = xml::child(description, "Filter") {
        match xml::kind(filter) {
            "SqlFilter" => {
                properties.filter_type = Some(FilterType::Sql);
                properties.sql_filter = Some(expression(filter)?);
            }
            "CorrelationFilter" => {
                properties.filter_type = Some(FilterType::Correlation);
                properties.correlation_filter = Some(correlation(filter)?);
            }
            "TrueFilter" => properties.filter_type = Some(FilterType::True),
            "FalseFilter" => properties.filter_type = Some(FilterType::False),
            other => {
                return Err(Refusal::bad_request(format!("Filter: there is no type {other:?}")));
            }
        }
    }
    if let Some(action) = xml::child(description, "Action") {
        match xml::kind(action) {
            "SqlRuleAction" => properties.action = Some(expression(action)?),
            "EmptyRuleAction" | "" => {}
            other => {
                return Err(Refusal::bad_request(format!("Action: there is no type {other:?}")));
            }
        }
    }
    Ok(properties)
}

/// Reads a SQL expression.
fn expression(of: Node<'_, '_>) -> Result<Expression, Refusal> {
    let parameters = xml::child(of, "Parameters");
    if parameters.is_some_and(|parameters| xml::children(parameters).next().is_some()) {
        let sentence =
            "Parameters: SQL expressions have none here; write the values into the expression";
        return Err(Refusal::bad_request(sentence));
    }
    let text = xml::child(of, "SqlExpression").map(xml::text).unwrap_or_default();
    Ok(Expression { sql_expression: text.into() })
}

fn correlation(filter: Node<'_, '_>) -> Result<Correlation, Refusal> {
    let text = |name| xml::child(filter, name).map(|child| xml::text(child).to_owned());
    Ok(Correlation {
        content_type: text("ContentType"),
        correlation_id: text("CorrelationId"),
        label: text("Label"),
        message_id: text("MessageId"),
        reply_to: text("ReplyTo"),
        reply_to_session_id: text("ReplyToSessionId"),
        session_id: text("SessionId"),
        to: text("To"),
        properties: match xml::child(filter, "Properties") {
            Some(properties) => values(properties)?,
            None => BTreeMap::new(),
        },
    })
}

fn values(of: Node<'_, '_>) -> Result<BTreeMap<String, PropertyValue>, Refusal> {
    xml::children(of)
        .map(|pair| {
            let key = xml::child(pair, "Key").map(xml::text).unwrap_or_default();
            let value = xml::child(pair, "Value");
            let value = value.and_then(|value| typed(xml::kind(value), xml::text(value)));
            let value = value.ok_or_else(|| {
                let sentence = format!("Properties: the value of {key:?} has a type that filters do not have, or is wrong");
                Refusal::bad_request(sentence)
            })?;
            Ok((key.to_owned(), value))
        })
        .collect()
}

/// Reads a value of a type of XML Schema.
fn typed(kind: &str, text: &str) -> Option<PropertyValue> {
    Some(match kind {
        "string" => PropertyValue::String(text.into()),
        "boolean" => PropertyValue::Bool(matches!(text, "true" | "1")),
        "byte" | "unsignedByte" | "short" | "unsignedShort" | "int" | "unsignedInt" | "long" => {
            PropertyValue::Long(text.parse().ok()?)
        }
        "double" | "float" => PropertyValue::Double(text.parse().ok()?),
        "dateTime" => PropertyValue::Typed(TypedValue::Timestamp(millis(text)?)),
        "guid" => PropertyValue::Typed(TypedValue::Uuid(text.into())),
        "base64Binary" => PropertyValue::Typed(TypedValue::Binary(text.into())),
        _ => return None,
    })
}

/// Writes a rule that was created at this time, which is written by `created` as an element of the name that it gets.
pub fn write(xml: &mut Writer, rule: &RuleDefinition, created: impl Fn(&mut Writer, &str)) {
    let namespaces = [("xmlns", SERVICE_BUS), ("xmlns:i", INSTANCE)];
    xml.element("RuleDescription", &namespaces, |xml| {
        write_content(xml, rule);
        created(xml, "CreatedAt");
        xml.text("Name", &rule.name);
    });
}

fn write_content(xml: &mut Writer, rule: &RuleDefinition) {
    let RuleProperties { filter_type, sql_filter, correlation_filter, action } = &rule.properties;
    let sql = |xml: &mut Writer, element: &str, kind: &str, expression: &str| {
        xml.element(element, &[("i:type", kind)], |xml| {
            xml.text("SqlExpression", expression);
            xml.text("CompatibilityLevel", 20);
            xml.element("Parameters", &[], |_| {});
        });
    };
    match (filter_type, sql_filter, correlation_filter) {
        (Some(FilterType::False), ..) => sql(xml, "Filter", "FalseFilter", "1=0"),
        (Some(FilterType::Sql) | None, Some(filter), _) => {
            sql(xml, "Filter", "SqlFilter", &filter.sql_expression);
        }
        (Some(FilterType::Correlation) | None, _, Some(filter)) => {
            let kind = [("i:type", "CorrelationFilter")];
            xml.element("Filter", &kind, |xml| write_correlation(xml, filter));
        }
        _ => sql(xml, "Filter", "TrueFilter", "1=1"),
    }
    match action {
        Some(action) if !action.sql_expression.trim().is_empty() => {
            sql(xml, "Action", "SqlRuleAction", &action.sql_expression);
        }
        _ => xml.element("Action", &[("i:type", "EmptyRuleAction")], |_| {}),
    }
}

fn write_correlation(xml: &mut Writer, filter: &Correlation) {
    for (name, text) in [
        ("CorrelationId", &filter.correlation_id),
        ("MessageId", &filter.message_id),
        ("To", &filter.to),
        ("ReplyTo", &filter.reply_to),
        ("Label", &filter.label),
        ("SessionId", &filter.session_id),
        ("ReplyToSessionId", &filter.reply_to_session_id),
        ("ContentType", &filter.content_type),
    ] {
        if let Some(text) = text {
            xml.text(name, text);
        }
    }
    xml.element("Properties", &[], |xml| {
        for (key, value) in &filter.properties {
            xml.element("KeyValueOfstringanyType", &[], |xml| {
                xml.text("Key", key);
                let (kind, text) = as_schema(value);
                let kind = format!("d6p1:{kind}");
                let attributes = [("i:type", &*kind), ("xmlns:d6p1", SCHEMA)];
                xml.element("Value", &attributes, |xml| xml.raw_text(text));
            });
        }
    });
}

/// Returns a value and its type of XML Schema.
fn as_schema(value: &PropertyValue) -> (&'static str, String) {
    match value {
        PropertyValue::Bool(truth) => ("boolean", truth.to_string()),
        PropertyValue::Long(number) if i32::try_from(*number).is_ok() => {
            ("int", number.to_string())
        }
        PropertyValue::Long(number) => ("long", number.to_string()),
        PropertyValue::Double(number) => ("double", number.to_string()),
        PropertyValue::String(text) => ("string", text.clone()),
        PropertyValue::Typed(TypedValue::Timestamp(millis)) => ("dateTime", date_time(*millis)),
        PropertyValue::Typed(TypedValue::Uuid(text)) => ("guid", text.clone()),
        PropertyValue::Typed(TypedValue::Binary(text)) => ("base64Binary", text.clone()),
        PropertyValue::Typed(TypedValue::Null(_)) | PropertyValue::Unreadable(()) => {
            ("string", String::new())
        }
    }
}

/// Returns the milliseconds since the Unix epoch of a time. One without an offset is in UTC.
fn millis(text: &str) -> Option<i64> {
    let parse = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    let time = parse(text).or_else(|| parse(&format!("{text}Z")))?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

/// Returns a time in UTC; that of the epoch if it is outside of the years that XML Schema can write.
fn date_time(millis: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000);
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH).to_offset(UtcOffset::UTC);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(properties: &RuleProperties) -> RuleProperties {
        let mut written = Writer::default();
        let rule = RuleDefinition { name: "r".into(), properties: properties.clone() };
        write(&mut written, &rule, |xml, name| xml.text(name, "2026-11-28T00:00:00Z"));
        let written = written.finish();
        let document = xml::parse(written.as_bytes()).unwrap();
        assert_eq!(xml::child(document.root_element(), "Name").map(xml::text), Some("r"));
        read(document.root_element()).unwrap()
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for json in [
            r#"{ "FilterType": "True" }"#,
            r#"{ "FilterType": "False" }"#,
            r#"{ "FilterType": "Sql", "SqlFilter": { "SqlExpression": "a < 1 AND b = '&'" },
                 "Action": { "SqlExpression": "SET c = 2" } }"#,
            r#"{ "FilterType": "Correlation", "CorrelationFilter": { "Label": "", "SessionId": "s", "Properties": {
                 "b": true, "i": 7, "l": 5000000000, "d": 1.5, "s": " x ", "t": { "Timestamp": 1700000000123 },
                 "u": { "Uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8" }, "y": { "Binary": "AQI=" } } } }"#,
        ] {
            let properties: RuleProperties = serde_json::from_str(json).unwrap();
            assert_eq!(again(&properties), properties, "{json}");
        }
        let all = RuleProperties { filter_type: Some(FilterType::True), ..Default::default() };
        assert_eq!(again(&RuleProperties::default()), all);
    }

    #[test]
    fn unknown_types_and_parameters_are_refused() {
        for content in [
            "<Filter i:type='Other'/>",
            "<Action i:type='Other'/>",
            "<Filter i:type='SqlFilter'><SqlExpression>1=1</SqlExpression><Parameters><a/></Parameters></Filter>",
            "<Filter i:type='CorrelationFilter'><Properties><P><Key>k</Key><Value i:type='x:duration'>PT1S</Value></P></Properties></Filter>",
            "<Filter i:type='CorrelationFilter'><Properties><P><Key>k</Key><Value i:type='x:int'>a</Value></P></Properties></Filter>",
        ] {
            let text = format!("<RuleDescription xmlns:i='{INSTANCE}'>{content}</RuleDescription>");
            let document = xml::parse(text.as_bytes()).unwrap();
            assert!(read(document.root_element()).is_err(), "{content}");
        }
    }
}
