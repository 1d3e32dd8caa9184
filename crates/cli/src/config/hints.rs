//! Translates messages of the parser into messages for operators.

/// Returns the message to show for the parser's message `raw`, and a hint if there is one.
pub fn explain(raw: &str) -> (String, Option<String>) {
    let raw = raw.trim_end();
    if let Some(rest) = raw.strip_prefix("unknown field ") {
        return unknown("key", rest);
    }
    if let Some(rest) = raw.strip_prefix("unknown variant ") {
        return unknown("value", rest);
    }
    if let Some(rest) = raw.strip_prefix("missing field ") {
        return (
            format!("the key {rest} is missing"),
            Some(format!("add a line `{} = …`", bare(rest))),
        );
    }
    if raw.contains("invalid socket address syntax") {
        return ("not an address to listen on".into(), Some(ADDRESS_HINT.into()));
    }
    for prefix in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) =
            raw.strip_prefix(prefix).and_then(|rest| rest.rsplit_once(", expected "))
        {
            let (expected, hint) = in_words(expected);
            return (format!("{found} in place of {expected}"), hint.map(Into::into));
        }
    }
    if raw.starts_with("duplicate key") {
        return ("this key occurs twice in its table".into(), Some("keep one of the two".into()));
    }
    (raw.into(), None)
}

/// Hint on the format of an address.
pub const ADDRESS_HINT: &str = "an address is IP:PORT, such as 127.0.0.1:1883 or [::1]:1883; \
                                0.0.0.0 means all IPv4 interfaces, [::] all interfaces";

/// Whether the message `raw` reports that `key` is missing.
pub fn is_missing(raw: &str, key: &str) -> bool {
    raw.trim_end().strip_prefix("missing field ").is_some_and(|rest| bare(rest) == key)
}

fn in_words(expected: &str) -> (String, Option<&'static str>) {
    let range = |max: u64| format!("a whole number from 0 to {max}");
    let text = match expected {
        "u8" => range(u8::MAX.into()),
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX.into()),
        "usize" | "u64" => "a whole number, 0 or more".into(),
        "a boolean" => "true or false".into(),
        "a string" | "path string" => return ("a string".into(), Some("put it in \"quotes\"")),
        "socket address" => return ("an address".into(), Some(ADDRESS_HINT)),
        "a sequence" => return ("a list".into(), Some("a list is written [\"one\", \"two\"]")),
        "struct Listener" => {
            let hint = "a listener is a table, { address = \"127.0.0.1:1883\" }, or false for none";
            return ("a listener".into(), Some(hint));
        }
        "struct User" => {
            return ("a user".into(), Some("each user is a table of its own, [[users]]"));
        }
        other if other.starts_with("struct ") || other == "a map" => "a table".into(),
        other => other.into(),
    };
    (text, None)
}

/// Explains an unknown key or value. `rest` is "`found`, expected one of `a`, `b`", "`found`,
/// expected `a`" or "`found`, there are …".
fn unknown(what: &str, rest: &str) -> (String, Option<String>) {
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let found = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let hint = match nearest(found, &known) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() => None,
        None => Some(format!("known here: {}", known.join(", "))),
    };
    (format!("unknown {what} `{found}`"), hint)
}

/// Returns the entry of `known` that `found` is most likely a misspelling of.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let found = found.to_lowercase().replace('-', "_");
    let distance = |name: &str| strsim::damerau_levenshtein(&found, &name.replace('-', "_"));
    known
        .iter()
        .map(|name| (distance(name), *name))
        .min()
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .map(|(_, name)| name)
}

fn bare(quoted: &str) -> &str {
    quoted.trim_matches('`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_guess_is_not() {
        let known = ["max_qos", "max_inflight", "drop-newest"];
        assert_eq!(nearest("max_qso", &known), Some("max_qos"));
        assert_eq!(nearest("max-inflight", &known), Some("max_inflight"));
        assert_eq!(nearest("Drop_Newest", &known), Some("drop-newest"));
        assert_eq!(nearest("retention", &known), None);
    }

    #[test]
    fn what_is_not_known_is_passed_on() {
        assert_eq!(explain("something new"), ("something new".into(), None));
    }
}
