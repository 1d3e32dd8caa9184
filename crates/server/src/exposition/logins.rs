//! Logins, in the exposition of metrics.

use std::fmt::Write as _;

use super::{expiry, header};
use crate::shared::Shared;
use crate::tenant_labels::escaped;

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
    caches(text, shared);
    let name = "barid_remembered_logins";
    header(text, name, "gauge", "Logins that are accepted again without asking a back end.");
    let _ = writeln!(text, "{name} {}", authenticator.remembered());
    let name = "barid_logins_waiting";
    header(text, name, "gauge", "Logins that wait for a thread that verifies password hashes.");
    let _ = writeln!(text, "{name} {}", authenticator.hashing().waiting());
    let name = "barid_revocation_list_expires_timestamp_seconds";
    let help = "When the first certificate revocation list expires, in seconds since 1970.";
    expiry(text, name, help, shared.logins.revocations_expire());
}

fn caches(text: &mut String, shared: &Shared) {
    let caches = shared.logins.caches();
    let name = "barid_login_cache_total";
    header(text, name, "counter", "Look-ups of users in each shared cache.");
    for (backend, cache) in &caches {
        let (backend, counts) = (escaped(backend), cache.counts());
        for (outcome, count) in [
            ("hit", counts.hits),
            ("miss", counts.misses),
            ("distrusted", counts.distrusted),
            ("bypassed", counts.bypassed),
            ("not_written", counts.lost_writes),
        ] {
            let labels = format!("backend=\"{backend}\",outcome=\"{outcome}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {count}");
        }
    }
    let name = "barid_login_cache_up";
    header(text, name, "gauge", "Whether there is a connection to each shared cache.");
    for (backend, cache) in &caches {
        let (backend, is_up) = (escaped(backend), u8::from(cache.counts().is_up));
        let _ = writeln!(text, "{name}{{backend=\"{backend}\"}} {is_up}");
    }
}
