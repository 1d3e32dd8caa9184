//! Wall-clock times in readable formats.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment, in UTC.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: u64,
    nanos: u32,
}

impl Timestamp {
    /// Creates the time that is this long after the beginning of 1970.
    pub fn new(seconds: u64, nanos: u32) -> Self {
        Self { seconds, nanos }
    }

    /// Returns the current time.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(since.as_secs(), since.subsec_nanos())
    }

    /// Formats the seconds since 1970, with nanoseconds.
    pub fn unix(self) -> String {
        format!("{}.{:09}", self.seconds, self.nanos)
    }

    /// Formats the time like `2026-11-21T12:00:00+0000`.
    pub fn iso_8601(self) -> String {
        let [year, month, day, hour, minute, second] = self.fields();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000")
    }

    /// Formats the time like `20261121T120000Z`, for file names that sort by time.
    pub fn compact(self) -> String {
        let [year, month, day, hour, minute, second] = self.fields();
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }

    /// Returns year, month, day, hour, minute and second.
    fn fields(self) -> [u64; 6] {
        let (year, month, day) = civil(self.seconds / 86_400);
        let second = self.seconds % 86_400;
        [year, month, day, second / 3_600, second / 60 % 60, second % 60]
    }
}

/// Returns the date that is `days` days after the beginning of 1970.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00+0000"),
            (951_782_399, "2000-02-28T23:59:59+0000"),
            (951_782_400, "2000-02-29T00:00:00+0000"),
            (1_798_761_599, "2026-12-31T23:59:59+0000"),
            (4_107_542_400, "2100-03-01T00:00:00+0000"),
        ] {
            assert_eq!(Timestamp::new(seconds, 0).iso_8601(), expected);
        }
        assert_eq!(Timestamp::new(1_798_761_599, 0).compact(), "20261231T235959Z");
    }
}
