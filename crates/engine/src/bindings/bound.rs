//! A binding that is in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::binding::{Binding, BindingError, Way};
use super::template::Template;
use crate::entities::{self, DeclaredBy, Entities, Node};

/// A binding, and what has passed it.
#[derive(Debug)]
pub struct Bound {
    /// As it was declared.
    pub binding: Binding,
    /// By whom.
    pub declared_by: DeclaredBy,
    /// What has passed bindings of this name and way.
    pub counts: Arc<Counts>,
    /// The canonical key of its entity.
    pub(super) entity: Box<str>,
    /// From where to where messages go.
    pub passage: Passage,
}

/// From where to where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From MQTT into an entity.
    In,
    /// From an entity to MQTT.
    Out,
}

impl Direction {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Which way messages go, and how.
#[derive(Debug)]
pub enum Passage {
    /// From MQTT into the entity.
    In {
        /// What it takes.
        filter: Box<str>,
        /// The session that a message belongs to.
        session: Option<Template>,
    },
    /// From the entity to MQTT.
    Out {
        /// The topic.
        publish: Template,
        /// The QoS, from 0 to 2.
        qos: u8,
        /// The RETAIN flag.
        retain: bool,
    },
}

/// What has passed the bindings of one name and way since the process began, also before a change and while there
/// was none.
#[derive(Debug, Default)]
pub struct Counts {
    passed: AtomicU64,
    refused: AtomicU64,
}

impl Bound {
    /// A binding in force.
    ///
    /// # Errors
    /// It makes no sense.
    pub(super) fn new(
        binding: &Binding,
        declared_by: DeclaredBy,
        counts_of: impl FnOnce(Direction) -> Arc<Counts>,
    ) -> Result<Self, BindingError> {
        let (entity, passage) = match binding.way()? {
            Way::In { filter, to, session } => {
                (to, Passage::In { filter: filter.into(), session: session.cloned() })
            }
            Way::Out { from, publish, qos, retain } => {
                (from, Passage::Out { publish: publish.clone(), qos, retain })
            }
        };
        let (entity, binding) = (entities::key(entity), binding.clone());
        let direction = passage.direction();
        Ok(Self { binding, declared_by, counts: counts_of(direction), entity, passage })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.binding.name
    }

    /// The entity, if it is there among those of its tenant and can be what the binding wants of it.
    ///
    /// # Errors
    /// Why not: the binding carries nothing.
    pub fn node(&self, entities: Option<&Arc<Entities>>) -> Result<Node, &'static str> {
        let node = entities.and_then(|entities| entities.find_key(&self.entity));
        match node.ok_or("there is no queue, topic or subscription of that name")? {
            Node::Queue(queue) if self.is_in() && queue.is_subscription() => {
                Err("messages are sent to topics, not to their subscriptions")
            }
            Node::Topic(_) if !self.is_in() => {
                Err("messages are received from the subscriptions of a topic, not from itself")
            }
            Node::Queue(queue) if !self.is_in() && queue.forwards() => {
                Err("it forwards all of its messages")
            }
            node => Ok(node),
        }
    }

    /// Whether messages go from MQTT into an entity.
    pub fn is_in(&self) -> bool {
        self.passage.direction() == Direction::In
    }
}

impl Passage {
    fn direction(&self) -> Direction {
        match self {
            Self::In { .. } => Direction::In,
            Self::Out { .. } => Direction::Out,
        }
    }
}

impl Counts {
    /// Messages that were handed on.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Messages that were not: refused by the entity, or dead-lettered because they cannot be published.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts messages that were handed on.
    pub fn pass(&self, messages: usize) {
        self.passed.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// Counts messages that were refused.
    pub fn refuse(&self, messages: usize) {
        self.refused.fetch_add(messages as u64, Ordering::Relaxed);
    }
}
