//! Session State (MQTT 5 §4.1), the part that has to do with messages: what is in flight, what waits.
//!
//! | type | what it holds |
//! | --- | --- |
//! | [`SendWindow`] | packet identifiers of messages sent to the client and not yet acknowledged |
//! | [`Queue`](crate::queue::Queue) | messages that wait for the client, bounded by count and bytes |
//! | [`Outbound`] | both, in the one order in which messages leave |
//! | [`ReceivedIds`] | QoS 2 messages received from the client and not yet released |
//! | [`Journal`] | hears what has to be stored of all that |

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
    /// The QoS it is delivered with: the lower of the message's and the subscription's.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Identifiers of all subscriptions of the session that matched (MQTT 5 §3.3.2.3.8).
    pub identifiers: SmallVec<[NonZeroU32; 1]>,
    /// The shared subscription (`$share/{name}/{filter}`) that chose this session, if one did: who
    /// to ask for another member when this one goes away.
    pub shared: Option<Arc<str>>,
    /// Where it is stored, if it is.
    pub stored: Option<StoredAs>,
    /// When it was published, or found for a new subscription.
    pub queued_at: MonoTime,
    /// What has to be durable before it leaves, if anything: it tells of that.
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
