//! From a run of MQTT messages into entities.
//!
//! It comes before anybody else gets them: what an entity refuses, its publisher can be told, and then
//! nobody has it.

use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::entity::{Incoming, Refusal};
use barid_core::time::WallTime;
use mqtt_proto::ReasonCode;
use smallvec::SmallVec;

use super::bound::{Bound, Passage};
use super::incoming::incoming;
use crate::account::Account;
use crate::durable::Commits;
use crate::entities::{Batch, Entities, Node, Once, SendError};
use crate::run::Messages;
use crate::worker::Worker;

/// What became of a run of messages.
#[derive(Debug, Default)]
pub struct Entered {
    /// Whether an entity has taken any of them.
    pub taken: bool,
    /// What has to be durable before they count as taken.
    pub commits: Commits,
    /// Those that their publisher is to be told of.
    pub refused: Refused,
}

/// Messages that nobody gets, by their place in the run, in order.
pub type Refused = SmallVec<[(usize, ReasonCode); 2]>;

/// Sends messages to those of the tenant's `entities` that the bindings name. `wall`: the time of entities.
/// `is_told`: the publisher can be told that a message was refused, and then no other entity gets it; otherwise it is
/// dropped for the entity that refuses it only.
pub fn enter(
    bindings: &[Arc<Bound>],
    (worker, wall): (&Worker, WallTime),
    (account, entities): (&Account, Option<&Arc<Entities>>),
    client: &str,
    messages: &Messages<'_>,
    is_told: bool,
) -> Entered {
    let tenant = account.stored_number();
    let once = |index| {
        let (publisher, id) = messages.received_as(index)?;
        Some(Once::new(tenant, publisher, id))
    };
    let mut entering = Entering {
        worker,
        wall,
        account,
        entities,
        messages,
        once: (0..messages.len()).filter_map(once).collect(),
        entered: Entered::default(),
        is_refused: vec![None; messages.len()],
    };
    let entries: SmallVec<[Entry; 2]> =
        bindings.iter().map(|bound| entering.entry(bound, client)).collect();
    if is_told && entries.len() > 1 {
        // One that refuses, refuses for all of them.
        entries.iter().for_each(|entry| entering.check(entry));
    }
    for entry in &entries {
        entering.send(entry, is_told);
    }
    let Entering { mut entered, is_refused, .. } = entering;
    if is_told {
        let refused = is_refused.into_iter().enumerate();
        entered.refused = refused.filter_map(|(index, why)| Some((index, why?.code()))).collect();
    }
    entered
}

/// What one binding is to take.
struct Entry {
    bound: Arc<Bound>,
    node: Option<Node>,
    messages: Vec<Incoming>,
}

struct Entering<'a> {
    worker: &'a Worker,
    wall: WallTime,
    account: &'a Account,
    entities: Option<&'a Arc<Entities>>,
    messages: &'a Messages<'a>,
    /// Each of the messages, if each queue gets them once.
    once: Vec<Once>,
    entered: Entered,
    /// Why a message goes nowhere.
    is_refused: Vec<Option<Why>>,
}

impl Entering<'_> {
    fn entry(&self, bound: &Arc<Bound>, client: &str) -> Entry {
        let Passage::In { session, .. } = &bound.passage else {
            unreachable!("what is found by topic goes in")
        };
        let node = bound.node(self.entities).ok();
        let now = self.worker.now;
        let random = self.account.random;
        let one = |index| {
            incoming(&self.messages.publication(index), client, session.as_ref(), now, random)
        };
        let count = if node.is_some() { self.messages.len() } else { 0 };
        Entry { bound: Arc::clone(bound), node, messages: (0..count).map(one).collect() }
    }

    /// Notes what would be refused.
    fn check(&mut self, entry: &Entry) {
        for index in 0..self.messages.len() {
            let why = match &entry.node {
                None => Some(Why::NoEntity),
                Some(node) if node.refuses() => Some(Why::NotStored),
                Some(node @ Node::Queue(queue)) if !queue.forwards() => {
                    let message = &entry.messages[index];
                    node.entity().read(|entity| entity.check([message])).err().map(Why::Refused)
                }
                // Others refuse seldom, and are asked when it is sent.
                Some(_) => None,
            };
            if let Some(why) = why.filter(|_| self.is_refused[index].is_none()) {
                self.refuse(&entry.bound, index, why, true);
            }
        }
    }

    fn send(&mut self, entry: &Entry, is_told: bool) {
        let wanted: SmallVec<[usize; 16]> = (0..self.messages.len())
            .filter(|index| !is_told || self.is_refused[*index].is_none())
            .collect();
        let Some(node) = &entry.node else {
            for index in wanted {
                self.refuse(&entry.bound, index, Why::NoEntity, is_told);
            }
            return;
        };
        if wanted.is_empty() {
            return;
        }
        let mut is_final = None;
        if self.once.is_empty() {
            let Err(why) = self.try_send(entry, node, &wanted) else { return };
            // All or none: perhaps one of them is why. What costs too much is not tried again.
            is_final = Some(why).filter(|why| matches!(why, Why::TooMuchWork));
        }
        for index in wanted {
            let sent = is_final.map_or_else(|| self.try_send(entry, node, &[index]), Err);
            if let Err(why) = sent {
                let is_closed = matches!(why, Why::NotStored) && node.reaches_closed();
                if is_closed {
                    // It is not acknowledged, and comes again.
                    self.entered.commits.join(&node.entity().lost());
                }
                self.refuse(&entry.bound, index, why, is_told && !is_closed);
            }
        }
    }

    fn try_send(&mut self, entry: &Entry, node: &Node, wanted: &[usize]) -> Result<(), Why> {
        let (now, commits) = (self.wall, &mut self.entered.commits);
        match wanted {
            [index] if let Some(once) = self.once.get(*index) => {
                node.send_once(entry.messages[*index].clone(), once, now, commits)?;
            }
            _ => {
                let batch = wanted.iter().map(|index| entry.messages[*index].clone());
                node.send(batch.collect::<Batch>(), now, commits)?;
            }
        }
        entry.bound.counts.pass(wanted.len());
        self.entered.taken = true;
        Ok(())
    }

    fn refuse(&mut self, bound: &Bound, index: usize, why: Why, is_told: bool) {
        bound.counts.refuse(1);
        let whom = format!("$bindings/{}", bound.name());
        self.account.dropped(self.worker, why.reason(), Some(self.messages.topic()), &whom);
        if is_told {
            self.is_refused[index].get_or_insert(why);
        }
    }
}

/// Why an entity does not get a message.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// There is none.
    NoEntity,
    /// It refuses.
    Refused(Refusal),
    /// The disk is full or broken.
    NotStored,
    /// The rules of a topic's subscriptions would take too long.
    TooMuchWork,
    /// Too many copies would be made of it and of those that came with it.
    TooManyCopies,
}

impl Why {
    /// What a publisher of MQTT 5 is told.
    fn code(self) -> ReasonCode {
        match self.reason() {
            DropReason::BindingFull | DropReason::BindingTooLarge | DropReason::StoreFull => {
                ReasonCode::QuotaExceeded
            }
            _ => ReasonCode::ImplementationSpecificError,
        }
    }

    fn reason(self) -> DropReason {
        match self {
            Self::NoEntity => DropReason::BindingNoEntity,
            Self::NotStored => DropReason::StoreFull,
            Self::Refused(Refusal::SessionIdMissing | Refusal::IdTooLong) => {
                DropReason::BindingSession
            }
            Self::Refused(Refusal::MessageTooLarge) | Self::TooMuchWork | Self::TooManyCopies => {
                DropReason::BindingTooLarge
            }
            Self::Refused(_) => DropReason::BindingFull,
        }
    }
}

impl From<SendError> for Why {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(refusal) => Self::Refused(refusal),
            // What is made here is well-formed.
            SendError::Gone | SendError::Malformed => Self::NoEntity,
            SendError::NotStored => Self::NotStored,
            SendError::TooMuchWork => Self::TooMuchWork,
            SendError::TooManyCopies => Self::TooManyCopies,
        }
    }
}
