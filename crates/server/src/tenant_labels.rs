//! Which tenants have series of their own in metrics, and the labels of all.

use std::collections::HashMap;

use barid_engine::names::OTHERS;
use parking_lot::Mutex;

/// Maximum number of tenants with series of their own. The others are summed up under [`OTHERS`], which is no tenant's
/// name.
const TENANTS_MAX: usize = 1_000;

/// The tenants that were seen, and whether they have series of their own. This never changes while a tenant is known: a sum
/// that a tenant enters or leaves would jump, and counters must not go back.
#[derive(Debug, Default)]
pub struct Labels(Mutex<HashMap<String, bool>>);

impl Labels {
    /// Forgets all tenants that are not among these, and decides about those that are new.
    pub fn follow<'a>(&self, names: impl Iterator<Item = &'a str>) -> Named {
        let mut known = self.0.lock();
        let mut now: HashMap<String, bool> = HashMap::new();
        let mut fresh = Vec::new();
        for name in names {
            match known.remove(name) {
                Some(is_own) => _ = now.insert(name.into(), is_own),
                None => fresh.push(name),
            }
        }
        let mut own = now.values().filter(|is_own| **is_own).count();
        for name in fresh {
            now.insert(name.into(), own < TENANTS_MAX);
            own += usize::from(own < TENANTS_MAX);
        }
        known.clone_from(&now);
        Named(now)
    }
}

/// The labels of the tenants of one answer.
#[derive(Debug)]
pub struct Named(HashMap<String, bool>);

impl Named {
    /// Whether a tenant has series of its own. One that was created a moment ago is one of the others.
    pub fn is_own(&self, tenant: &str) -> bool {
        self.0.get(tenant).copied().unwrap_or(false)
    }

    /// The value of the label of a tenant.
    pub fn label(&self, tenant: &str) -> String {
        if self.is_own(tenant) { escaped(tenant) } else { OTHERS.into() }
    }
}

/// Escapes a text for use as the value of a label.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|number| format!("t{number}")).collect()
    }

    fn own(labels: &Labels, names: &[String]) -> Vec<bool> {
        let named = labels.follow(names.iter().map(String::as_str));
        names.iter().map(|name| named.is_own(name)).collect()
    }

    #[test]
    fn a_tenant_keeps_its_place_while_it_is_known() {
        let labels = Labels::default();
        let first = names(0..TENANTS_MAX + 10);
        assert_eq!(own(&labels, &first).iter().filter(|own| **own).count(), TENANTS_MAX);
        // Some with series of their own go. Those of the others that stay do not take their places, new ones do.
        let rest = [&first[5..], &names(5_000..5_010)[..]].concat();
        let again = own(&labels, &rest);
        assert!(again[..TENANTS_MAX - 5].iter().all(|own| *own));
        assert!(!again[TENANTS_MAX - 5..TENANTS_MAX + 5].iter().any(|own| *own));
        assert_eq!(again[TENANTS_MAX + 5..].iter().filter(|own| **own).count(), 5);
    }

    #[test]
    fn names_are_escaped_and_others_are_one() {
        let named = Labels::default().follow(["a\"b"].into_iter());
        assert_eq!((named.label("a\"b"), named.label("x")), ("a\\\"b".into(), OTHERS.into()));
    }
}
