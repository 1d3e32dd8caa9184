use std::time::Duration;

/// Bounds on what a peer may use on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a received frame, in bytes; announced to the peer. At least 512.
    pub max_frame_size: u32,
    /// Highest channel number, one less than the number of sessions; announced to the peer.
    pub channel_max: u16,
    /// Highest handle, one less than the number of links in a session; announced to the peer.
    pub handle_max: u32,
    /// Maximum number of sessions; one more closes the connection with `amqp:resource-limit-exceeded`.
    /// Without effect above `channel_max` + 1.
    pub max_sessions: usize,
    /// Maximum number of links in all sessions together; further ones are refused. A refused link counts
    /// until the peer detaches it, and exceeding twice this number closes the connection with
    /// `amqp:resource-limit-exceeded`.
    pub max_links: usize,
    /// Maximum size of a received message, in bytes, unless a link has a bound of its own; announced to
    /// the peer. A longer message is rejected with `amqp:link:message-size-exceeded`.
    pub max_message_size: u64,
    /// Maximum size of the unfinished messages of all links together, in bytes; exceeding it closes the
    /// connection with `amqp:resource-limit-exceeded`.
    pub max_unfinished: usize,
    /// Maximum number of deliveries of a session that the peer has not settled; at this number there is
    /// no credit.
    pub max_unsettled: usize,
    /// Maximum number of unsettled deliveries of all sessions together; at this number there is no
    /// credit.
    pub max_unsettled_total: usize,
    /// Idle time-out that is announced to the peer; `None` announces none. The caller keeps the time.
    pub idle_time_out: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame_size: 65_536,
            channel_max: 255,
            handle_max: 255,
            max_sessions: usize::MAX,
            max_links: 4_096,
            max_message_size: 262_144,
            max_unfinished: 8 << 20,
            max_unsettled: 10_000,
            max_unsettled_total: 100_000,
            idle_time_out: None,
        }
    }
}
