//! The properties of a message in an entity, as rules see them.

use std::cell::Cell;

use barid_amqp::message::{Field, Sections};
use barid_core::entity::{Incoming, Overlay};
use barid_core::rules::{Properties, SystemProperty, same_name};
use barid_core::value::{Scope, ValueRef};

use super::value::widened;
use crate::random::Random;

/// Budget for the evaluation of rules, in steps of about ten nanoseconds.
#[derive(Debug)]
pub struct Work(Cell<Option<usize>>);

impl Work {
    /// Creates a budget of this many steps.
    pub fn new(steps: usize) -> Self {
        Self(Cell::new(Some(steps)))
    }

    /// Takes steps from the budget. Returns false if there are not enough; the budget is then spent for good.
    pub fn spend(&self, steps: usize) -> bool {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(steps)));
        !self.is_spent()
    }

    /// Whether the budget was exceeded. Results of the evaluation must then be discarded.
    pub fn is_spent(&self) -> bool {
        self.0.get().is_none()
    }
}

/// The properties of a message that was sent to a topic: the sections of its bytes, and what was changed since.
pub struct MessageProperties<'a> {
    sections: Sections<'a>,
    message: &'a Incoming,
    work: &'a Work,
    random: Random,
    /// Cost of a lookup of an application property, in steps. Lookups search the properties one by one.
    search: usize,
}

impl<'a> MessageProperties<'a> {
    /// Returns the properties of a message. Lookups take steps from `work`. Returns `None` if the bytes are not a
    /// valid message.
    pub fn of(message: &'a Incoming, work: &'a Work, random: Random) -> Option<Self> {
        let sections = Sections::split(&message.bytes).ok()?;
        let overlay = message.overlay.as_deref().map_or(0, Overlay::len);
        let search = sections.application_properties().len() / 2 + overlay;
        Some(Self { sections, message, work, random, search })
    }

    /// Returns how the message spells the name of an application property, compared with [`same_name`]; `name`
    /// itself if the message does not have the property.
    pub fn spelled<'b>(&'b self, name: &'b str) -> &'b str {
        let changed =
            self.overlay().filter(|(scope, its, _)| *scope == Scope::User && same_name(its, name));
        let own = self.sections.application_properties().iter().map(|(its, _)| its);
        let found =
            changed.map(|(_, its, _)| its).chain(own.filter(|its| same_name(its, name))).next();
        found.unwrap_or(name)
    }

    fn overlay(&self) -> impl Iterator<Item = (Scope, &str, &barid_core::value::Value)> {
        self.message.overlay.iter().flat_map(|overlay: &std::sync::Arc<Overlay>| overlay.iter())
    }

    /// Returns the value that a property was changed to, `Some(None)` if it was removed, or `None` if it was not
    /// changed.
    fn changed(&self, scope: Scope, name: &str) -> Option<Option<ValueRef<'_>>> {
        let found = self.overlay().find(|(its, it, _)| *its == scope && same_name(it, name))?.2;
        Some(match found.borrow() {
            ValueRef::Null => None,
            value => Some(value),
        })
    }

    fn sent(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        let properties = self.sections.properties();
        let text = |text: Option<&'a str>| text.map(ValueRef::from);
        let annotation = |name: &str| self.sections.annotations().get(name);
        match property {
            SystemProperty::ContentType => text(properties.content_type()),
            SystemProperty::CorrelationId => properties.correlation_id().map(ValueRef::String),
            SystemProperty::MessageId => properties.message_id().map(ValueRef::String),
            SystemProperty::Label => text(properties.subject()),
            SystemProperty::ReplyTo => text(properties.reply_to()),
            SystemProperty::ReplyToSessionId => text(properties.reply_to_group_id()),
            SystemProperty::SessionId => text(properties.text(Field::GroupId)),
            SystemProperty::To => text(properties.to()),
            SystemProperty::DeadLetterSource => text(annotation("x-opt-deadletter-source")?.text()),
            SystemProperty::PartitionKey => text(annotation("x-opt-partition-key")?.text()),
            SystemProperty::ScheduledEnqueueTimeUtc => {
                annotation("x-opt-scheduled-enqueue-time")?.timestamp().map(ValueRef::Timestamp)
            }
            SystemProperty::TimeToLive => {
                let millis = self.message.time_to_live?.as_millis();
                Some(ValueRef::Long(i64::try_from(millis).unwrap_or(i64::MAX)))
            }
            SystemProperty::DeliveryCount => Some(ValueRef::Long(0)),
            // These are assigned when a message is enqueued: a message in a topic has none of them.
            SystemProperty::EnqueuedSequenceNumber
            | SystemProperty::EnqueuedTimeUtc
            | SystemProperty::ExpiresAtUtc
            | SystemProperty::SequenceNumber => None,
        }
    }
}

impl Properties for MessageProperties<'_> {
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        self.changed(Scope::System, property.name()).unwrap_or_else(|| self.sent(property))
    }

    fn user(&self, name: &str) -> Option<ValueRef<'_>> {
        if !self.work.spend(self.search) {
            return None;
        }
        self.changed(Scope::User, name).unwrap_or_else(|| {
            let mut own = self.sections.application_properties().iter();
            let (_, value) = own.find(|(its, _)| same_name(its, name))?;
            Some(widened(value).unwrap_or(ValueRef::Null))
        })
    }

    fn new_id(&self) -> [u8; 16] {
        self.random.uuid().into_bytes()
    }

    fn spend(&self, steps: usize) -> bool {
        self.work.spend(steps)
    }
}
