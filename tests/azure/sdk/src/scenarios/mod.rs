//! The scenarios. Each begins with an empty broker and leaves no client connected.

mod faults;
mod fencing;
mod keys;
mod limits;
mod load;
mod locks;
mod observers;

use crate::client::Broker;

macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => {
        /// Names of all scenarios.
        pub const NAMES: &[&str] = &[$($(stringify!($name)),+),+];

        /// Runs a scenario. Panics if a check fails.
        pub async fn run(name: &str, broker: Broker) {
            match name {
                $($(stringify!($name) => $module::$name(broker).await,)+)+
                _ => unreachable!("the name is one of NAMES"),
            }
        }
    };
}

scenarios! {
    keys: set_get_del vdel only_if_absent only_if_absent_or_equal expiry any_bytes tenants_are_separate;
    fencing: fencing_tokens fencing_tokens_of_deletions future_fencing_token;
    observers: changes_are_told several_keys_and_observers observe_and_unobserve expiry_is_told;
    locks: lease lease_renewal lease_expiry lock_waits contended_counter holder_dies;
    load: large_values many_in_flight keep_alive;
    faults: cut_while_idle cut_while_busy many_in_flight_are_lost observe_again lock_across_a_cut broker_killed;
    limits: key_quota key_rules;
}
