//! The pace at which a client is sent messages, if a quota limits it.
//!
//! A message leaves the queue only when the bytes of its packet may be sent. So what waits in `unsent` has
//! been paid for, and acknowledgements do not wait behind it. These are counted where they are caused
//! (`mqtt/metering.rs`): a packet whose answer would exceed the quotas is not handled yet.

use barid_core::time::MonoTime;
use mqtt_proto::QoS;

use super::Session;
use super::outlet::Outlet;
use crate::faults::{Rule, holds};
use crate::quotas::Pace;
use crate::worker::Worker;

/// Maximum number of bytes that a session is granted at a time.
const GRANT_MAX: u64 = 64 * 1024;

impl Session {
    /// Sets the pace at which the client of the connection of `epoch` is sent messages; `None`: no quota limits
    /// it.
    pub fn set_pace(&self, worker: &Worker, epoch: u32, pace: Option<Box<Pace>>) {
        let mut outlet = self.outlet.lock();
        if outlet.epoch == epoch {
            // The old one gives back what it has not used, before the new one asks.
            if let Some(mut before) = outlet.pace.take() {
                self.account.cut_short(worker, &mut before);
            }
            outlet.pace = pace;
        }
    }

    /// Returns the time at which the owner of the connection of `epoch` has to [drain](Session::drain) the
    /// session, because the quotas allow it to send more.
    pub fn paced_until(&self, epoch: u32) -> Option<MonoTime> {
        let outlet = self.outlet.lock();
        let pace = outlet.pace.as_ref().filter(|_| outlet.epoch == epoch);
        pace.and_then(|pace| pace.until())
    }

    /// Wakes the owner of the connection, if there is one: the quotas have changed.
    pub fn wake_owner(&self) {
        self.outlet.lock().wake_owner();
    }
}

impl Outlet {
    /// Whether the quotas let a message with this QoS pass now. If not, the owner is woken, and gives the
    /// session its turn when they do.
    #[inline]
    pub(super) fn is_let_pass(&mut self, worker: &Worker, session: &Session, qos: QoS) -> bool {
        // Where the send window has no room, the message waits for that.
        self.pace.is_none()
            || (qos != QoS::AtMostOnce && !self.outbound.has_room())
            || self.may_send(worker, session)
    }

    /// Whether the quotas allow the next packet to leave, if there is one.
    #[inline]
    pub(super) fn may_refill(&mut self, worker: &Worker, session: &Session) -> bool {
        self.pace.is_none() || !self.outbound.has_next() || self.may_send(worker, session)
    }

    fn may_send(&mut self, worker: &Worker, session: &Session) -> bool {
        let Some(pace) = &mut self.pace else { return true };
        let before = pace.until();
        let may = session.account.pass(worker, pace, GRANT_MAX, &session.client_id).is_some();
        if !may && pace.until() != before && holds(Rule::TellOwnerOfWait) {
            self.wake_owner();
        }
        may
    }

    /// Whether the quotas allow this many bytes to be sent at once.
    #[inline]
    pub(super) fn affords(&mut self, worker: &Worker, bytes: usize) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.has(worker.now, bytes as u64))
    }

    /// Counts bytes that leave.
    #[inline]
    pub(super) fn charge(&mut self, worker: &Worker, bytes: usize) {
        if let Some(pace) = &mut self.pace {
            pace.spend(worker.now, bytes as u64);
        }
    }

    /// Ends a wait for the quotas that is over.
    pub(super) fn end_wait(&mut self, worker: &Worker) {
        if let Some(pace) = &mut self.pace {
            pace.end_wait(worker.now);
            if self.outbound.is_idle() && self.replays.is_none() {
                pace.rest();
            }
        }
    }

    /// Gives back what was granted and not used.
    #[inline]
    pub(super) fn rest(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.rest();
        }
    }
}
