//! The part of the Session State (MQTT 5 §4.1) that concerns messages: those in flight, and those that wait.
//!
//! | type | contents |
//! | --- | --- |
//! | [`SendWindow`] | packet identifiers of messages sent to the client and not yet acknowledged |
//! | [`Queue`](crate::queue::Queue) | messages that wait for the client, bounded by count and bytes |
//! | [`Outbound`] | both, in the order in which messages are sent |
//! | [`ReceivedIds`] | QoS 2 messages received from the client and not yet released |
//! | [`Journal`] | receives the changes of these that must be stored |

mod entry_record;
mod journal;
mod outbound;
mod received;
mod send_window;
mod waiting;

pub use entry_record::{EntryRecord, Phase};
pub use journal::Journal;
pub use outbound::{Outbound, Outgoing};
pub use received::{ReceivedIds, Reception, ShardSet};
pub use send_window::{Acked, SendWindow, WindowLimits};
pub use waiting::{OVERHEAD, Stub, Waiting};

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::QoS;
use smallvec::SmallVec;

use crate::commits::Commits;
use crate::ids::StoredAs;
use crate::message::Message;
use crate::time::MonoTime;

/// One message on its way to one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message, shared with all other sessions that it goes to.
    pub message: Arc<Message>,
    /// The QoS with which the message is delivered: the lower of the message's and the subscription's.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Identifiers of all subscriptions of the session that matched (MQTT 5 §3.3.2.3.8).
    pub identifiers: SmallVec<[NonZeroU32; 1]>,
    /// The shared subscription (`$share/{name}/{filter}`) that chose this session, if one did. Another of its members
    /// gets the message if this session ends.
    pub shared: Option<Arc<str>>,
    /// The records under which the delivery is stored, if it is.
    pub stored: Option<StoredAs>,
    /// Time at which the message was published, or found for a new subscription.
    pub queued_at: MonoTime,
    /// The batches that must be durable before the message is sent, if any: the message reveals their changes.
    pub after: Option<Box<Commits>>,
}

#[cfg(test)]
pub(crate) mod tests_support {
    use super::*;
    use crate::message::Publication;

    pub(crate) fn delivery(n: u8, qos: QoS) -> Delivery {
        make(n, qos, None, None)
    }

    pub(crate) fn shared(n: u8, qos: QoS) -> Delivery {
        make(n, qos, None, Some(Arc::from("$share/g/t")))
    }

    pub(crate) fn expiring(at_millis: u64) -> Delivery {
        make(0, QoS::AtMostOnce, Some(MonoTime::from_millis(at_millis)), None)
    }

    fn make(n: u8, qos: QoS, expires_at: Option<MonoTime>, shared: Option<Arc<str>>) -> Delivery {
        let publication = Publication {
            topic: "t",
            payload: &[n],
            properties: &[],
            qos,
            retain: false,
            expires_at,
        };
        Delivery {
            message: Arc::new(Message::new(&publication)),
            qos,
            retain: false,
            identifiers: SmallVec::new(),
            shared,
            stored: None,
            queued_at: MonoTime::default(),
            after: None,
        }
    }
}
