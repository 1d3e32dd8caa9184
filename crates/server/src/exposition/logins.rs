//! Logins, in the exposition of metrics.

use std::fmt::Write as _;

use super::{escaped, header};
use crate::shared::Shared;

/// Appends the answers of the back ends of logins. A back end appears when it is first asked.
pub fn logins(text: &mut String, shared: &Shared) {
    let authenticator = &shared.logins.authenticator;
    let name = "barid_logins_total";
    header(text, name, "counter", "Answers of each back end about logins.");
    let mut counts = authenticator.counts().all();
    counts.sort_by(|one, other| one.0.cmp(&other.0));
    for (backend, verdict, count) in counts {
        let (backend, verdict) = (escaped(&backend), verdict.name());
        let _ = writeln!(text, "{name}{{backend=\"{backend}\",answer=\"{verdict}\"}} {count}");
    }
    let name = "barid_remembered_logins";
    header(text, name, "gauge", "Logins that are accepted again without asking a back end.");
    let _ = writeln!(text, "{name} {}", authenticator.remembered());
    let name = "barid_logins_waiting";
    header(text, name, "gauge", "Logins that wait for a thread that verifies password hashes.");
    let _ = writeln!(text, "{name} {}", authenticator.hashing().waiting());
}
