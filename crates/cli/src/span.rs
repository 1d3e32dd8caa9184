//! Spans of time, as people write them.

use std::num::NonZeroU64;
use std::time::Duration;

/// Reads `500ms`, `10s`, `5m`, `2h`, `1d`: milliseconds, more than none.
pub fn parse_milliseconds(text: &str) -> Result<NonZeroU64, String> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let scale = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("say the unit, as in 500ms, 10s, 5m, 2h or 1d".into()),
    };
    let number: u64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| "a number and a unit, as in 500ms, 10s, 5m, 2h or 1d")?;
    let milliseconds = number.checked_mul(scale).ok_or("too long")?;
    NonZeroU64::new(milliseconds).ok_or_else(|| "it must be more than nothing".into())
}

/// The same, as a duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_milliseconds(text).map(|milliseconds| Duration::from_millis(milliseconds.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, milliseconds) in [
            ("1ms", 1),
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("18446744073709551615ms", u64::MAX),
        ] {
            assert_eq!(parse_milliseconds(text).map(NonZeroU64::get), Ok(milliseconds));
        }
    }

    #[test]
    fn mistakes() {
        for (text, expected) in [
            ("10", "say the unit"),
            ("", "say the unit"),
            ("1.5s", "say the unit"),
            ("-1s", "say the unit"),
            ("10 s", "say the unit"),
            ("s", "a number and a unit"),
            ("0s", "more than nothing"),
            ("18446744073709551615s", "too long"),
            ("18446744073709551616ms", "a number and a unit"),
        ] {
            let error = parse_milliseconds(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
