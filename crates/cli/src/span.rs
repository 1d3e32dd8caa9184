//! Spans of time on the command line, in one format for all options.
//!
//! A number alone counts seconds, as in mosquitto_pub and mosquitto_sub. A unit may follow it: `500ms`, `2s`,
//! `5m`, `2h`, `1d`. Both forms may have decimals: `0.5`, `1.5h`.

use std::num::NonZeroU64;
use std::time::Duration;

const EXAMPLES: &str = "as in 2, 0.5, 500ms, 10s, 5m, 2h or 1d";

const NANOS: u128 = 1_000_000_000;

/// Reads a span of time, which may be zero.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let scale = match unit {
        "ms" => NANOS / 1_000,
        "" | "s" => NANOS,
        "m" => 60 * NANOS,
        "h" => 3_600 * NANOS,
        "d" => 86_400 * NANOS,
        _ => return Err(format!("a time is seconds, or a number and a unit, {EXAMPLES}")),
    };
    let number = &text[..text.len() - unit.len()];
    let nanos = decimal(number, scale).ok_or_else(|| format!("a time has a number, {EXAMPLES}"))?;
    let seconds = u64::try_from(nanos / NANOS).map_err(|_| "the time is too long")?;
    Ok(Duration::new(seconds, (nanos % NANOS) as u32))
}

/// Reads a span of time greater than zero.
pub fn parse_some(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("the time must be greater than 0".into()),
        span => Ok(span),
    }
}

/// Reads a span of time of at least a millisecond, in whole milliseconds.
pub fn parse_milliseconds(text: &str) -> Result<NonZeroU64, String> {
    let milliseconds = parse_some(text)?.as_millis();
    let milliseconds = u64::try_from(milliseconds).map_err(|_| "the time is too long")?;
    NonZeroU64::new(milliseconds).ok_or_else(|| "the time must be at least 1ms".into())
}

/// Reads a span of time in whole seconds, of `most` at the most.
pub fn parse_seconds(text: &str, most: u32) -> Result<u32, String> {
    let span = parse(text)?;
    let seconds = u32::try_from(span.as_secs()).ok().filter(|seconds| *seconds <= most);
    if span.subsec_nanos() > 0 {
        return Err("the time must be in whole seconds".into());
    }
    seconds.ok_or_else(|| format!("the time must be {most} seconds at most"))
}

/// Returns a decimal number times `scale`; `None` if it is not a number, or too large.
fn decimal(text: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    // A second dot fails to parse below.
    let fraction_of = 10_u128.pow(fraction.len() as u32);
    let whole: u64 = whole.parse().ok()?;
    let fraction: u128 = fraction.parse::<u64>().ok()?.into();
    Some(u128::from(whole) * scale + fraction * scale / fraction_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_units() {
        for (text, milliseconds) in [
            ("2", 2_000),
            ("2s", 2_000),
            ("0", 0),
            ("0.5", 500),
            ("1ms", 1),
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("18446744073709551615"), Ok(Duration::from_secs(u64::MAX)));
        assert_eq!(parse_milliseconds("250ms").map(NonZeroU64::get), Ok(250));
        assert_eq!(parse_seconds("1m", 60), Ok(60));
    }

    #[test]
    fn mistakes() {
        for (text, expected) in [
            ("", "a time has a number"),
            ("s", "a time has a number"),
            (".5", "a time has a number"),
            ("1.2.3", "a time has a number"),
            ("1.", "a time has a number"),
            ("-1s", "seconds, or a number and a unit"),
            ("10 s", "seconds, or a number and a unit"),
            ("2 weeks", "seconds, or a number and a unit"),
            ("18446744073709551615d", "too long"),
            ("18446744073709551616", "a time has a number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse_some("0s").unwrap_err().contains("greater than 0"));
        assert!(parse_milliseconds("0.0001").unwrap_err().contains("at least 1ms"));
        assert!(parse_seconds("61", 60).unwrap_err().contains("60 seconds at most"));
        assert!(parse_seconds("1500ms", 60).unwrap_err().contains("whole seconds"));
    }
}
