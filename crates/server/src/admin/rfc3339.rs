//! Times in the format of RFC 3339: UTC, with milliseconds.

use barid_core::time::{MonoTime, WallTime};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

const DAY_MILLIS: u64 = 24 * 60 * 60 * 1_000;

/// A time that is written in the form `2026-11-21T12:00:00.000Z`. It is kept in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Rfc3339(u64);

impl From<WallTime> for Rfc3339 {
    fn from(time: WallTime) -> Self {
        Self(time.as_millis())
    }
}

/// Converts a time of the broker's own clock. It differs from the wall clock by the corrections that the
/// latter has had since the start of the broker.
impl From<MonoTime> for Rfc3339 {
    fn from(time: MonoTime) -> Self {
        Self(time.as_millis())
    }
}

impl std::fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = self.0;
        let (year, month, day) = civil(millis / DAY_MILLIS);
        let of_day = millis % DAY_MILLIS;
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, millis) = (of_day / 1_000 % 60, of_day % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the date that is `days` days after 1970-01-01 in the Gregorian calendar. Years are counted from
/// March, so that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days since the 1st of March of the year 0.
    let days = days + 719_468;
    let day_of_era = days % DAYS_OF_400_YEARS;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + days / DAYS_OF_400_YEARS * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_798_761_599_007, "2026-12-31T23:59:59.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Rfc3339::from(WallTime::from_millis(millis)).to_string(), expected);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil(0);
        for days in 1..200_000 {
            let (year, month, day) = civil(days);
            let next_day = (year, month) == (last.0, last.1) && day == last.2 + 1;
            let next_month = day == 1 && last.2 >= 28 && (year, month) == after(last.0, last.1);
            assert!(next_day || next_month, "{last:?} {:?}", (year, month, day));
            last = (year, month, day);
        }
        assert_eq!(last, (2517, 7, 31));
    }

    fn after(year: u64, month: u64) -> (u64, u64) {
        if month == 12 { (year + 1, 1) } else { (year, month + 1) }
    }
}
