//! Random histories of a broker that crashes.
//!
//! A history is made of a seed: some clients that publish and subscribe, a network that delays and loses
//! connections, disks that fail, and a broker whose process ends at any moment. The broker is the
//! real `barid-core` over the real write sets and a store that forgets what was not durable, joined by
//! [`rules`]. In the end nothing fails any more, all clients come back, and what they have got is
//! compared with what they were [promised](promises). The same seed gives the same history, to the byte.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rules`] | what a broker over the core has to keep to; each can be broken |
//! | `broker` | such a broker, on one thread, one step at a time |
//! | `client` | a client's half of MQTT |
//! | `world` | what happens next |
//! | [`promises`] | what is checked |
//! | [`state_store`] | the same for the state store: its broker, clients, world and promises |
//! | [`entities`] | the same for entities with message sessions |
//! | [`linearizability`] | whether what clients saw could have happened one after the other |
//! | `durable` | shards and their committers, for all |
//! | `network`, `chance` | connections that break, and what else a seed decides, for all |
//! | `history` | what happened, to read and to compare |

mod broker;
mod chance;
mod client;
mod durable;
pub mod entities;
mod history;
pub mod linearizability;
mod network;
mod packet;
pub mod promises;
pub mod rules;
pub mod state_store;
mod world;

use rules::Rules;
use world::World;

/// What became of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// A number for all events and all bytes that were to be written.
    pub digest: u64,
    /// Steps until it came to rest.
    pub steps: u32,
    /// How often the broker's process ended.
    pub crashes: u32,
    /// Messages published, or requests sent.
    pub messages: u32,
    /// Messages or answers that clients got.
    pub deliveries: u64,
    /// The promise that was broken.
    pub violation: Option<String>,
    /// The history, if it was to be readable.
    pub lines: Vec<String>,
}

/// The history of a seed, in which the broker goes by `rules`. `readable`: it is kept line by line.
pub fn run(seed: u64, rules: Rules, readable: bool) -> Outcome {
    World::new(seed, rules, readable).run()
}
