//! Sends a run of MQTT messages to entities.
//!
//! Entities get the messages before sessions do: if an entity refuses a message, its publisher can be told,
//! and then no session gets it.

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

/// The result of sending a run of messages to entities.
#[derive(Debug, Default)]
pub struct Entered {
    /// Whether an entity has taken any of them.
    pub taken: bool,
    /// The commits that must be durable before the messages count as taken.
    pub commits: Commits,
    /// Refused messages of which the publisher is to be told.
    pub refused: Refused,
}

/// Messages that no target gets: their indexes in the run, in ascending order, and the Reason Codes.
pub type Refused = SmallVec<[(usize, ReasonCode); 2]>;

/// Sends messages to those of the tenant's `entities` that the bindings name. `wall`: the wall time, which
/// entities use. `is_told`: the publisher can be told that a message was refused, and then no further entity
/// gets the message. Otherwise the message is dropped only for the entity that refuses it.
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
        // A message that one entity refuses must not reach the others, so all are checked before any message
        // is sent.
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

/// The messages for one binding.
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
    /// For each message, the state that lets each queue get the message once. Empty if messages may come
    /// twice.
    once: Vec<Once>,
    entered: Entered,
    /// For each message, why it was refused.
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

    /// Notes the messages that the entity would refuse.
    fn check(&mut self, entry: &Entry) {
        for index in 0..self.messages.len() {
            let why = match &entry.node {
                None => Some(Why::NoEntity),
                Some(node) if node.refuses() => Some(Why::NotStored),
                Some(node @ Node::Queue(queue)) if !queue.forwards() => {
                    let message = &entry.messages[index];
                    node.entity().read(|entity| entity.check([message])).err().map(Why::Refused)
                }
                // Other nodes refuse seldom, and only when messages are sent to them.
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
            // The entity takes all messages or none, and one of them may be the cause. So each is sent alone,
            // except if the work was too much.
            is_final = Some(why).filter(|why| matches!(why, Why::TooMuchWork));
        }
        for index in wanted {
            let sent = is_final.map_or_else(|| self.try_send(entry, node, &[index]), Err);
            if let Err(why) = sent {
                let is_closed = matches!(why, Why::NotStored) && node.reaches_closed();
                if is_closed {
                    // The message is not acknowledged, so its client sends it again.
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

/// The reason why an entity does not get a message.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// The entity does not exist, or the binding cannot use it.
    NoEntity,
    /// The entity refuses the message.
    Refused(Refusal),
    /// The disk is full or fails, or the shard is closed.
    NotStored,
    /// Evaluating the rules of the topic's subscriptions would take too long.
    TooMuchWork,
    /// Too many copies would be made of the message and of those sent with it.
    TooManyCopies,
}

impl Why {
    /// Returns the Reason Code for a publisher of MQTT 5.
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
            SendError::TenantFull => Self::Refused(Refusal::QuotaExceeded),
            // Messages that are built here are well-formed.
            SendError::Gone | SendError::Disabled | SendError::Malformed => Self::NoEntity,
            SendError::NotStored => Self::NotStored,
            SendError::TooMuchWork => Self::TooMuchWork,
            SendError::TooManyCopies => Self::TooManyCopies,
        }
    }
}
