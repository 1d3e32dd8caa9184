use std::time::Duration;

/// What a peer may ask for on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame that is read, in bytes; announced. At least 512.
    pub max_frame_size: u32,
    /// The highest channel, one less than the number of sessions; announced.
    pub channel_max: u16,
    /// The highest handle, one less than the number of links in a session; announced.
    pub handle_max: u32,
    /// How many sessions there may be; one more closes the connection with
    /// `amqp:resource-limit-exceeded`. At most one more than `channel_max` are possible anyway.
    pub max_sessions: usize,
    /// How many links there may be in all sessions together; further ones are refused. A refused link
    /// counts until the peer detaches it, and one more than twice this number closes the connection with
    /// `amqp:resource-limit-exceeded`.
    pub max_links: usize,
    /// The longest message that is taken, in bytes, unless a link has another bound; announced. A
    /// longer one is rejected with `amqp:link:message-size-exceeded`.
    pub max_message_size: u64,
    /// How many bytes of unfinished messages are held for all links together; beyond them the
    /// connection is closed with `amqp:resource-limit-exceeded`.
    pub max_unfinished: usize,
    /// How many deliveries of a session may wait to be settled by the peer; then there is no credit.
    pub max_unsettled: usize,
    /// The same of all sessions together.
    pub max_unsettled_total: usize,
    /// After how long a silence the server gives up; announced. Telling the time is the caller's.
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
