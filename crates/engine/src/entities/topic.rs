//! Topics: each subscription gets a copy of the messages that its rules match.

use std::fmt;
use std::sync::Arc;

use barid_core::entity::{Incoming, Overlay, Part, Refusal};
use barid_core::rules::{RULE_NAME, Rule};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use smallvec::SmallVec;

use super::configured::Configured;
use super::properties::{MessageProperties, Work};
use super::queue::Queue;
use super::sending::{self, Batch, COPIES_MAX, Forward, Numbers, SendError, Way};
use crate::durable::Commits;
use crate::sync::{Mutex, RwLock};

/// Dead-letter reason of a message without a session id in a subscription that requires sessions.
const NO_SESSION: &str = "Session ID is null";

/// Maximum number of steps, of about ten nanoseconds each, that the rules of all subscriptions may take for one
/// batch. A batch that needs more is refused as [`SendError::TooMuchWork`], because others that share the thread
/// wait in the meantime.
const WORK_MAX: usize = 1_000_000;

/// A topic.
pub struct Topic {
    /// The queue that holds scheduled messages until they are given to the subscriptions.
    held: Arc<Queue>,
    /// The subscriptions, sorted by key. The slice is replaced as a whole.
    subscriptions: RwLock<Arc<[Arc<Queue>]>>,
    /// Held while messages are given to the subscriptions: all of them take a batch, or none. What was checked
    /// under this lock holds until it is released, because subscriptions take messages from nowhere else.
    sending: Mutex<()>,
}

impl Topic {
    /// Creates a topic without subscriptions.
    pub(super) fn new(held: Arc<Queue>) -> Self {
        Self { held, subscriptions: RwLock::new(Arc::new([])), sending: Mutex::default() }
    }

    /// The topic's path, as it was declared.
    pub fn path(&self) -> &str {
        self.held.path()
    }

    /// The topic's canonical key.
    pub fn key(&self) -> &str {
        self.held.key()
    }

    /// The topic's definition, and what is derived from it.
    pub fn configured(&self) -> Arc<Configured> {
        self.held.configured()
    }

    /// The queue that holds scheduled messages until they are due. They can be cancelled and browsed there.
    pub fn held(&self) -> &Arc<Queue> {
        &self.held
    }

    /// The topic's subscriptions, sorted by name.
    pub fn subscriptions(&self) -> Arc<[Arc<Queue>]> {
        Arc::clone(&self.subscriptions.read())
    }

    pub(super) fn add(&self, subscription: Arc<Queue>) {
        let mut subscriptions = self.subscriptions.write();
        let mut all: Vec<_> = subscriptions.iter().cloned().collect();
        let at = all.partition_point(|known| known.key() < subscription.key());
        all.insert(at, subscription);
        *subscriptions = all.into();
    }

    pub(super) fn remove(&self, key: &str) {
        let mut subscriptions = self.subscriptions.write();
        *subscriptions = subscriptions.iter().filter(|known| known.key() != key).cloned().collect();
    }

    /// Gives messages to the subscriptions, all or none, and holds those that are scheduled. Returns the sequence
    /// numbers of the scheduled messages, and 0 for the others.
    pub(super) fn put(
        &self,
        messages: Batch,
        way: Way<'_>,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        self.held.mark_used();
        let is_scheduled = |message: &Incoming| message.scheduled_at.is_some_and(|at| at > now);
        let places: SmallVec<[bool; 1]> = messages.iter().map(is_scheduled).collect();
        let (later, messages): (Batch, Batch) = messages.into_iter().partition(is_scheduled);
        let mut shares = self.shares(&messages)?;
        let mut numbers = Numbers::new();
        {
            let _sending = self.sending.lock();
            self.held.check(&later)?;
            shares.iter().try_for_each(Share::check)?;
            if !later.is_empty() {
                numbers = self.held.put(later, way, now, commits)?;
            }
            for share in &mut shares {
                share.put(way, now, commits)?;
            }
        }
        // Not under the lock: a forwarded message may go through another topic, and two topics must not be locked
        // at the same time.
        for share in shares.iter().filter_map(|share| share.forwarded(way)) {
            for message in share.messages {
                share.send(message, now, commits)?;
            }
        }
        let mut scheduled = numbers.into_iter();
        let number = |is_scheduled| if is_scheduled { scheduled.next().unwrap_or(0) } else { 0 };
        Ok(places.into_iter().map(number).collect())
    }

    /// Returns the messages that each subscription gets. Subscriptions that get none are omitted.
    fn shares(&self, messages: &[Incoming]) -> Result<Vec<Share>, SendError> {
        let subscriptions = self.subscriptions();
        let mut shares: Vec<_> = subscriptions.iter().map(Share::of).collect();
        let (work, mut copies) = (Work::new(WORK_MAX), 0);
        for message in messages {
            let properties = MessageProperties::of(message, &work, self.held.random())
                .ok_or(SendError::Malformed)?;
            for share in &mut shares {
                copies += share.take(message, &properties);
            }
            if work.is_spent() {
                return Err(SendError::TooMuchWork);
            }
            if messages.len() > 1 && copies > COPIES_MAX {
                return Err(SendError::TooManyCopies);
            }
        }
        shares.retain(|share| !share.messages.is_empty() || !share.without_session.is_empty());
        Ok(shares)
    }
}

/// The messages of a batch that one subscription gets.
struct Share {
    subscription: Arc<Queue>,
    configured: Arc<Configured>,
    messages: Batch,
    /// Messages without a session id that become dead letters at once, because the subscription requires sessions.
    without_session: Batch,
}

impl Share {
    fn of(subscription: &Arc<Queue>) -> Self {
        Self {
            configured: subscription.configured(),
            subscription: Arc::clone(subscription),
            messages: Batch::new(),
            without_session: Batch::new(),
        }
    }

    /// Adds the copies that the subscription's rules make of a message. Returns their number.
    fn take(&mut self, message: &Incoming, properties: &MessageProperties<'_>) -> usize {
        let Configured { rules, properties: own, .. } = &*self.configured;
        let copies = Rule::copies(rules, properties);
        let count = copies.len();
        for changes in copies {
            let mut copy = message.clone();
            // A scheduled message that is due is a message like any other.
            copy.scheduled_at = None;
            if !changes.is_empty() {
                change(&mut copy, properties, changes);
                if own.requires_duplicate_detection {
                    tell_apart(&mut copy, message);
                }
            }
            if own.requires_session && copy.session.is_none() {
                self.without_session.push(copy);
            } else {
                self.messages.push(copy);
            }
        }
        count
    }

    /// Returns how the subscription forwards the messages at once; `None` if it stores them.
    fn forwarded<'a>(&'a self, way: Way<'a>) -> Option<Forward<'a>> {
        let target = sending::direct_target(&self.configured)?;
        Some(Forward { from: &self.subscription, target, way, messages: &self.messages })
    }

    fn check(&self) -> Result<(), SendError> {
        if self.forwarded(Way::default()).is_some() {
            return Ok(());
        }
        match self.subscription.check(&self.messages) {
            // The subscription has just been deleted.
            Err(SendError::Gone) => Ok(()),
            checked => checked,
        }
    }

    /// Enqueues the messages that are not forwarded.
    fn put(&mut self, way: Way<'_>, now: WallTime, commits: &mut Commits) -> Result<(), SendError> {
        if self.forwarded(way).is_none() && !self.messages.is_empty() {
            match self.subscription.put(std::mem::take(&mut self.messages), way, now, commits) {
                Ok(_) | Err(SendError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.without_session.is_empty() {
            let (part, why) = (Part::DeadLetter, Refusal::SessionIdMissing.to_string());
            self.subscription.take_once(way.once, commits, |entity, fx| {
                self.without_session.iter().cloned().try_for_each(|message| {
                    entity.dead_letter_incoming(part, message, NO_SESSION, &why, now, fx)
                })
            })?;
        }
        Ok(())
    }
}

/// Applies the changes of a rule's action to a copy.
fn change(
    copy: &mut Incoming,
    properties: &MessageProperties<'_>,
    changes: Vec<barid_core::rules::Change>,
) {
    let mut overlay: Overlay = copy.overlay.as_deref().cloned().unwrap_or_default();
    for (scope, name, value) in changes {
        match (scope, &*name, &value) {
            (Scope::System, "SessionId", value) => copy.session = text(value).map(Arc::from),
            (Scope::System, "MessageId", value) => copy.message_id = text(value).map(Arc::from),
            (Scope::System, "TimeToLive", Value::Long(millis)) => {
                let millis = u64::try_from(*millis).unwrap_or(0);
                copy.time_to_live = Some(std::time::Duration::from_millis(millis));
            }
            (Scope::System, "ScheduledEnqueueTimeUtc", Value::Timestamp(at)) => {
                let at = u64::try_from(*at).unwrap_or(0);
                copy.scheduled_at = Some(WallTime::from_millis(at));
            }
            _ => {}
        }
        let name = if scope == Scope::User { properties.spelled(&name) } else { &name };
        overlay.set(scope, name, value);
    }
    copy.overlay = Some(Arc::new(overlay));
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Gives a copy a message id of its own, made of the message's id and the name of the rule, so that copies of one
/// message are not taken for duplicates of each other.
fn tell_apart(copy: &mut Incoming, message: &Incoming) {
    let overlay = copy.overlay.as_deref();
    let rule = overlay.and_then(|overlay| text(overlay.get(Scope::User, RULE_NAME)?));
    if let (Some(id), Some(rule)) = (&message.message_id, rule) {
        copy.message_id = Some(format!("{id}\n{rule}").into());
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("path", &self.path()).finish_non_exhaustive()
    }
}
