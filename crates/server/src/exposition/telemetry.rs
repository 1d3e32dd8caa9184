//! Metrics about what goes to a collector.

use std::fmt::Write as _;

use super::header;
use crate::shared::Shared;

/// Appends the metrics, if there is a collector.
pub fn telemetry(text: &mut String, shared: &Shared) {
    if shared.settings().telemetry.is_none() {
        return;
    }
    let (sent, lost, failed) = shared.telemetry.all();
    let skipped = shared.spans.as_ref().map_or(0, |spans| spans.skipped());
    let name = "barid_telemetry_spans_total";
    header(text, name, "counter", "Spans of messages, by what has become of them.");
    for (outcome, count) in [("sent", sent), ("lost", lost), ("skipped", skipped)] {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    let name = "barid_telemetry_failures_total";
    header(text, name, "counter", "Requests to the collector that have failed.");
    let _ = writeln!(text, "{name} {failed}");
}
