//! Checks of the settings of OpenTelemetry.

use std::fs;
use std::path::Path;

use barid_server::settings::{Secret, Settings, TelemetrySettings};
use ureq::http::{HeaderName, HeaderValue, Uri};

use super::files::read_certificates;
use super::problem::Place;
use super::validate::Objections;

/// Longest interval between two requests with metrics, in seconds.
const INTERVAL_MAX: u32 = 3_600;

/// Maximum number of messages of one tenant that are recorded in a second.
const RATE_MAX: u32 = 1_000_000;

pub fn check(settings: &Settings, found: &mut Objections) {
    let Some(telemetry) = &settings.telemetry else { return };
    let TelemetrySettings { endpoint, interval, traces, trace_rate, .. } = telemetry;
    let place = Place::of(&["telemetry"]);
    if !is_endpoint(endpoint) {
        found.add(
            place.key("endpoint"),
            format!("not the address of a collector: {endpoint:?}"),
            "an address is http://HOST:PORT or https://HOST:PORT, for example http://127.0.0.1:4318",
        );
    }
    if !(1..=INTERVAL_MAX).contains(interval) {
        found.add(
            place.key("interval"),
            format!("{interval} s between two requests with metrics"),
            &format!("the interval is 1 to {INTERVAL_MAX} seconds; 30 is the default"),
        );
    }
    if !(0.0..=1.0).contains(traces) {
        found.add(
            place.key("traces"),
            format!("{traces} is no share of the traces"),
            "a share is from 0 (none) to 1 (all that are sampled)",
        );
    }
    if !(1..=RATE_MAX).contains(trace_rate) {
        found.add(
            place.key("trace_rate"),
            format!("{trace_rate} messages in a second"),
            &format!("the number is 1 to {RATE_MAX}; `traces = 0` switches traces off"),
        );
    }
    if let Some(file) = &telemetry.headers_file
        && let Err(message) = headers(file)
    {
        let hint = "each line is a header, for example `Authorization: Bearer TOKEN`";
        found.add(place.key("headers_file"), message, hint);
    }
    if let Some(ca) = &telemetry.ca {
        read_certificates(place.key("ca"), ca, found);
    }
}

/// Stores the headers of `headers_file` in the settings, which must have been checked.
pub fn read_headers(settings: &mut Settings) {
    if let Some(telemetry) = &mut settings.telemetry
        && let Some(file) = &telemetry.headers_file
        && let Ok(headers) = headers(file)
    {
        telemetry.set_headers(headers);
    }
}

fn is_endpoint(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
    })
}

/// Reads the headers. An error has nothing of their values, which may be secrets.
fn headers(file: &Path) -> Result<Vec<(String, Secret)>, String> {
    let text = fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let header = line.split_once(':').filter(|(name, value)| {
                HeaderName::try_from(*name).is_ok() && HeaderValue::try_from(value.trim()).is_ok()
            });
            let (name, value) = header.ok_or_else(|| {
                format!("line {} of {} is not a header", number + 1, file.display())
            })?;
            Ok((name.to_owned(), Secret::new(value.trim())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        for good in ["http://127.0.0.1:4318", "https://otel.example", "http://[::1]:4318/otlp"] {
            assert!(is_endpoint(good), "{good}");
        }
        for bad in ["", "127.0.0.1:4318", "ftp://a", "http://", "http://a/?b", "grpc://a:4317"] {
            assert!(!is_endpoint(bad), "{bad}");
        }
    }

    #[test]
    fn headers_are_read_and_no_secret_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "Authorization: Bearer s3cret\n\nX-Scope: acme\n").unwrap();
        let read = headers(file.path()).unwrap();
        assert_eq!(read[0], ("Authorization".into(), Secret::new("Bearer s3cret")));
        assert_eq!(read.len(), 2);
        for wrong in ["s3cret", "a b: s3cret", "a: s3cret\u{7}"] {
            fs::write(file.path(), wrong).unwrap();
            let error = headers(file.path()).unwrap_err();
            assert!(error.contains("line 1") && !error.contains("s3cret"), "{error}");
        }
    }
}
