//! Metrics of the process, under the names that Prometheus' own clients use, of its disk and of its host.

use std::fmt::Write as _;

use super::{expiry, header};
use crate::process::{Host, Usage};
use crate::shared::Shared;

/// Appends the metrics. A value that the system does not report is left out.
pub fn process(text: &mut String, shared: &Shared) {
    let name = "barid_build_info";
    header(text, name, "gauge", "The version that runs; the value is always 1.");
    let _ = writeln!(text, "{name}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    let name = "barid_certificate_expires_timestamp_seconds";
    let help = "When the certificate of the TLS listeners expires, in seconds since 1970.";
    expiry(text, name, help, shared.certificate_expires());
    let clock = shared.engine.clock;
    let start = clock.wall().before(clock.uptime()).as_millis() as f64 / 1_000.0;
    let usage = Usage::now();
    let host = Host::now();
    let network = |place: usize| host.network_bytes.map(|bytes| bytes[place] as f64);
    let memory = |place: usize| host.memory_bytes.map(|bytes| bytes[place] as f64);
    let all: [(&str, &str, &str, Option<f64>); 11] = [
        (
            "process_cpu_seconds_total",
            "counter",
            "User and system CPU time of the process.",
            usage.cpu_seconds,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of the process.",
            usage.resident_bytes,
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory of the process.",
            usage.virtual_bytes,
        ),
        (
            "process_open_fds",
            "gauge",
            "Open file descriptors of the process.",
            usage.open_descriptors.map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            usage.max_descriptors.map(|limit| limit as f64),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970.",
            Some(start),
        ),
        (
            "process_network_receive_bytes_total",
            "counter",
            "Bytes that the host or container of the process has received over IP.",
            network(0),
        ),
        (
            "process_network_transmit_bytes_total",
            "counter",
            "Bytes that the host or container of the process has sent over IP.",
            network(1),
        ),
        ("barid_host_memory_bytes", "gauge", "Memory of the host.", memory(0)),
        (
            "barid_host_memory_available_bytes",
            "gauge",
            "Memory of the host that programs can still use.",
            memory(1),
        ),
        (
            "barid_store_free_bytes",
            "gauge",
            "Bytes that can still be written to the disk of the data directory.",
            barid_store::free_bytes(&shared.settings().data_dir).ok().map(|bytes| bytes as f64),
        ),
    ];
    for (name, kind, help, value) in all {
        header(text, name, kind, help);
        if let Some(value) = value {
            let _ = writeln!(text, "{name} {value}");
        }
    }
    let name = "barid_host_cpu_seconds_total";
    header(text, name, "counter", "CPU time of all processors of the host, by use.");
    for (state, seconds) in ["busy", "idle"].iter().zip(host.cpu_seconds.into_iter().flatten()) {
        let _ = writeln!(text, "{name}{{state=\"{state}\"}} {seconds}");
    }
}
