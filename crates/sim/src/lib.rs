//! Random histories of a broker that crashes.
//!
//! A history is made of a seed: some clients, a network that delays and loses connections, disks that fail,
//! and a broker whose process ends at any moment. The broker is the engine that ships, over logs and stores that forget
//! what was not durable; clients speak MQTT or AMQP with it, in bytes. In the end nothing fails any more, and what clients have got is
//! compared with what they were promised. The same seed gives the same history, to the byte.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rules`] | what a broker has to keep to; each can be broken |
//! | `process` | the broker's process: the engine on one thread |
//! | `environment`, `log`, `forgetful` | what it is given: time and random numbers, logs, and what a start finds in stores |
//! | `messages` | messages: their clients, story and promises |
//! | `state_store` | the same for the state store |
//! | `entities` | the same for entities, with and without message sessions |
//! | [`linearizability`] | whether what clients saw could have happened one after the other |
//! | `world` | what happens next, for all |
//! | `network` | connections that break |
//! | `packets` | what clients and broker say to each other |
//! | `history` | what happened, to read and to compare |

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

/// A kind of histories.
#[derive(Clone, Copy)]
pub struct Kind {
    /// What it is called where one is chosen.
    pub flag: &'static str,
    /// The history of a seed, in which the broker goes by these rules. If it is to be readable, it is kept
    /// line by line.
    pub run: fn(seed: u64, rules: Rules, readable: bool) -> Outcome,
    /// The rules that matter.
    pub rules: &'static [Rule],
}

impl Kind {
    /// Of messages.
    pub const MESSAGES: Self =
        Self { flag: "--messages", run: run::<Messages>, rules: Rule::OF_MESSAGES };
    /// Of the state store.
    pub const STATE_STORE: Self =
        Self { flag: "--state-store", run: run::<StateStore>, rules: Rule::OF_STATE };
    /// Of entities with message sessions.
    pub const ENTITIES: Self =
        Self { flag: "--entities", run: run::<Entities>, rules: Rule::OF_ENTITIES };
    /// All.
    pub const ALL: [Self; 3] = [Self::MESSAGES, Self::STATE_STORE, Self::ENTITIES];
}

fn run<S: Story>(seed: u64, rules: Rules, readable: bool) -> Outcome {
    World::<S>::new(seed, rules, readable).run()
}

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
