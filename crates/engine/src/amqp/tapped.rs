//! The tap of an AMQP connection: copies of what passes, for operators who trace the client.

use std::sync::Arc;

use super::container::Container;
use crate::tapping::{Protocol, Tap, Tapped, Tracer};

/// The reason that traces and events give for the end of an AMQP connection. A client may go without a `close`.
pub(super) const ENDED: &str = "the connection has ended";

/// The tap of a connection whose client may be traced.
#[derive(Debug, Default)]
pub(super) struct ContainerTap {
    /// The traces of the tenant that were looked at.
    seen: u64,
    tracer: Option<Arc<dyn Tracer>>,
    tap: Option<Arc<dyn Tap>>,
    /// The tap gets what is sent.
    is_in_step: bool,
    /// The output begins in the middle of a frame.
    is_cut: bool,
}

impl Container {
    /// Notes whether the client is traced. Traces begin and end at any time.
    pub(super) fn check_trace(&mut self) {
        let Some(tenant) = self.access.tenant().filter(|_| self.is_open()) else { return };
        let changes = tenant.account.traced.changes();
        if changes == self.tapped.seen {
            return;
        }
        let tracer = tenant.account.traced.tracer(&self.container_id);
        let goes_on = match (&tracer, &self.tapped.tracer) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            _ => false,
        };
        self.tapped.seen = changes;
        if goes_on {
            return;
        }
        let tapped = Tapped {
            client: &self.container_id,
            connection: self.inbox().connection(),
            protocol: Protocol::Amqp,
            peer: self.peer,
            begins: self.listed.is_none(),
        };
        let tap = tracer.as_ref().map(|tracer| tracer.tap(&tapped));
        let is_in_step = !self.tapped.is_cut;
        self.tapped = ContainerTap { tracer, tap, is_in_step, ..self.tapped };
    }

    /// Copies whole frames that the client has sent.
    pub(super) fn tap_received(&self, frames: &[u8]) {
        if let Some(tap) = &self.tapped.tap {
            tap.received(frames);
        }
    }

    /// Notes that answers wait for the disk.
    pub(super) fn tap_waits(&self) {
        if let Some(tap) = &self.tapped.tap {
            tap.waits();
        }
    }

    /// Copies that the connection has ended.
    pub(super) fn tap_end(&mut self) {
        if let Some(tap) = self.tapped.tap.take() {
            tap.ended(ENDED);
        }
    }

    /// Removes the first `bytes` bytes of the output, which have been written to the client.
    pub fn has_written(&mut self, bytes: usize) {
        let output = self.engine.output();
        if let Some(passing) = &mut self.passing {
            passing.note_sent(output, bytes);
        }
        let tapped = &mut self.tapped;
        if let Some(tap) = tapped.tap.as_ref().filter(|_| tapped.is_in_step) {
            tap.sent(&output[..bytes]);
        }
        output.drain(..bytes);
        tapped.is_cut = match output.is_empty() {
            true => false,
            false => bytes > 0 || tapped.is_cut,
        };
        tapped.is_in_step |= output.is_empty();
    }
}
