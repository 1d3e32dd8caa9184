//! From a row to a record.

use barid_engine::rights::Rights;

use super::protocol::{Row, Value};
use crate::directory::Record;

/// Maximum length of a password hash, in bytes.
const HASH_MAX: usize = 1024;

/// Maximum length of the rights of a user, in bytes.
const RIGHTS_MAX: usize = 64 * 1024;

/// Keys of the rights of a user.
const RIGHTS_KEYS: [&str; 5] = ["rules", "publish", "subscribe", "state", "limits"];

/// Reads the row that a query has returned for a user. `None`: the row is that of another user, whose name the
/// database takes for the same, such as one with other letters in upper case. `decoy`: the hash of a user without
/// one, who cannot log in, so that the time of a login does not tell this.
///
/// # Errors
/// A sentence about what is wrong with the row. A user whose row is wrong is not let in.
pub(super) fn read(mut row: Row, user: &str, decoy: &str) -> Result<Option<Record>, String> {
    let missing = |column| format!("the query returns no column `{column}`");
    match row.take("name").ok_or_else(|| missing("name"))? {
        Value::Bytes(name) if name == user.as_bytes() => {}
        Value::Bytes(_) | Value::Null => return Ok(None),
        _ => return Err("column `name` is no text".into()),
    }
    let enabled = row.take("enabled").map_or(Ok(true), |value| read_enabled(&value))?;
    let hash = match row.take("password_hash").ok_or_else(|| missing("password_hash"))? {
        Value::Bytes(hash) if hash.len() > HASH_MAX => {
            return Err(format!("column `password_hash` has more than {HASH_MAX} bytes"));
        }
        Value::Bytes(hash) => {
            Some(String::from_utf8(hash).map_err(|_| "column `password_hash` is not UTF-8")?)
        }
        Value::Null => None,
        _ => return Err("column `password_hash` is no text".into()),
    };
    let rights =
        row.take("rights").map_or(Ok(Rights::default()), |value| read_rights(value, user))?;
    let disabled = !enabled || hash.is_none();
    let password = hash.unwrap_or_else(|| decoy.into());
    Ok(Some(Record { password, rights, disabled, fast: None }))
}

fn read_enabled(value: &Value) -> Result<bool, String> {
    match value {
        Value::Integer(0) => Ok(false),
        Value::Integer(1) => Ok(true),
        Value::Bytes(text) if text == b"0" => Ok(false),
        Value::Bytes(text) if text == b"1" => Ok(true),
        _ => Err("column `enabled` is neither 0 nor 1".into()),
    }
}

fn read_rights(value: Value, user: &str) -> Result<Rights, String> {
    let text = match value {
        Value::Null => return Ok(Rights::default()),
        Value::Bytes(text) if text.len() > RIGHTS_MAX => {
            return Err(format!("column `rights` has more than {RIGHTS_MAX} bytes"));
        }
        Value::Bytes(text) => text,
        _ => return Err("column `rights` is no text".into()),
    };
    let invalid = |error: serde_json::Error| format!("column `rights` is invalid: {error}");
    // A misspelt key must not be ignored: without any rule, a user may do everything in its tenant.
    let object: serde_json::Map<_, _> = serde_json::from_slice(&text).map_err(invalid)?;
    if let Some(key) = object.keys().find(|key| !RIGHTS_KEYS.contains(&key.as_str())) {
        let key: String = key.chars().take(40).flat_map(char::escape_debug).collect();
        return Err(format!("column `rights` has the unknown key `{key}`"));
    }
    let rights: Rights = serde_json::from_slice(&text).map_err(invalid)?;
    rights.check(user).map_err(|error| format!("column `rights`: {error}"))?;
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    fn record(columns: &[(&str, Value)]) -> Result<Option<Record>, String> {
        let name = ("Name", text("acme/ada"));
        let hash = ("password_hash", text("$argon2id$x"));
        read(Row::new(&[&[name, hash], columns].concat()), "acme/ada", "$decoy")
    }

    #[test]
    fn a_row_with_its_optional_columns_is_a_record() {
        let whole = record(&[]).unwrap().unwrap();
        assert_eq!((whole.password.as_str(), whole.disabled), ("$argon2id$x", false));
        assert!(whole.rights.are_empty());
        let rights = r#"{"publish": ["up/%c/#"], "rules": [{"deny": "all"}], "limits": {"publish_rate": 10}}"#;
        let rights = text(rights);
        let limited =
            record(&[("enabled", Value::Integer(1)), ("rights", rights)]).unwrap().unwrap();
        assert_eq!(limited.rights.publish, Some(vec!["up/%c/#".into()]));
        assert_eq!(limited.rights.limits.unwrap().publish_rate, Some(10));
        for disabled in [Value::Integer(0), text("0")] {
            assert!(record(&[("enabled", disabled)]).unwrap().unwrap().disabled);
        }
        let without = Row::new(&[("name", text("acme/ada")), ("password_hash", Value::Null)]);
        assert!(read(without, "acme/ada", "$decoy").unwrap().unwrap().disabled);
    }

    #[test]
    fn only_the_same_bytes_are_the_same_name() {
        for other in ["acme/Ada", "acme/ada ", "acme/àda", "acme", ""] {
            let row = Row::new(&[("name", text(other)), ("password_hash", text("x"))]);
            assert_eq!(read(row, "acme/ada", "$decoy"), Ok(None), "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_and_lets_nobody_in() {
        let long = "x".repeat(65_537);
        for (column, value, expected) in [
            ("enabled", Value::Null, "neither 0 nor 1"),
            ("enabled", text("yes"), "neither 0 nor 1"),
            ("enabled", Value::Integer(2), "neither 0 nor 1"),
            ("rights", text(""), "invalid"),
            ("rights", text("[]"), "invalid"),
            ("rights", text("null"), "invalid"),
            ("rights", text(r#"{"publsh": []}"#), "unknown key `publsh`"),
            ("rights", text(r#"{"limits": {"max_fun": 1}}"#), "unknown field `max_fun`"),
            ("rights", text(r#"{"publish": ["a/#/b"]}"#), "not a topic filter"),
            ("rights", text(r#"{"rules": [{"allow": "fly"}]}"#), "invalid"),
            ("rights", Value::Integer(1), "no text"),
            ("rights", text(&long), "more than 65536"),
        ] {
            let error = record(&[(column, value)]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for (columns, expected) in [
            (vec![("password_hash", text("x"))], "no column `name`"),
            (vec![("name", text("acme/ada"))], "no column `password_hash`"),
            (vec![("name", Value::Integer(1))], "`name` is no text"),
            (vec![("name", text("acme/ada")), ("password_hash", text(&long))], "more than 1024"),
            (
                vec![("name", text("acme/ada")), ("password_hash", Value::Bytes(vec![0xff]))],
                "not UTF-8",
            ),
        ] {
            let error = read(Row::new(&columns), "acme/ada", "$decoy").unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn deeply_nested_rights_are_an_error() {
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(record(&[("rights", text(&format!(r#"{{"rules": {deep}}}"#)))]).is_err());
    }
}
