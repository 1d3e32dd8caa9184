//! Formatting of numbers for people and programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::process::Usage;

/// A label, a number, and its unit.
pub type Row = (&'static str, String, &'static str);

/// Quantiles of a histogram that are shown.
pub const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 1.0];

/// Formats rows as lines, with their numbers aligned.
pub fn lines(rows: Vec<Row>) -> String {
    let width = rows.iter().map(|(_, number, _)| number.len()).max().unwrap_or(0);
    let line = |(label, number, unit)| {
        let line = format!("  {label:<26} {number:>width$} {unit}");
        format!("{}\n", line.trim_end())
    };
    rows.into_iter().map(line).collect()
}

/// Returns a row for each of the [`QUANTILES`] of a histogram of microseconds; none if it is empty.
pub fn quantile_rows(histogram: &Histogram<u64>, labels: [&'static str; 4]) -> Vec<Row> {
    let millis = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    let row = |(label, quantile)| (label, format!("{:.3}", millis(quantile)), "ms");
    if histogram.is_empty() {
        Vec::new()
    } else {
        labels.into_iter().zip(QUANTILES).map(row).collect()
    }
}

/// Returns the [`QUANTILES`] in the unit of the histogram; null if it is empty.
pub fn quantiles(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let [p50, p99, p999, max] = QUANTILES.map(|quantile| histogram.value_at_quantile(quantile));
    json!({ "p50": p50, "p99": p99, "p99.9": p999, "max": max })
}

/// Returns the row with the memory of the measured process.
pub fn rss_row(label: &'static str, usage: Usage) -> Row {
    (label, format!("{:.1}", usage.rss_bytes as f64 / 1_048_576.0), "MiB")
}

/// Returns the rate per second.
pub fn per_second(count: u64, elapsed: Duration) -> u64 {
    (count as f64 / elapsed.as_secs_f64()).round() as u64
}

/// Formats 1234567 as 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
    }
}
