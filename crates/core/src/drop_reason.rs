//! Reasons for which messages are lost, where losing them is allowed.

/// Reason for which a message did not reach a session that had subscribed to it, or the entity of a
/// binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The session's queue has reached its limit of messages.
    QueueMessages,
    /// The session's queue has reached its limit of bytes.
    QueueBytes,
    /// The Message Expiry Interval ran out while the message waited.
    Expired,
    /// The message is larger than the client's Maximum Packet Size.
    PacketTooLarge,
    /// The message has QoS 0 and the client is not connected.
    Offline,
    /// The session ended while the message waited in it.
    SessionEnded,
    /// The subscriber refused the message (PUBREC or PUBACK with an error).
    Refused,
    /// The message could not be retained: the tenant has reached its limit of retained messages.
    RetainedMessages,
    /// The message could not be retained: the tenant's retained messages have reached their limit
    /// of bytes.
    RetainedBytes,
    /// The tenant's queues together have reached their limit of messages or bytes.
    TenantQueue,
    /// The queues of the session's user together have reached their limit of bytes.
    UserQueue,
    /// The message could not be retained: its publisher has reached its limit of retained messages.
    UserRetainedMessages,
    /// The message could not be retained: the retained messages of its publisher have reached their
    /// limit of bytes.
    UserRetainedBytes,
    /// The message could not be read back from the store.
    StoreUnreadable,
    /// The store accepts nothing more; the publisher was refused.
    StoreFull,
    /// The session's queue, or the tenant's queues together, are full; the publisher was refused.
    QueueRefuses,
    /// The rules of the user have changed, and it is not allowed to receive the message any more.
    NotAllowed,
    /// The queue or topic that a binding names does not exist.
    BindingNoEntity,
    /// The queue of a binding requires a session id; the message has none, or one that is too long.
    BindingSession,
    /// The message is larger than the queue of a binding accepts.
    BindingTooLarge,
    /// The queue of a binding is full.
    BindingFull,
    /// The link to another broker of the cluster is full.
    LinkFull,
    /// Another broker of the cluster went down before it had acknowledged the message.
    BrokerDown,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 23] = [
        Self::QueueMessages,
        Self::QueueBytes,
        Self::Expired,
        Self::PacketTooLarge,
        Self::Offline,
        Self::SessionEnded,
        Self::Refused,
        Self::RetainedMessages,
        Self::RetainedBytes,
        Self::TenantQueue,
        Self::UserQueue,
        Self::UserRetainedMessages,
        Self::UserRetainedBytes,
        Self::StoreUnreadable,
        Self::StoreFull,
        Self::QueueRefuses,
        Self::NotAllowed,
        Self::BindingNoEntity,
        Self::BindingSession,
        Self::BindingTooLarge,
        Self::BindingFull,
        Self::LinkFull,
        Self::BrokerDown,
    ];

    /// The reason's name in metrics and the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueMessages => "queue_messages",
            Self::QueueBytes => "queue_bytes",
            Self::Expired => "expired",
            Self::PacketTooLarge => "packet_too_large",
            Self::Offline => "offline",
            Self::SessionEnded => "session_ended",
            Self::Refused => "refused",
            Self::RetainedMessages => "retained_messages",
            Self::RetainedBytes => "retained_bytes",
            Self::TenantQueue => "tenant_queue",
            Self::UserQueue => "user_queue",
            Self::UserRetainedMessages => "user_retained_messages",
            Self::UserRetainedBytes => "user_retained_bytes",
            Self::StoreUnreadable => "store_unreadable",
            Self::StoreFull => "store_full",
            Self::QueueRefuses => "queue_refuses",
            Self::NotAllowed => "not_allowed",
            Self::BindingNoEntity => "binding_no_entity",
            Self::BindingSession => "binding_session",
            Self::BindingTooLarge => "binding_too_large",
            Self::BindingFull => "binding_full",
            Self::LinkFull => "link_full",
            Self::BrokerDown => "broker_down",
        }
    }
}
