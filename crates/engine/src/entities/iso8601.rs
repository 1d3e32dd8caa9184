//! Durations in the ISO 8601 notation of definitions, such as `PT1M`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use utoipa::ToSchema;

/// Number of days from which on a duration means no limit: that of `TimeSpan.MaxValue` in .NET.
const UNLIMITED_DAYS: u64 = 10_675_199;

/// Notation of a duration without limit: the longest `TimeSpan` of .NET.
const UNLIMITED: &str = "P10675199DT2H48M5.4775807S";

/// A duration in whole milliseconds, or no limit, which is greater than all durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String)]
pub struct IsoDuration(Duration);

/// Error: a text is not a valid duration.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a duration is written like PT30S, PT5M, PT1H30M or P14D")]
pub struct NoDuration;

impl IsoDuration {
    /// No limit.
    pub const UNLIMITED: Self = Self(Duration::MAX);

    /// Returns a duration of this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::UNLIMITED
    }

    /// The duration; `None` if there is no limit.
    pub fn limited(self) -> Option<Duration> {
        (self != Self::UNLIMITED).then_some(self.0)
    }

    /// The duration; [`Duration::MAX`] if there is no limit.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for IsoDuration {
    fn from(duration: Duration) -> Self {
        if duration.as_secs() / 86_400 >= UNLIMITED_DAYS {
            return Self::UNLIMITED;
        }
        // Less than 10,675,199 days are less than 2^64 ms.
        Self(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl FromStr for IsoDuration {
    type Err = NoDuration;

    fn from_str(text: &str) -> Result<Self, NoDuration> {
        let text = text.strip_prefix('P').ok_or(NoDuration)?;
        let (date, time) = match text.split_once('T') {
            Some((_, "")) => return Err(NoDuration),
            Some((date, time)) => (date, time),
            None => (text, ""),
        };
        if date.is_empty() && time.is_empty() {
            return Err(NoDuration);
        }
        let mut total = Duration::ZERO;
        fields(date, &[('W', 604_800), ('D', 86_400)], &mut total)?;
        fields(time, &[('H', 3_600), ('M', 60), ('S', 1)], &mut total)?;
        Ok(total.into())
    }
}

/// Adds fields like `1H30M`, whose designators come in the order of `units`, each at most once.
fn fields(mut text: &str, units: &[(char, u64)], total: &mut Duration) -> Result<(), NoDuration> {
    for (designator, seconds) in units {
        let Some((number, rest)) = text.split_once(*designator) else { continue };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || *designator != 'S' && number.contains('.') {
            return Err(NoDuration);
        }
        let whole: u64 = whole.parse().map_err(|_| NoDuration)?;
        let nanos: u32 = format!("{fraction:0<9.9}").parse().map_err(|_| NoDuration)?;
        let field = Duration::new(whole.checked_mul(*seconds).ok_or(NoDuration)?, nanos);
        *total = total.checked_add(field).ok_or(NoDuration)?;
        text = rest;
    }
    if text.is_empty() { Ok(()) } else { Err(NoDuration) }
}

impl fmt::Display for IsoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(duration) = self.limited() else { return f.write_str(UNLIMITED) };
        let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
        let units =
            [(seconds / 86_400, "D"), (seconds / 3_600 % 24, "H"), (seconds / 60 % 60, "M")];
        f.write_str("P")?;
        let mut in_time = false;
        for (count, unit) in units.into_iter().filter(|(count, _)| *count > 0) {
            if unit != "D" && !in_time {
                in_time = true;
                f.write_str("T")?;
            }
            write!(f, "{count}{unit}")?;
        }
        let rest = seconds % 60;
        if rest == 0 && millis == 0 {
            return f.write_str(if seconds == 0 { "T0S" } else { "" });
        }
        f.write_str(if in_time { "" } else { "T" })?;
        match millis {
            0 => write!(f, "{rest}S"),
            _ => write!(f, "{rest}.{millis:03}S"),
        }
    }
}

impl Serialize for IsoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IsoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format!("`{text}` is no duration: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_again() {
        for (text, seconds) in [
            ("PT1M", 60),
            ("PT5S", 5),
            ("P14D", 14 * 86_400),
            ("PT1H30M", 5_400),
            ("P1DT1S", 86_401),
            ("PT0S", 0),
        ] {
            let duration: IsoDuration = text.parse().unwrap();
            assert_eq!(duration.get(), Duration::from_secs(seconds), "{text}");
            assert_eq!(duration.to_string(), text);
        }
        let short: IsoDuration = "PT1.5S".parse().unwrap();
        assert_eq!(
            (short.get(), short.to_string()),
            (Duration::from_millis(1500), "PT1.500S".into())
        );
        assert_eq!("P2W".parse(), Ok(IsoDuration::seconds(14 * 86_400)));
        assert_eq!("PT90M".parse::<IsoDuration>().unwrap().to_string(), "PT1H30M");
    }

    #[test]
    fn the_longest_is_no_limit() {
        for text in [UNLIMITED, "P10675199D", "P99999999D"] {
            let duration: IsoDuration = text.parse().unwrap();
            assert_eq!(duration.limited(), None, "{text}");
            assert_eq!(duration.to_string(), UNLIMITED);
        }
        assert!(IsoDuration::seconds(1) < IsoDuration::UNLIMITED);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "P",
            "PT",
            "1M",
            "P1M",
            "PT1",
            "PT1X",
            "PT-1S",
            "PT1S1M",
            "PT1.S",
            "PT.5S",
            "P1.5D",
            "PT99999999999999999999S",
            "PT 1S",
            "00:01:00",
            "P1DT",
        ] {
            assert_eq!(text.parse::<IsoDuration>(), Err(NoDuration), "{text:?}");
        }
    }
}
