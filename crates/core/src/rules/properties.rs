//! The properties that a message offers to rules.

use crate::value::ValueRef;

/// A message, as far as rules look at it: its properties, never its body.
///
/// Names of user properties are compared with [`same_name`].
pub trait Properties {
    /// The system property; `None` if the message does not have it.
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>>;

    /// The application property of that name; `None` if the message does not have it. One that is
    /// there without a value is [`ValueRef::Null`].
    fn user(&self, name: &str) -> Option<ValueRef<'_>>;

    /// A new random UUID, for the function `newid()`.
    fn new_id(&self) -> [u8; 16];

    /// Pays for steps of about ten nanoseconds before they are done. False: there may be no more of them; then the
    /// answer is unknown, and means nothing. Whoever has paid knows that.
    fn spend(&self, steps: usize) -> bool {
        let _ = steps;
        true
    }
}

/// Whether two names of properties are the same: the case of ASCII letters does not count.
pub fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The properties that are written with `sys.` in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SystemProperty {
    /// `content-type` of the message's properties.
    ContentType,
    /// `correlation-id`; an id that is not text is given as text.
    CorrelationId,
    /// The entity that a dead letter comes from, in the annotations.
    DeadLetterSource,
    /// How often the message was delivered in vain.
    DeliveryCount,
    /// The sequence number that it was first given.
    EnqueuedSequenceNumber,
    /// When it was enqueued.
    EnqueuedTimeUtc,
    /// When its time to live ends.
    ExpiresAtUtc,
    /// `subject`; in expressions also written `Subject`.
    Label,
    /// `message-id`; an id that is not text is given as text.
    MessageId,
    /// The partition key, in the annotations.
    PartitionKey,
    /// `reply-to`.
    ReplyTo,
    /// `reply-to-group-id`.
    ReplyToSessionId,
    /// When it is to be enqueued, in the annotations; also written `ScheduledEnqueueTime`.
    ScheduledEnqueueTimeUtc,
    /// Its sequence number.
    SequenceNumber,
    /// `group-id`.
    SessionId,
    /// The time to live: milliseconds.
    TimeToLive,
    /// `to`.
    To,
}

/// What kind of value a system property has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Time,
}

impl SystemProperty {
    /// All of them.
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

    /// The property of that name, which stands without `sys.` here. Case does not count.
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

    /// Its name, without `sys.`.
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

    /// Whether an action may change it: the sender sets it, not the broker.
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
