//! The properties of a message as it lies in an entity, for rules.

use std::cell::Cell;

use barid_amqp::message::{Field, Sections};
use barid_core::entity::{Incoming, Overlay};
use barid_core::rules::{Properties, SystemProperty, same_name};
use barid_core::value::{Scope, ValueRef};

use super::value::widened;
use crate::random::Random;

/// Steps that are left for rules, each of about ten nanoseconds.
#[derive(Debug)]
pub struct Work(Cell<Option<usize>>);

impl Work {
    /// So many.
    pub fn new(steps: usize) -> Self {
        Self(Cell::new(Some(steps)))
    }

    /// Pays for steps. False: there are not so many left, nor will there be.
    pub fn spend(&self, steps: usize) -> bool {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(steps)));
        !self.is_spent()
    }

    /// Whether somebody could not pay, and what came of it means nothing.
    pub fn is_spent(&self) -> bool {
        self.0.get().is_none()
    }
}

/// A message that comes to a topic: the sections of its bytes, and what was changed of it since.
pub struct MessageProperties<'a> {
    sections: Sections<'a>,
    message: &'a Incoming,
    work: &'a Work,
    random: Random,
    /// What it costs to look for an application property: they lie one behind the other.
    search: usize,
}

impl<'a> MessageProperties<'a> {
    /// The properties of a message, and what is left to pay for looking at them; `None`: its bytes are no message.
    pub fn of(message: &'a Incoming, work: &'a Work, random: Random) -> Option<Self> {
        let sections = Sections::split(&message.bytes).ok()?;
        let overlay = message.overlay.as_deref().map_or(0, Overlay::len);
        let search = sections.application_properties().len() / 2 + overlay;
        Some(Self { sections, message, work, random, search })
    }

    /// As what the message has an application property whose name is the same.
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

    /// What a property was changed to; `Some(None)`: it was removed.
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
            // Given when it is enqueued: a topic has none of them.
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
