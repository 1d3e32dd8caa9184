//! What has passed the bindings between MQTT and entities.

use std::fmt::Write as _;

use super::{escaped, header};
use crate::broker::Shared;

/// Appends the metrics of all bindings.
pub fn bindings(text: &mut String, shared: &Shared) {
    let name = "barid_binding_messages_total";
    let help = "Messages that came to a binding, since it is as it is.";
    header(text, name, "counter", help);
    for tenant in shared.tenants.all() {
        for bound in tenant.bindings.all() {
            let way = if bound.is_in() { "in" } else { "out" };
            let counts = &bound.counts;
            for (outcome, count) in [("passed", counts.passed()), ("refused", counts.refused())] {
                let (tenant, binding) = (escaped(&tenant.name), escaped(bound.name()));
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{tenant}\",binding=\"{binding}\",way=\"{way}\",outcome=\"{outcome}\"}} {count}"
                );
            }
        }
    }
}
