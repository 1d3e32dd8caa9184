use std::time::Duration;

use super::{Connection, Event, Failure, SaslOutcome};
use crate::frame::{self, AMQP_HEADER, MIN_MAX_FRAME_SIZE, Open, Performative, SASL_HEADER, Sasl};

/// Mechanisms that are offered, in this order. Clients take the first they know, or insist on one:
/// those of .NET on MSSBCBS.
const MECHANISMS: [&str; 4] = ["MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL"];

/// State of a connection, from its first protocol header to its end.
///
/// ```text
/// Header ─ SASL ─▶ SaslInit ─▶ SaslOutcome ─ ok ─▶ HeaderAfterSasl
///    │                              │                     │
///    │ AMQP                         │ not ok              │ AMQP
///    ▼                              ▼                     ▼
/// AwaitOpen ◀─────────────────── Closed ◀───┐         AwaitOpen ─▶ Open ─ close ─▶ Closing
///                                           └──────────────────────── close ─────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No header has been received.
    Header,
    /// The mechanisms are offered.
    SaslInit,
    /// The caller has been asked to judge the credentials.
    SaslOutcome,
    HeaderAfterSasl,
    AwaitOpen,
    Open,
    /// This side has closed the connection, and the peer has not.
    Closing,
    Closed,
}

impl Phase {
    pub(super) fn expects_header(self) -> bool {
        matches!(self, Self::Header | Self::HeaderAfterSasl)
    }
}

impl Connection {
    /// Answers [`Event::SaslInit`], at once or later. A client that is not authenticated gets the outcome, and
    /// the connection is closed.
    pub fn sasl_outcome(&mut self, outcome: SaslOutcome) {
        if self.phase != Phase::SaslOutcome {
            return;
        }
        frame::encode_sasl(self.out.bytes(), &Sasl::Outcome { code: outcome.code() });
        if outcome == SaslOutcome::Ok {
            self.phase = Phase::HeaderAfterSasl;
        } else {
            self.finish(None);
        }
    }

    pub(super) fn on_header(&mut self, header: &[u8; 8]) -> Result<(), Failure> {
        match (self.phase, *header) {
            (_, AMQP_HEADER) => {
                self.out.bytes().extend_from_slice(&AMQP_HEADER);
                self.phase = Phase::AwaitOpen;
            }
            (Phase::Header, SASL_HEADER) => {
                let mechanisms = MECHANISMS.map(String::from).to_vec();
                self.out.bytes().extend_from_slice(&SASL_HEADER);
                frame::encode_sasl(self.out.bytes(), &Sasl::Mechanisms(mechanisms));
                self.phase = Phase::SaslInit;
            }
            _ => return Err(Failure::Header),
        }
        Ok(())
    }

    pub(super) fn on_sasl(&mut self, sasl: Sasl) -> Result<(), Failure> {
        let Sasl::Init { mechanism, initial_response: response, .. } = sasl else {
            return Err(Failure::NotAllowed("a step of SASL that was not asked for"));
        };
        self.phase = Phase::SaslOutcome;
        self.events.push_back(Event::SaslInit { mechanism, response });
        Ok(())
    }

    pub(super) fn on_open(&mut self, open: Box<Open>) {
        self.peer.max_frame_size = open.max_frame_size.max(MIN_MAX_FRAME_SIZE) as usize;
        self.peer.idle_time_out = open
            .idle_time_out
            .filter(|millis| *millis > 0)
            .map(|millis| Duration::from_millis(u64::from(millis)));
        self.write_open();
        self.phase = Phase::Open;
        self.events.push_back(Event::Opened(open));
    }

    pub(super) fn write_open(&mut self) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let open = Open {
            max_frame_size: self.limits.max_frame_size.max(MIN_MAX_FRAME_SIZE),
            channel_max: self.limits.channel_max,
            idle_time_out: self.limits.idle_time_out.map(millis),
            ..Open::new(&self.container_id)
        };
        self.out.frame(0, &Performative::Open(Box::new(open)));
    }
}
