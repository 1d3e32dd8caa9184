//! The tap of a session's connection: copies of what passes, for operators who trace the client.
//!
//! Only the writer of a socket knows what has been written, and only under the lock of the outlet is it known where a
//! packet begins. So a tap that is added in the middle of a packet gets nothing before that packet has been written.

use std::sync::Arc;

use super::Session;
use super::outlet::{Outlet, OutletTap};
use crate::tapping::{Protocol, Tap, Tapped};

impl Session {
    /// Begins or ends to tap the present connection, as the traces of the tenant want it. The owner of the connection is
    /// woken.
    pub fn follow_trace(&self) {
        self.with(|outlet| {
            self.tap_outlet(outlet, false);
            outlet.wake_owner();
        });
    }

    pub(super) fn tap_outlet(&self, outlet: &mut Outlet, begins: bool) {
        let is_in_step = outlet.unsent.is_empty() && !outlet.writing || begins;
        let tracer = self.account.traced.tracer(&self.client_id);
        outlet.tap = tracer.zip(outlet.link.as_ref()).map(|(tracer, link)| {
            let tapped = Tapped {
                client: &self.client_id,
                connection: link.connection,
                protocol: Protocol::Mqtt(link.version),
                peer: link.peer,
                begins,
            };
            Box::new(OutletTap { tap: tracer.tap(&tapped), is_in_step })
        });
    }

    /// Returns the tap of the connection of `epoch`.
    pub fn tap(&self, epoch: u32) -> Option<Arc<dyn Tap>> {
        let outlet = self.outlet.lock();
        let tapped = outlet.tap.as_ref().filter(|_| outlet.epoch == epoch);
        tapped.map(|tapped| Arc::clone(&tapped.tap))
    }

    /// Returns the tap of the connection of `epoch`, if the next byte to be written is one that it must get.
    pub(super) fn tap_in_step(&self, epoch: u32) -> Option<Arc<dyn Tap>> {
        if !self.account.traced.is_used() {
            return None;
        }
        let outlet = self.outlet.lock();
        let tapped = outlet.tap.as_ref().filter(|tap| outlet.epoch == epoch && tap.is_in_step);
        tapped.map(|tapped| Arc::clone(&tapped.tap))
    }
}
