//! Metrics of the bindings between MQTT and entities.

use std::fmt::Write as _;

use super::{escaped, header};
use crate::shared::Shared;

/// Appends the metrics of all bindings, including deleted ones.
pub fn bindings(text: &mut String, shared: &Shared) {
    let name = "barid_binding_messages_total";
    header(text, name, "counter", "Messages that reached a binding.");
    for tenant in shared.engine.tenants.all() {
        let tenant_label = escaped(&tenant.name);
        for (binding, way, counts) in tenant.bindings.counts() {
            let (binding, way) = (escaped(&binding), way.name());
            for (outcome, count) in [("passed", counts.passed()), ("refused", counts.refused())] {
                let _ = writeln!(
                    text,
                    "{name}{{tenant=\"{tenant_label}\",binding=\"{binding}\",way=\"{way}\",outcome=\"{outcome}\"}} {count}"
                );
            }
        }
    }
}
