//! Control packets, as far as they matter here, and the few words that clients and broker share.

use std::fmt;

use barid_core::ids::PacketId;
use mqtt_proto::{QoS, topic};

/// Which message, of all that are ever published in a history; from 1.
pub type MessageNumber = u32;

/// The topics that are published to.
pub const TOPICS: [&str; 6] = ["a/1", "a/2", "b/1", "b/2", "s/1", "w/1"];

/// The topic of which members of a shared subscription get messages, and others perhaps as well.
pub const SHARED_TOPIC: usize = 4;

/// The topic of wills.
pub const WILL_TOPIC: usize = 5;

/// The topic filters that are subscribed to.
pub const FILTERS: [&str; 7] = ["a/1", "a/+", "b/#", "#", "b/2", "+/2", "$share/g/s/+"];

/// The shared subscription.
pub const SHARED: usize = 6;

/// Whether a subscription, by the index of its filter, is to messages of a topic.
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
        /// Session Expiry Interval in milliseconds, whole seconds; none: never. 0: the session ends with the connection.
        expiry: Option<u64>,
        /// Receive Maximum.
        receive_maximum: u16,
        /// Which message is its will, if it has one.
        will: Option<MessageNumber>,
    },
    /// CONNACK.
    ConnAck {
        /// Session Present; none: the connection is refused.
        present: Option<bool>,
        /// Which of all sessions in the history it is. For the checkers, a client cannot know.
        birth: u64,
        /// It is, or will be, in the store that the client is back. For the checkers, too.
        is_noted: bool,
    },
    /// PUBLISH.
    Publish {
        /// Which message.
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
        /// Bytes of the payload.
        len: usize,
        /// Message Expiry Interval in milliseconds.
        expiry: Option<u64>,
    },
    /// PUBACK, and whether it is one with Reason Code 0x97.
    PubAck(PacketId, Verdict),
    /// PUBREC, and whether it is one with Reason Code 0x97.
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
    /// UNSUBACK, and whether there was such a subscription.
    UnsubAck(PacketId, bool),
    /// The broker has closed the connection.
    Disconnect,
}

/// Whether the broker does what it is asked to.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Verdict {
    /// Success.
    Done,
    /// Quota exceeded.
    Refused,
}

/// The QoS of a number from 0 to 2.
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
