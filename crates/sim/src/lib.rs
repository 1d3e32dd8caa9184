//! Random histories of a broker that crashes.
//!
//! A history is made of a seed: some clients, a network that delays and loses connections, disks that fail,
//! and a broker whose process ends at any moment. The broker is the real `barid-core` over the real write
//! sets and a store that forgets what was not durable, joined by [`rules`]. In the end nothing fails any
//! more, and what clients have got is compared with what they were promised. The same seed gives the same
//! history, to the byte.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rules`] | what a broker over the core has to keep to; each can be broken |
//! | [`messages`] | messages: their broker, clients, world and promises |
//! | [`state_store`] | the same for the state store |
//! | [`entities`] | the same for entities with message sessions |
//! | [`linearizability`] | whether what clients saw could have happened one after the other |
//! | `durable` | shards and their committers, for all |
//! | `world` | what happens next, for all |
//! | `network` | connections that break |
//! | `history` | what happened, to read and to compare |

mod durable;
pub mod entities;
mod history;
pub mod linearizability;
pub mod messages;
mod network;
pub mod rules;
pub mod state_store;
mod world;

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
