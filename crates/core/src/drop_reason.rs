//! Why messages are lost, where they may be.

/// Why a message did not reach a session that had subscribed to it, or the entity of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The session's queue holds its most messages.
    QueueMessages,
    /// The session's queue holds its most bytes.
    QueueBytes,
    /// The Message Expiry Interval ran out while it waited.
    Expired,
    /// Larger than the client's Maximum Packet Size.
    PacketTooLarge,
    /// QoS 0 and the client is not connected.
    Offline,
    /// The session ended while the message waited in it.
    SessionEnded,
    /// The subscriber refused it (PUBREC or PUBACK with an error).
    Refused,
    /// It could not be retained: the tenant has its most retained messages.
    RetainedMessages,
    /// It could not be retained: the tenant's retained messages have their most bytes.
    RetainedBytes,
    /// The tenant's queues hold their most messages or bytes together.
    TenantQueue,
    /// It could not be read back from the store.
    StoreUnreadable,
    /// The store takes nothing more; the publisher was refused.
    StoreFull,
    /// The session's queue or the tenant's are full; the publisher was refused.
    QueueRefuses,
    /// The queue or topic that a binding names does not exist.
    BindingNoEntity,
    /// The queue of a binding requires a session id, and the message has none, or too long a one.
    BindingSession,
    /// Larger than the queue of a binding takes.
    BindingTooLarge,
    /// The queue of a binding is full.
    BindingFull,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 17] = [
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
        Self::StoreUnreadable,
        Self::StoreFull,
        Self::QueueRefuses,
        Self::BindingNoEntity,
        Self::BindingSession,
        Self::BindingTooLarge,
        Self::BindingFull,
    ];

    /// The name used in metrics and the admin API.
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
            Self::StoreUnreadable => "store_unreadable",
            Self::StoreFull => "store_full",
            Self::QueueRefuses => "queue_refuses",
            Self::BindingNoEntity => "binding_no_entity",
            Self::BindingSession => "binding_session",
            Self::BindingTooLarge => "binding_too_large",
            Self::BindingFull => "binding_full",
        }
    }
}
