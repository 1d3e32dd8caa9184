//! Slots that change their broker: what is wanted, and what is known of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_engine::cluster::{Moved, Slots};
use barid_engine::engine::Engine;
use barid_engine::managed::ManagedKind;
use barid_engine::moving::homes_have_changed;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

/// Maximum number of moves that wait.
const WAITING_MAX: usize = 64;

/// A slot that is to be moved to another broker.
pub struct WantedMove {
    /// The slot, which this broker has.
    pub slot: u16,
    /// The name of the broker that is to get it.
    pub to: String,
    /// Told of the outcome.
    pub reply: oneshot::Sender<Result<Given, NotMoved>>,
}

/// A slot that was moved.
#[derive(Clone, Debug)]
pub struct Given {
    /// Number of its moves.
    pub generation: u64,
    /// Number of its sessions.
    pub sessions: usize,
    /// Size of its records, in bytes.
    pub bytes: usize,
    /// Time for which its clients could not connect, in milliseconds.
    pub closed_ms: u64,
    /// Time for which no broker took messages from clients, in milliseconds.
    pub held_ms: u64,
    /// Whether the other broker has said that its clients can connect. Otherwise it will when it can be reached.
    pub is_active: bool,
}

/// Why a slot is not moved.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotMoved {
    /// Another broker has it.
    #[error("the slot {0} belongs to the broker {1}")]
    NotHere(u16, String),
    /// The broker has it already.
    #[error("the broker {1} has the slot {0} already")]
    Already(u16, String),
    /// There is no such broker, or it cannot be reached.
    #[error(
        "the broker {0} is not up, or there is none of that name: `barid cluster members` lists all"
    )]
    NotUp(String),
    /// A broker can be reached only by some others, or joins.
    #[error("the broker {0} is {1}: slots are moved when all brokers are up, down or stopped")]
    Unsettled(String, &'static str),
    /// The slot is being moved.
    #[error("the slot {0} is being moved already")]
    Busy(u16),
    /// Something went wrong. The slot stays.
    #[error("the slot stays where it is: {0}")]
    Failed(String),
}

/// The moves of a broker.
#[derive(Debug)]
pub struct Moves {
    wanted: mpsc::Sender<WantedMove>,
    receiver: Mutex<Option<mpsc::Receiver<WantedMove>>>,
    /// Changes when slots have other brokers.
    pub changed: watch::Sender<()>,
    /// The slots that are leaving this broker, each with the broker that is to get it.
    leaving: Mutex<BTreeMap<u16, String>>,
    come: AtomicU64,
    gone: AtomicU64,
}

impl Default for Moves {
    fn default() -> Self {
        let (wanted, receiver) = mpsc::channel(WAITING_MAX);
        let receiver = Mutex::new(Some(receiver));
        let (changed, leaving, come, gone) = Default::default();
        Self { wanted, receiver, changed, leaving, come, gone }
    }
}

impl Moves {
    /// Asks for a move. Returns false if too many wait.
    pub fn want(&self, wanted: WantedMove) -> bool {
        self.wanted.try_send(wanted).is_ok()
    }

    /// Returns what is asked for, for the one who moves. Returns `None` the second time.
    pub fn take_wanted(&self) -> Option<mpsc::Receiver<WantedMove>> {
        self.receiver.lock().take()
    }

    /// Notes that a slot is leaving.
    pub fn begin(&self, slot: u16, to: &str) {
        self.leaving.lock().insert(slot, to.to_owned());
    }

    /// Notes that a slot has left, or stays.
    pub fn end(&self, slot: u16) {
        self.leaving.lock().remove(&slot);
    }

    /// Counts a slot that has come from another broker.
    pub fn count_come(&self) {
        self.come.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a slot that has gone to another broker.
    pub fn count_gone(&self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of slots that have come from other brokers.
    pub fn come(&self) -> u64 {
        self.come.load(Ordering::Relaxed)
    }

    /// Number of slots that have gone to other brokers.
    pub fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the broker that is to get a slot, if that is leaving this one.
    pub fn of(&self, slot: u16) -> Option<String> {
        self.leaving.lock().get(&slot).cloned()
    }
}

/// A slot that was moved, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    broker: String,
    generation: u64,
}

/// Returns the text under which a move is stored.
pub fn stored(moved: &Moved) -> String {
    let stored = Stored { broker: (*moved.broker).to_owned(), generation: moved.generation };
    serde_json::to_string(&stored).expect("a name and a number can be written")
}

/// Notes all moves that are stored, at any time.
pub fn follow_moves(engine: &Arc<Engine>, slots: &Arc<Slots>, changed: &watch::Sender<()>) {
    let (following, slots, changed) = (Arc::downgrade(engine), Arc::clone(slots), changed.clone());
    engine.managed.on_change(move |kind, name| {
        let Some(engine) = following.upgrade().filter(|_| kind == ManagedKind::Slot) else {
            return;
        };
        let Some(text) = engine.managed.get(kind, name) else { return };
        let stored = serde_json::from_str::<Stored>(&text);
        let (Ok(slot), Ok(Stored { broker, generation })) = (name.parse(), stored) else {
            warn!(slot = name, "where a slot was moved cannot be read: is another broker newer?");
            return;
        };
        if slots.note(slot, Moved { broker: broker.into(), generation }) {
            homes_have_changed(&engine);
            changed.send_replace(());
        }
    });
}
