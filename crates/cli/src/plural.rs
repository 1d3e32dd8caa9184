//! Counted nouns in sentences.

/// Formats a number with its noun: `1 message`, `2 messages`.
pub fn count(number: impl Into<u64>, one: &str, many: &str) -> String {
    let number = number.into();
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let messages = |number: u64| count(number, "message", "messages");
        assert_eq!([0, 1, 2].map(messages), ["0 messages", "1 message", "2 messages"]);
    }
}
