//! Times in the admin address's answers, and the spans between them and now.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, de};

/// A time: `2026-11-21T12:00:00.000Z`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    text: String,
    unix: Duration,
}

impl Moment {
    /// Reads a time in exactly the format that the broker writes.
    fn parse(text: &str) -> Option<Self> {
        let digits = |at: usize, len: usize| text.get(at..at + len)?.parse::<u64>().ok();
        let is_mark = |(at, mark)| text.as_bytes().get(at) == Some(&mark);
        let marks =
            [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')];
        if text.len() != 24 || !marks.into_iter().all(is_mark) {
            return None;
        }
        let days = days(digits(0, 4)?, digits(5, 2)?, digits(8, 2)?)?;
        let of_day = digits(11, 2)? * 3_600 + digits(14, 2)? * 60 + digits(17, 2)?;
        let millis = (days * 86_400 + of_day) * 1_000 + digits(20, 3)?;
        Some(Self { text: text.to_owned(), unix: Duration::from_millis(millis) })
    }

    /// Returns the time as the broker wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the time from this moment until `now`; zero if this moment lies in the future.
    pub fn until(&self, now: Duration) -> Duration {
        now.saturating_sub(self.unix)
    }

    /// Returns the time from `now` until this moment; zero if this moment lies in the past.
    pub fn since(&self, now: Duration) -> Duration {
        self.unix.saturating_sub(now)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is not a time")))
    }
}

/// Returns the wall-clock time since 1970.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Says when something ends. Rounded up, so that what was just made for a day ends in a day.
pub fn ends_in(until: &Moment, now: Duration) -> String {
    format!("in {}", span(until.since(now) + Duration::from_millis(999)))
}

/// Formats a duration in the largest unit that fits: `45s`, `3m`, `5h`, `12d`.
pub fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3_600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar; `None` for earlier dates.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Counts years and months from March, so that the leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_years = 365 * year + year / 4 - year / 100 + year / 400;
    Some(of_years + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, millis) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-28T23:59:59.999Z", 951_782_399_999),
            ("2000-02-29T00:00:00.000Z", 951_782_400_000),
            ("2026-12-31T23:59:59.007Z", 1_798_761_599_007),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400_000),
        ] {
            assert_eq!(Moment::parse(text).unwrap().unix, Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "2026-12-31", "2026-12-31T23:59:59Z", "2026-13-31T23:59:59.000Z"] {
            assert_eq!(Moment::parse(bad), None);
        }
    }

    #[test]
    fn spans_are_short() {
        for (seconds, expected) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (172_800, "2d")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }
}
