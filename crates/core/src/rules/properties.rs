//! The properties that a message offers to rules.

use crate::value::ValueRef;

/// The properties of a message, which are all that rules see of it; never its body.
///
/// Names of user properties are compared with [`same_name`].
pub trait Properties {
    /// Returns the system property; `None` if the message does not have it.
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>>;

    /// Returns the application property with this name; `None` if the message does not have it. A property that exists
    /// without a value is [`ValueRef::Null`].
    fn user(&self, name: &str) -> Option<ValueRef<'_>>;

    /// Returns a new random UUID, for the function `newid()`.
    fn new_id(&self) -> [u8; 16];

    /// Takes steps of about ten nanoseconds from a budget, before they are executed. Returns false if the budget is
    /// exhausted; the result of the evaluation is then unknown and must be discarded. The owner of the budget can tell.
    fn spend(&self, steps: usize) -> bool {
        let _ = steps;
        true
    }
}

/// Returns whether two names of properties are the same: ASCII letters are compared case-insensitively.
pub fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The properties that an expression names with the prefix `sys.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SystemProperty {
    /// `content-type` of the message's properties.
    ContentType,
    /// `correlation-id`; an id that is not text is converted to text.
    CorrelationId,
    /// The entity that a dead letter comes from, in the annotations.
    DeadLetterSource,
    /// Delivery count: how many deliveries were abandoned or deferred, or ended with their lock.
    DeliveryCount,
    /// The sequence number that the message was first given.
    EnqueuedSequenceNumber,
    /// Time at which the message was enqueued.
    EnqueuedTimeUtc,
    /// Time at which the message's time to live ends.
    ExpiresAtUtc,
    /// `subject`; in expressions also written `Subject`.
    Label,
    /// `message-id`; an id that is not text is converted to text.
    MessageId,
    /// The partition key, in the annotations.
    PartitionKey,
    /// `reply-to`.
    ReplyTo,
    /// `reply-to-group-id`.
    ReplyToSessionId,
    /// Time at which the message is to be enqueued, in the annotations; also written `ScheduledEnqueueTime`.
    ScheduledEnqueueTimeUtc,
    /// The message's sequence number.
    SequenceNumber,
    /// `group-id`.
    SessionId,
    /// The time to live, in milliseconds.
    TimeToLive,
    /// `to`.
    To,
}

/// The kind of value that a system property has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Time,
}

impl SystemProperty {
    /// All system properties.
    pub const ALL: [Self; 17] = [
        Self::ContentType,
        Self::CorrelationId,
        Self::DeadLetterSource,
        Self::DeliveryCount,
        Self::EnqueuedSequenceNumber,
        Self::EnqueuedTimeUtc,
        Self::ExpiresAtUtc,
        Self::Label,
        Self::MessageId,
        Self::PartitionKey,
        Self::ReplyTo,
        Self::ReplyToSessionId,
        Self::ScheduledEnqueueTimeUtc,
        Self::SequenceNumber,
        Self::SessionId,
        Self::TimeToLive,
        Self::To,
    ];

    /// Returns the property with this name, given without `sys.`; case-insensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        let is = |other| same_name(name, other);
        if is("Subject") {
            return Some(Self::Label);
        }
        if is("ScheduledEnqueueTime") {
            return Some(Self::ScheduledEnqueueTimeUtc);
        }
        Self::ALL.into_iter().find(|property| is(property.name()))
    }

    /// The name, without `sys.`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ContentType => "ContentType",
            Self::CorrelationId => "CorrelationId",
            Self::DeadLetterSource => "DeadLetterSource",
            Self::DeliveryCount => "DeliveryCount",
            Self::EnqueuedSequenceNumber => "EnqueuedSequenceNumber",
            Self::EnqueuedTimeUtc => "EnqueuedTimeUtc",
            Self::ExpiresAtUtc => "ExpiresAtUtc",
            Self::Label => "Label",
            Self::MessageId => "MessageId",
            Self::PartitionKey => "PartitionKey",
            Self::ReplyTo => "ReplyTo",
            Self::ReplyToSessionId => "ReplyToSessionId",
            Self::ScheduledEnqueueTimeUtc => "ScheduledEnqueueTimeUtc",
            Self::SequenceNumber => "SequenceNumber",
            Self::SessionId => "SessionId",
            Self::TimeToLive => "TimeToLive",
            Self::To => "To",
        }
    }

    /// Whether an action may change the property: true if the sender sets it, not the broker.
    pub fn is_settable(self) -> bool {
        !matches!(
            self,
            Self::DeadLetterSource
                | Self::DeliveryCount
                | Self::EnqueuedSequenceNumber
                | Self::EnqueuedTimeUtc
                | Self::ExpiresAtUtc
                | Self::SequenceNumber
        )
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::DeliveryCount
            | Self::EnqueuedSequenceNumber
            | Self::SequenceNumber
            | Self::TimeToLive => Kind::Number,
            Self::EnqueuedTimeUtc | Self::ExpiresAtUtc | Self::ScheduledEnqueueTimeUtc => {
                Kind::Time
            }
            _ => Kind::Text,
        }
    }
}
