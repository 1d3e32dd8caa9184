//! Histories of several brokers: MQTT messages and requests to the state store that cross from one to the other.
//!
//! Each broker is a process with the shipped engine, its membership and the frames of its links. Between the brokers are
//! connections that delay, break and are cut in one direction or both; processes stop and go on, crash and start again;
//! clocks have different rates. Handshakes and TLS are left out: who may open a link is asked directly.
//!
//! | file | what is there |
//! | --- | --- |
//! | `world/mod.rs` | the brokers, the clients, and the choice of the next event |
//! | `world/between.rs`, `clients.rs`, `trouble.rs` | what passes between brokers; the clients; faults |
//! | `world/askers.rs` | clients of the state store |
//! | `node.rs` | one broker |
//! | `links.rs` | the connections between brokers |
//! | `promises.rs` | what the clients were promised |

mod links;
mod node;
mod promises;
mod world;

use crate::Outcome;
use crate::rules::Rules;

/// Number of brokers.
const NODES: usize = 3;

/// Runs the history of `seed`.
pub fn run(seed: u64, rules: Rules, readable: bool) -> Outcome {
    world::World::new(seed, rules, readable).run()
}
