//! Which broker has the session of a client, if it outlives the connection.
//!
//! Each client belongs to a *slot*, and each slot has one broker, its *home*. Nobody decides: all brokers compute the
//! same. A load balancer can compute it, too, and connect a client to its home at once.

use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of slots.
pub const SLOTS_MAX: u16 = 4_096;

/// Maximum number of homes.
pub const HOMES_MAX: usize = 32;

/// The map of slots, the same in all brokers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    slots: u16,
    homes: Vec<String>,
}

impl Placement {
    /// Creates the map in which slot `i` belongs to `homes[i % homes.len()]`. Returns `None` if `slots` is no power of two
    /// up to [`SLOTS_MAX`], if there are fewer slots than homes, more than [`HOMES_MAX`] homes, or none.
    pub fn new(slots: u16, homes: Vec<String>) -> Option<Self> {
        let fits = slots.is_power_of_two()
            && slots <= SLOTS_MAX
            && homes.len() <= HOMES_MAX.min(slots.into());
        (fits && !homes.is_empty()).then_some(Self { slots, homes })
    }

    /// Number of slots.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// The names of all brokers that have slots.
    pub fn homes(&self) -> &[String] {
        &self.homes
    }

    /// Returns the name of the broker that has a slot.
    pub fn home_of(&self, slot: u16) -> &str {
        &self.homes[usize::from(slot) % self.homes.len()]
    }

    /// Whether a broker has slots.
    pub fn has_home(&self, broker: &str) -> bool {
        self.homes.iter().any(|home| home == broker)
    }

    /// Returns the slot of a client: XXH3-64 of `{tenant}/{client identifier}`, modulo the number of slots.
    pub fn slot(&self, tenant: &str, client_id: &str) -> u16 {
        let hash = xxh3_64([tenant, "/", client_id].concat().as_bytes());
        u16::try_from(hash & u64::from(self.slots - 1)).expect("there are fewer slots than that")
    }

    /// Returns the name of the broker that has the session of a client.
    pub fn home(&self, tenant: &str, client_id: &str) -> &str {
        self.home_of(self.slot(tenant, client_id))
    }

    /// Returns the slot of what belongs to a tenant as a whole: its state store, and its entities with their bindings. It is
    /// that of a client with an empty identifier.
    pub fn slot_of_tenant(&self, tenant: &str) -> u16 {
        self.slot(tenant, "")
    }

    /// Returns the name of the broker that has what belongs to a tenant as a whole.
    pub fn home_of_tenant(&self, tenant: &str) -> &str {
        self.home_of(self.slot_of_tenant(tenant))
    }

    /// Returns a number that tells this map from others. It is never 0.
    pub fn fingerprint(&self) -> u64 {
        let text = format!("1 {} {}", self.slots, self.homes.join(" "));
        xxh3_64(text.as_bytes()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(slots: u16, homes: &[&str]) -> Option<Placement> {
        Placement::new(slots, homes.iter().map(|&home| home.to_owned()).collect())
    }

    #[test]
    fn the_slot_is_what_a_balancer_computes() {
        let map = placement(32, &["a", "b", "c"]).unwrap();
        // By the reference implementation, XXH3-64 of "acme/sensor-7" is 0x412239da62bfeccc, and of "acme/pump"
        // 0xdbfc73f1653d01c6.
        assert_eq!((map.slot("acme", "sensor-7"), map.slot("acme", "pump")), (12, 6));
        assert_eq!((map.home("acme", "sensor-7"), map.home("acme", "pump")), ("a", "a"));
        assert_eq!(map.home_of(7), "b");
    }

    #[test]
    fn every_slot_has_one_home_and_all_homes_have_slots() {
        let map = placement(16, &["a", "b", "c"]).unwrap();
        let homes: Vec<_> = (0..16).map(|slot| map.home_of(slot)).collect();
        assert_eq!(homes[..4], ["a", "b", "c", "a"]);
        let mut clients = [0; 3];
        for client in 0..3_000 {
            let home = map.home("t", &client.to_string());
            clients[["a", "b", "c"].iter().position(|name| *name == home).unwrap()] += 1;
        }
        assert!(clients.iter().all(|count| (700..1_300).contains(count)), "{clients:?}");
    }

    #[test]
    fn maps_that_cannot_be_are_refused() {
        for (slots, homes) in
            [(0, &["a"][..]), (3, &["a"]), (8_192, &["a"]), (32, &[]), (1, &["a", "b"])]
        {
            assert_eq!(placement(slots, homes), None, "{slots} {homes:?}");
        }
    }

    #[test]
    fn different_maps_have_different_fingerprints() {
        let maps = [(32, &["a", "b"][..]), (64, &["a", "b"]), (32, &["b", "a"]), (32, &["a b"])];
        let prints: std::collections::BTreeSet<_> = maps
            .iter()
            .map(|(slots, homes)| placement(*slots, homes).unwrap().fingerprint())
            .collect();
        // Names have no spaces, so the last map is not that of any cluster.
        assert_eq!(prints.len(), 3);
        assert!(!prints.contains(&0));
    }
}
