//! Limits on the command line: `KEY=VALUE`.

use barid_engine::limits::Limits;
use serde_json::{Map, Value};

/// Length of the lines of a help text, in bytes.
const LINE_MAX: usize = 100;

/// Reads `max_qos=1`. A value that is not JSON is a text. `default` removes the limit, for which the value is null.
pub fn parse(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, "default")) if !key.is_empty() => Ok((key.to_owned(), Value::Null)),
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok((key.to_owned(), value))
        }
        _ => Err("a limit is KEY=VALUE, such as max_connections=500, or KEY=default".into()),
    }
}

/// Adds limits to the members of a request, if there are any.
pub fn insert(body: &mut Map<String, Value>, limits: impl IntoIterator<Item = (String, Value)>) {
    let limits: Map<_, _> = limits.into_iter().collect();
    if !limits.is_empty() {
        body.insert("limits".into(), limits.into());
    }
}

/// The names of all limits of a tenant, in lines for a help text.
pub fn names() -> String {
    let limits = serde_json::to_value(Limits::default()).expect("names of limits are texts");
    let mut lines = vec![String::new()];
    for name in limits.as_object().into_iter().flat_map(Map::keys) {
        if lines.last().is_some_and(|line| line.len() + name.len() + 2 > LINE_MAX) {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("there is one");
        *line += if line.is_empty() { "  " } else { ", " };
        *line += name;
    }
    lines.join(",\n")
}

/// Formats the value of a limit.
pub fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_values_of_all_types() {
        assert_eq!(parse("max_qos=1"), Ok(("max_qos".into(), 1.into())));
        assert_eq!(parse("retain_available=false"), Ok(("retain_available".into(), false.into())));
        let overflow = parse("queue_overflow=drop-oldest").unwrap();
        assert_eq!(overflow.1, Value::from("drop-oldest"));
        assert_eq!(shown(&overflow.1), "drop-oldest");
        assert_eq!(parse("max_qos=default"), Ok(("max_qos".into(), Value::Null)));
        for bad in ["max_qos", "=1", "max_qos=", "=default"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
