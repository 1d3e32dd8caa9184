//! A client: its session, its clock, and the requests that it repeats.

use barid_core::ids::PacketId;
use statestore_proto::Version;

use crate::packets::state_store::{Packet, Request, RequestNumber, Told};

/// Maximum number of unanswered requests of a client. At this number it waits for responses.
const IN_FLIGHT_MAX: usize = 3;

/// A client with its half of the session.
pub struct Client {
    /// Difference between its clock and the broker's, in milliseconds. Positive if its clock is ahead.
    pub skew: i64,
    /// Whether CONNACK has arrived on the current connection.
    pub connected: bool,
    /// Whether the next CONNECT has Clean Start.
    pub wants_clean: bool,
    /// The version with which the client last took the lock.
    pub lock: Option<Version>,
    in_flight: Vec<InFlight>,
}

struct InFlight {
    request: Request,
    /// Whether PUBACK has arrived.
    acknowledged: bool,
    /// Whether the response has arrived.
    answered: bool,
}

impl Client {
    pub fn new(skew: i64) -> Self {
        Self { skew, connected: false, wants_clean: false, lock: None, in_flight: Vec::new() }
    }

    /// Whether the client may send a request.
    pub fn may_ask(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Whether the client waits for no answer.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the smallest free packet identifier.
    pub fn free_id(&self) -> PacketId {
        let used = |id: &PacketId| {
            self.in_flight.iter().any(|sent| sent.request.id == *id && !sent.acknowledged)
        };
        (1..).find(|id| !used(id)).expect("few are used")
    }

    /// Takes note of a request that the client sends. It is kept until it is acknowledged and answered.
    pub fn ask(&mut self, request: Request) {
        self.in_flight.push(InFlight { request, acknowledged: false, answered: false });
    }

    /// Handles the loss of the connection. An outstanding response arrives only if the request is sent again,
    /// so the client gives up acknowledged requests.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.in_flight.retain(|sent| !sent.acknowledged);
    }

    /// Forgets the client's session, and the requests that would be sent again.
    pub fn forget_session(&mut self) {
        self.in_flight.clear();
    }

    /// Returns the packets to send after CONNACK: the requests that were not acknowledged, answered or not, in
    /// their original order (MQTT 5 §4.4).
    pub fn resend(&self) -> Vec<Packet> {
        let again = |sent: &InFlight| Packet::Request(Request { dup: true, ..sent.request });
        self.in_flight.iter().filter(|sent| !sent.acknowledged).map(again).collect()
    }

    /// Records that PUBACK has arrived.
    pub fn acknowledged(&mut self, id: PacketId) {
        let of_id = |sent: &&mut InFlight| sent.request.id == id && !sent.acknowledged;
        if let Some(sent) = self.in_flight.iter_mut().find(of_id) {
            sent.acknowledged = true;
        }
        self.finish();
    }

    /// Records that a response has arrived. Returns the request, unless it was answered before.
    pub fn answered(&mut self, number: RequestNumber, told: Told) -> Option<Request> {
        let of_number = |sent: &&mut InFlight| sent.request.number == number && !sent.answered;
        let sent = self.in_flight.iter_mut().find(of_number)?;
        sent.answered = true;
        let request = sent.request;
        if let (crate::packets::state_store::LOCK, Told::Set(version)) = (request.key, told) {
            self.lock = Some(version);
        }
        self.finish();
        Some(request)
    }

    fn finish(&mut self) {
        self.in_flight.retain(|sent| !(sent.acknowledged && sent.answered));
    }
}
