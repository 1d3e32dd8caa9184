//! A client: its session, its clock, and what it sends again.

use barid_core::ids::PacketId;
use statestore_proto::Version;

use crate::packets::state_store::{Packet, Request, RequestNumber, Told};

/// Requests that a client sends before it waits for answers.
const IN_FLIGHT_MAX: usize = 3;

/// A client with its half of the session.
pub struct Client {
    /// Its clock less that of the broker, in milliseconds.
    pub skew: i64,
    /// Whether CONNACK has come on its connection.
    pub connected: bool,
    /// It gives its session up with the next CONNECT.
    pub wants_clean: bool,
    /// The version with which it got the lock last.
    pub lock: Option<Version>,
    in_flight: Vec<InFlight>,
}

struct InFlight {
    request: Request,
    /// PUBACK has come.
    acknowledged: bool,
    /// The response has come.
    answered: bool,
}

impl Client {
    pub fn new(skew: i64) -> Self {
        Self { skew, connected: false, wants_clean: false, lock: None, in_flight: Vec::new() }
    }

    /// Whether it may send a request.
    pub fn may_ask(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Whether it waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The smallest packet identifier that is free.
    pub fn free_id(&self) -> PacketId {
        let used = |id: &PacketId| {
            self.in_flight.iter().any(|sent| sent.request.id == *id && !sent.acknowledged)
        };
        (1..).find(|id| !used(id)).expect("few are used")
    }

    /// It sends a request, and keeps it until it is acknowledged.
    pub fn ask(&mut self, request: Request) {
        self.in_flight.push(InFlight { request, acknowledged: false, answered: false });
    }

    /// The connection has broken. A response that has not come does not come any more, unless the request
    /// is sent again.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.in_flight.retain(|sent| !sent.acknowledged);
    }

    /// Its session is over, and what it was about to send again.
    pub fn forget_session(&mut self) {
        self.in_flight.clear();
    }

    /// After CONNACK, what was not acknowledged is sent again in its old order (MQTT 5 §4.4), whether it was
    /// answered or not.
    pub fn resend(&self) -> Vec<Packet> {
        let again = |sent: &InFlight| Packet::Request(Request { dup: true, ..sent.request });
        self.in_flight.iter().filter(|sent| !sent.acknowledged).map(again).collect()
    }

    /// PUBACK has come.
    pub fn acknowledged(&mut self, id: PacketId) {
        let of_id = |sent: &&mut InFlight| sent.request.id == id && !sent.acknowledged;
        if let Some(sent) = self.in_flight.iter_mut().find(of_id) {
            sent.acknowledged = true;
        }
        self.finish();
    }

    /// A response has come. Answers the request, unless it was answered before.
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
