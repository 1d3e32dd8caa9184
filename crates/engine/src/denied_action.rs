//! Actions that a client may be denied.

/// An action that a client was not allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connecting: the user name and password, or the AMQP key or token, were not accepted.
    Login,
    /// Connecting with this will.
    Will,
    /// Publishing to an MQTT topic.
    Publish,
    /// Subscribing to an MQTT topic filter.
    Subscribe,
    /// Reading or writing a key of the state store.
    State,
    /// Sending to an AMQP entity.
    Send,
    /// Receiving from an AMQP entity.
    Receive,
    /// Making a request to the `$management` node of an entity.
    Manage,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 8] = [
        Self::Login,
        Self::Will,
        Self::Publish,
        Self::Subscribe,
        Self::State,
        Self::Send,
        Self::Receive,
        Self::Manage,
    ];

    /// The name of the action in metrics, in the log and in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Will => "will",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::State => "state",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Manage => "manage",
        }
    }
}
