//! Bindings in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::binding::{Binding, BindingError, Way};
use super::template::Template;
use crate::entities::{self, DeclaredBy, Entities, Node};

/// A binding in force, with its counters.
#[derive(Debug)]
pub struct Bound {
    /// The declaration.
    pub binding: Binding,
    /// The origin of the declaration.
    pub declared_by: DeclaredBy,
    /// The counters of all bindings of this name and direction.
    pub counts: Arc<Counts>,
    /// The canonical key of its entity.
    pub(super) entity: Box<str>,
    /// The direction, with its parameters.
    pub passage: Passage,
}

/// The direction of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From MQTT into an entity.
    In,
    /// From an entity to MQTT.
    Out,
}

impl Direction {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// The direction of a binding, with its parameters.
#[derive(Debug)]
pub enum Passage {
    /// From MQTT into the entity.
    In {
        /// The topic filter: messages to matching topics are taken.
        filter: Box<str>,
        /// The session id that a message gets, if it gets one.
        session: Option<Template>,
    },
    /// From the entity to MQTT.
    Out {
        /// The MQTT topic.
        publish: Template,
        /// The QoS, from 0 to 2.
        qos: u8,
        /// The RETAIN flag.
        retain: bool,
    },
}

/// Message counters of the bindings of one name and direction since the process started. They go on when a
/// binding is changed, or deleted and set again.
#[derive(Debug, Default)]
pub struct Counts {
    passed: AtomicU64,
    refused: AtomicU64,
}

impl Bound {
    /// Puts a declaration in force.
    ///
    /// # Errors
    /// [`BindingError`] if the declaration is invalid.
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

    /// The name, unique in the tenant.
    pub fn name(&self) -> &str {
        &self.binding.name
    }

    /// Returns the entity, if it exists among the `entities` of the tenant and can be used in the binding's
    /// direction.
    ///
    /// # Errors
    /// The reason why it cannot be used. The binding carries no messages then.
    pub fn node(&self, entities: Option<&Arc<Entities>>) -> Result<Node, &'static str> {
        let node = entities.and_then(|entities| entities.find_key(&self.entity));
        match node.ok_or("there is no queue, topic or subscription of that name")? {
            Node::Queue(queue) if self.is_in() && queue.is_subscription() => {
                Err("messages are sent to topics, not to their subscriptions")
            }
            Node::Topic(_) if !self.is_in() => Err(
                "messages are received from the subscriptions of a topic, not from the topic itself",
            ),
            Node::Queue(queue) if !self.is_in() && queue.forwards() => {
                Err("the entity forwards all of its messages")
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
    /// Number of messages that were handed on.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Number of messages that were not handed on: refused by the entity, or dead-lettered because they
    /// cannot be published.
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
