//! What clients may be denied.

/// What a client was not allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To connect: user name and password, or a key or token of AMQP, were not accepted.
    Login,
    /// To connect with this will.
    Will,
    /// To publish to a topic of MQTT.
    Publish,
    /// To subscribe to a topic filter of MQTT.
    Subscribe,
    /// To read or write a key of the state store.
    State,
    /// To send to an entity of AMQP.
    Send,
    /// To receive from an entity of AMQP.
    Receive,
    /// To make a request to the `$management` node of an entity.
    Manage,
}

impl Action {
    /// All of them.
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

    /// Its name in metrics, in the log and in the admin API.
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
