//! Metrics of the bindings between MQTT and entities.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::header;
use crate::shared::Shared;
use crate::tenant_labels::{Named, escaped};

/// Value of the `binding` label for the sum of those of tenants without series of their own; no binding's name.
const OTHERS: &str = "*";

/// Appends the metrics of all bindings, including deleted ones.
pub fn bindings(text: &mut String, shared: &Shared, named: &Named) {
    let name = "barid_binding_messages_total";
    header(text, name, "counter", "Messages that reached a binding.");
    let mut sums: BTreeMap<_, [u64; 2]> = BTreeMap::new();
    for tenant in shared.engine.tenants.all() {
        let is_own = named.is_own(&tenant.name);
        for (binding, way, counts) in tenant.bindings.counts() {
            let binding = if is_own { escaped(&binding) } else { OTHERS.into() };
            let [passed, refused] =
                sums.entry((named.label(&tenant.name), binding, way.name())).or_default();
            *passed += counts.passed();
            *refused += counts.refused();
        }
    }
    for ((tenant, binding, way), [passed, refused]) in sums {
        for (outcome, count) in [("passed", passed), ("refused", refused)] {
            let _ = writeln!(
                text,
                "{name}{{tenant=\"{tenant}\",binding=\"{binding}\",way=\"{way}\",outcome=\"{outcome}\"}} {count}"
            );
        }
    }
}
