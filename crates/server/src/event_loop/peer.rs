//! A connection of a client of either protocol, or of another broker, as an IO thread handles it.

use std::sync::Arc;

use barid_auth::{Outcome, Standing, Step};
use barid_core::time::MonoTime;
use barid_engine::amqp::{Answered, Keys, Leaving};
use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Farewell, Owner};
use mqtt_proto::ReasonCode;

use super::{Mailbox, Post};
use crate::cluster::{NoHome, Reply};
use crate::connection::{
    AmqpConnection, Connection, Consequence, Leaves, MemberConnection, RelayedConnection, Speaks,
};
use crate::logins::{Changes, LoginOwner};
use crate::shared::Shared;
use crate::transport::{Accepted, Protocol, Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// One network connection.
#[derive(Debug)]
pub enum Peer {
    /// The client speaks MQTT, or has not chosen its protocol yet.
    Mqtt(Box<Connection>),
    /// The client speaks AMQP.
    Amqp(Box<AmqpConnection>),
    /// Messages from or to another broker.
    Member(Box<MemberConnection>),
    /// A client that belongs to another broker.
    Relayed(Box<RelayedConnection>),
}

impl Peer {
    /// Creates the peer of a connection that was just accepted. It must open before `until`.
    pub fn new(
        accepted: Accepted,
        id: ConnectionId,
        until: MonoTime,
        keys: &Arc<dyn Keys>,
        owner: &Arc<dyn LoginOwner>,
    ) -> std::io::Result<Self> {
        let speaks = accepted.listener.protocol;
        let connection = Connection::new(accepted, id, until)?;
        Ok(match speaks {
            Protocol::Mqtt => Self::Mqtt(Box::new(connection)),
            Protocol::Amqp => Self::Amqp(Box::new(AmqpConnection::new(
                connection.into_parts(),
                until,
                Arc::clone(keys),
                owner.clone(),
            ))),
        })
    }

    /// Continues as an AMQP connection, for a client that has chosen AMQP on a WebSocket listener, where both
    /// protocols are spoken. It must open before `until`.
    #[must_use]
    pub fn speaking_amqp(
        self,
        until: MonoTime,
        keys: &Arc<dyn Keys>,
        owner: &Arc<dyn LoginOwner>,
    ) -> Self {
        match self {
            Self::Mqtt(connection) => Self::Amqp(Box::new(AmqpConnection::new(
                connection.into_parts(),
                until,
                Arc::clone(keys),
                owner.clone(),
            ))),
            other @ (Self::Amqp(_) | Self::Member(_) | Self::Relayed(_)) => other,
        }
    }

    /// Continues as the connection of a client that belongs to another broker, and asks for a link to it. The client has
    /// until `until`. Returns `None` if the client cannot be passed on.
    #[must_use]
    pub fn relayed(self, until: MonoTime, shared: &Shared, reply: Reply) -> Option<Self> {
        let (parts, leaves) = match self {
            Self::Mqtt(connection) => {
                let home = connection.leaves_for()?.into();
                (connection.into_parts(), Leaves { home, speaks: Speaks::Mqtt })
            }
            Self::Amqp(connection) => {
                let (parts, Leaving { home, answered, farewell, .. }) = connection.leave()?;
                let answered = Some(Answered::new(answered));
                (parts, Leaves { home, speaks: Speaks::Amqp { answered, farewell } })
            }
            other => return Some(other),
        };
        let connection = RelayedConnection::new(parts, leaves, until, shared, reply);
        Some(Self::Relayed(Box::new(connection)))
    }

    /// Returns the number of the connection.
    pub fn id(&self) -> ConnectionId {
        match self {
            Self::Mqtt(connection) => connection.id(),
            Self::Amqp(connection) => connection.id(),
            Self::Member(connection) => connection.id(),
            Self::Relayed(connection) => connection.id(),
        }
    }

    /// Returns the socket, for the kernel to watch.
    pub fn socket(&self) -> &Arc<Tcp> {
        match self {
            Self::Mqtt(connection) => connection.socket(),
            Self::Amqp(connection) => connection.socket(),
            Self::Member(connection) => connection.socket(),
            Self::Relayed(connection) => connection.socket(),
        }
    }

    /// Handles a report of the kernel about the socket.
    pub fn on_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_event(turn, buffer, readiness),
            Self::Amqp(connection) => connection.on_event(turn, buffer, readiness),
            Self::Member(connection) => connection.on_event(turn, buffer, readiness),
            Self::Relayed(connection) => connection.on_event(turn, buffer, readiness),
        }
    }

    /// Handles a report of the kernel about the link to the broker that has the client's session.
    pub fn on_link_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        match self {
            Self::Relayed(connection) => connection.on_link_event(turn, buffer, readiness),
            // The event is older than this connection, whose place was that of another one.
            Self::Mqtt(_) | Self::Amqp(_) | Self::Member(_) => Next::Wait,
        }
    }

    /// The link to the broker that has the client's session has been opened, or not.
    pub fn on_link(
        &mut self,
        turn: &mut IoTurn<'_>,
        link: Result<(Arc<Tcp>, Transport), NoHome>,
        buffer: &mut [u8],
    ) -> Next {
        match self {
            Self::Relayed(connection) => connection.on_link(turn, link, buffer),
            Self::Mqtt(_) | Self::Amqp(_) | Self::Member(_) => Next::Wait,
        }
    }

    /// Sends what waits for the client.
    pub fn on_drain(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_drain(turn, buffer),
            Self::Amqp(connection) => connection.on_drain(turn, buffer),
            Self::Member(connection) => connection.on_drain(turn),
            Self::Relayed(_) => Next::Wait,
        }
    }

    /// Handles what follows the first message of an enhanced authentication.
    pub fn on_step(&mut self, turn: &mut IoTurn<'_>, step: Step, buffer: &mut [u8]) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_step(turn, step, buffer),
            Self::Amqp(_) | Self::Member(_) | Self::Relayed(_) => Next::Wait,
        }
    }

    /// Returns the consequence of changes for the client; `None`: it goes on as before. A client that has not been
    /// let in yet is checked when it is.
    pub fn consequence(&self, shared: &Shared, changes: &Changes) -> Option<Consequence> {
        match self {
            Self::Mqtt(connection) => connection.consequence(shared, changes),
            Self::Amqp(connection) => connection.consequence(shared, changes),
            Self::Member(_) | Self::Relayed(_) => None,
        }
    }

    /// Applies the consequence of a change.
    pub fn apply(&mut self, turn: &mut IoTurn<'_>, consequence: &Consequence) -> Next {
        match self {
            Self::Mqtt(connection) => connection.apply(turn, consequence),
            Self::Amqp(connection) => connection.apply(turn, consequence),
            Self::Member(_) | Self::Relayed(_) => Next::Wait,
        }
    }

    /// Handles the answer to the question whether the client may stay.
    pub fn on_renewed(
        &mut self,
        turn: &mut IoTurn<'_>,
        number: u32,
        standing: Standing,
        buffer: &mut [u8],
    ) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_renewed(turn, number, standing),
            Self::Amqp(connection) => connection.on_renewed(turn, number, standing, buffer),
            Self::Member(_) | Self::Relayed(_) => Next::Wait,
        }
    }

    /// Handles the outcome of the login.
    pub fn on_outcome(
        &mut self,
        turn: &mut IoTurn<'_>,
        outcome: Outcome,
        buffer: &mut [u8],
    ) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_outcome(turn, outcome, buffer),
            Self::Amqp(connection) => connection.on_outcome(turn, outcome, buffer),
            Self::Member(_) | Self::Relayed(_) => Next::Wait,
        }
    }

    /// Closes the connection.
    pub fn on_close(
        &mut self,
        turn: &mut IoTurn<'_>,
        reason: ReasonCode,
        farewell: Farewell,
    ) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_close(turn, reason, farewell),
            Self::Amqp(connection) => connection.on_close(turn, reason),
            Self::Member(connection) => connection.on_close(),
            // The session does not end: the client finds it again over another broker.
            Self::Relayed(_) => Next::Gone,
        }
    }

    /// Handles a timer. The deadline may have moved since the timer was set.
    pub fn on_timer(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        match self {
            Self::Mqtt(connection) => connection.on_timer(turn, buffer),
            Self::Amqp(connection) => connection.on_timer(turn, buffer),
            Self::Member(connection) => connection.on_drain(turn),
            Self::Relayed(connection) => connection.on_timer(turn),
        }
    }

    /// Returns the time by which the connection needs a turn at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        match self {
            Self::Mqtt(connection) => connection.deadline(),
            Self::Amqp(connection) => connection.deadline(),
            Self::Member(connection) => connection.deadline(),
            Self::Relayed(connection) => connection.deadline(),
        }
    }

    /// Whether the client has no session yet, or, with AMQP, has not opened the connection and proved who it is.
    pub fn is_stranger(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.is_stranger(),
            Self::Amqp(connection) => connection.is_stranger(),
            Self::Member(_) | Self::Relayed(_) => false,
        }
    }

    /// Whether a quota forbids reading from the client until [`Self::deadline`].
    pub fn is_unread(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.is_unread(),
            Self::Amqp(connection) => connection.is_held_back(),
            Self::Member(_) | Self::Relayed(_) => false,
        }
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        match self {
            Self::Mqtt(connection) => connection.is_at_limit(now),
            Self::Amqp(connection) => connection.is_at_limit(now),
            Self::Member(_) | Self::Relayed(_) => false,
        }
    }

    /// Whether the connection may move to another thread.
    pub fn can_move(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.can_move(),
            Self::Amqp(connection) => connection.can_move(),
            Self::Member(_) | Self::Relayed(_) => false,
        }
    }

    /// Returns the connection that should move together with this one, if it belongs to the same thread.
    pub fn partner(&self, owner: &Arc<dyn Owner>) -> Option<ConnectionId> {
        match self {
            Self::Mqtt(connection) => connection.partner(owner),
            Self::Amqp(_) | Self::Member(_) | Self::Relayed(_) => None,
        }
    }

    /// Gives the connection to another thread. Returns it if it is about to be closed and has to stay.
    pub fn move_to(self, thread: &Mailbox) -> Result<(), Self> {
        let owner = thread.as_owner();
        let adopt = |peer| thread.post(Post::Adopt(peer));
        match self {
            Self::Mqtt(connection) => {
                let given = connection.move_to(owner, |connection| adopt(Self::Mqtt(connection)));
                given.map_err(Self::Mqtt)
            }
            Self::Amqp(connection) => {
                let given = connection.move_to(owner, |connection| adopt(Self::Amqp(connection)));
                given.map_err(Self::Amqp)
            }
            other @ (Self::Member(_) | Self::Relayed(_)) => Err(other),
        }
    }
}
