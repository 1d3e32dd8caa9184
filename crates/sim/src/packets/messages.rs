//! MQTT control packets, reduced to what the simulation needs, and the topics and filters in use.

use std::fmt;

use barid_core::ids::PacketId;
use mqtt_proto::{QoS, topic};

/// Number of a published message, unique in a history, from 1.
pub type MessageNumber = u32;

/// The topics that clients publish to.
pub const TOPICS: [&str; 6] = ["a/1", "a/2", "b/1", "b/2", "s/1", "w/1"];

/// Index of the topic that matches the shared subscription. Other subscriptions can match it, too.
pub const SHARED_TOPIC: usize = 4;

/// Index of the topic of wills.
pub const WILL_TOPIC: usize = 5;

/// The topic filters that clients subscribe to.
pub const FILTERS: [&str; 7] = ["a/1", "a/+", "b/#", "#", "b/2", "+/2", "$share/g/s/+"];

/// Index of the shared subscription in [`FILTERS`].
pub const SHARED: usize = 6;

/// Whether a filter matches a topic, both by index.
pub fn matches(filter: usize, topic: usize) -> bool {
    let filter = if filter == SHARED { "s/+" } else { FILTERS[filter] };
    topic::matches(filter, TOPICS[topic])
}

/// A control packet.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT.
    Connect {
        /// Clean Start.
        clean_start: bool,
        /// Session Expiry Interval in milliseconds, a multiple of 1000; `None`: the session does not expire. 0:
        /// the session ends with the connection.
        expiry: Option<u64>,
        /// Receive Maximum.
        receive_maximum: u16,
        /// The will, if there is one.
        will: Option<MessageNumber>,
    },
    /// CONNACK.
    ConnAck {
        /// Session Present, or `None` if the connection is refused.
        present: Option<bool>,
        /// Number of the session, unique in the history. Only for the checkers: a client cannot know it.
        birth: u64,
        /// Whether the return of the client is, or will be, in the store. Only for the checkers.
        is_noted: bool,
    },
    /// PUBLISH.
    Publish {
        /// The message.
        message: MessageNumber,
        /// Index of the topic in [`TOPICS`].
        topic: usize,
        /// QoS, 0 to 2.
        qos: u8,
        /// Packet Identifier, for QoS 1 and 2.
        id: PacketId,
        /// DUP.
        dup: bool,
        /// RETAIN.
        retain: bool,
        /// Length of the payload in bytes.
        len: usize,
        /// Message Expiry Interval in milliseconds.
        expiry: Option<u64>,
    },
    /// PUBACK. [`Verdict::Refused`] stands for Reason Code 0x97.
    PubAck(PacketId, Verdict),
    /// PUBREC. [`Verdict::Refused`] stands for Reason Code 0x97.
    PubRec(PacketId, Verdict),
    /// PUBREL.
    PubRel(PacketId),
    /// PUBCOMP.
    PubComp(PacketId),
    /// SUBSCRIBE: index of the filter in [`FILTERS`], QoS.
    Subscribe(PacketId, usize, u8),
    /// SUBACK.
    SubAck(PacketId, Verdict),
    /// UNSUBSCRIBE: index of the filter.
    Unsubscribe(PacketId, usize),
    /// UNSUBACK, and whether the subscription existed.
    UnsubAck(PacketId, bool),
    /// The broker has closed the connection.
    Disconnect,
}

/// The answer of the broker to a PUBLISH or a SUBSCRIBE.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Verdict {
    /// Success.
    Done,
    /// Quota exceeded.
    Refused,
}

/// Returns the QoS of a number from 0 to 2.
pub fn qos(level: u8) -> QoS {
    QoS::try_from(level).expect("the QoS in a history are 0 to 2")
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { clean_start, expiry, receive_maximum, will } => {
                write!(
                    f,
                    "CONNECT clean_start={clean_start} expiry={expiry:?} receive_maximum={receive_maximum} will={will:?}"
                )
            }
            Self::ConnAck { present, birth, .. } => {
                write!(f, "CONNACK present={present:?} of session {birth}")
            }
            Self::Publish { message, topic, qos, id, dup, retain, .. } => {
                write!(f, "PUBLISH m{message} {} qos={qos} id={id}", TOPICS[*topic])?;
                f.write_str(if *dup { " dup" } else { "" })?;
                f.write_str(if *retain { " retain" } else { "" })
            }
            Self::Subscribe(id, filter, qos) => {
                write!(f, "SUBSCRIBE {} qos={qos} id={id}", FILTERS[*filter])
            }
            Self::Unsubscribe(id, filter) => write!(f, "UNSUBSCRIBE {} id={id}", FILTERS[*filter]),
            other => write!(f, "{other:?}"),
        }
    }
}
