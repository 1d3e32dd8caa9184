//! Deterministic simulation of a broker that crashes.
//!
//! A history follows from a seed. It has some clients, a network that delays and loses connections, disks that
//! fail, and a broker whose process ends at any moment. The broker is the production engine, over logs and
//! stores that lose what was not durable. Its clients speak MQTT or AMQP, in bytes. At the end nothing fails
//! any more, and what the clients received is compared with what they were promised. The same seed gives the
//! same history, byte for byte.
//!
//! | module | contents |
//! | --- | --- |
//! | [`rules`] | rules that a broker must follow; each can be broken |
//! | `process` | the broker's process: the engine on one thread |
//! | `environment`, `log`, `forgetful` | inputs of the engine: time and random numbers, logs, and what a start finds in stores |
//! | `messages` | MQTT messages: clients, story and promises |
//! | `state_store` | the same for the state store |
//! | `entities` | the same for entities, with and without message sessions |
//! | `cluster` | several brokers, and MQTT messages between them |
//! | [`linearizability`] | search for a sequential order that explains what clients saw |
//! | `world` | the choice of the next event, for all kinds of histories |
//! | `network` | connections that break |
//! | `packets` | packets that clients and broker exchange |
//! | `history` | the events, to read and to compare |

mod cluster;
mod entities;
mod environment;
mod forgetful;
mod history;
pub mod linearizability;
mod log;
mod messages;
mod network;
mod packets;
mod process;
pub mod rules;
mod state_store;
mod world;

use entities::Entities;
use messages::Messages;
use rules::{Rule, Rules};
use state_store::StateStore;
use world::{Story, World};

/// A kind of history: the protocol that its clients use, and the promises that are checked.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Command line flag that selects this kind.
    pub flag: &'static str,
    /// Runs the history of `seed`, in which the broker follows `rules`. If `readable`, the outcome has the
    /// history line by line.
    pub run: fn(seed: u64, rules: Rules, readable: bool) -> Outcome,
    /// The rules whose violation such histories notice.
    pub rules: &'static [Rule],
}

impl Kind {
    /// Histories of MQTT messages.
    pub const MESSAGES: Self =
        Self { flag: "--messages", run: run::<Messages>, rules: Rule::OF_MESSAGES };
    /// Histories of the state store.
    pub const STATE_STORE: Self =
        Self { flag: "--state-store", run: run::<StateStore>, rules: Rule::OF_STATE };
    /// Histories of entities, with and without message sessions.
    pub const ENTITIES: Self =
        Self { flag: "--entities", run: run::<Entities>, rules: Rule::OF_ENTITIES };
    /// Histories of several brokers.
    pub const CLUSTER: Self =
        Self { flag: "--cluster", run: cluster::run, rules: Rule::OF_CLUSTERS };
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::MESSAGES, Self::STATE_STORE, Self::ENTITIES, Self::CLUSTER];
}

fn run<S: Story>(seed: u64, rules: Rules, readable: bool) -> Outcome {
    World::<S>::new(seed, rules, readable).run()
}

/// The result of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Digest of all events and of the bytes of all batches, including batches whose write failed.
    pub digest: u64,
    /// Number of steps until the history came to rest.
    pub steps: u32,
    /// Number of crashes of the broker's process.
    pub crashes: u32,
    /// Number of messages published, or of requests sent.
    pub messages: u32,
    /// Number of messages or responses that clients received.
    pub deliveries: u64,
    /// The first promise that was broken.
    pub violation: Option<String>,
    /// The lines of the history, if it is readable.
    pub lines: Vec<String>,
}
