//! Settings of OpenTelemetry.

use std::path::PathBuf;

use serde::Deserialize;

use super::Secret;

/// Where metrics and traces of messages go, as OTLP over HTTP.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// The address of the collector, `http://HOST:PORT` or `https://HOST:PORT`; `/v1/metrics` and `/v1/traces` are appended.
    pub endpoint: String,
    /// Whether metrics are sent.
    #[serde(default = "yes")]
    pub metrics: bool,
    /// Interval between two requests with metrics, in seconds.
    #[serde(default = "interval")]
    pub interval: u32,
    /// The share of the sampled traces in which the broker records its spans, 0 to 1; 0: none.
    #[serde(default)]
    pub traces: f64,
    /// Maximum number of messages of one tenant that are recorded in a second.
    #[serde(default = "trace_rate")]
    pub trace_rate: u32,
    /// Path of a file with headers of each request, one in each line, `Name: value`.
    #[serde(default)]
    pub headers_file: Option<PathBuf>,
    /// PEM file with the certificate authorities of the collector; `None`: those of the system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    #[serde(skip)]
    headers: Vec<(String, Secret)>,
}

impl TelemetrySettings {
    /// Returns the names and values of the headers.
    pub fn headers(&self) -> &[(String, Secret)] {
        &self.headers
    }

    /// Stores the headers that the code which reads the configuration has found in `headers_file`.
    pub fn set_headers(&mut self, headers: Vec<(String, Secret)>) {
        self.headers = headers;
    }
}

fn yes() -> bool {
    true
}

fn interval() -> u32 {
    30
}

fn trace_rate() -> u32 {
    1_000
}
