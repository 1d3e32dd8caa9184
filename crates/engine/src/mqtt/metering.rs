//! The quotas of rates, as they apply to an MQTT client.

use std::sync::Arc;

use barid_core::time::MonoTime;

use super::client::Client;
use super::wanted::window;
use crate::quotas::Metered;
use crate::session::SessionRef;
use crate::worker::Worker;

/// Maximum number of messages of a client that are granted at a time.
const MESSAGES_MAX: u64 = 64;

impl Client {
    /// Whether the client must not be read from now, because of a quota.
    pub fn is_held_back(&self) -> bool {
        self.metered.waits_until().is_some()
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        self.metered.is_at_limit(now)
    }

    /// Returns how many bytes may be read from the client now, at most `most`. 0: none, before a later
    /// [`Self::on_time`]. [`Self::has_read`] must be called next.
    pub fn may_read(&mut self, worker: &Worker, most: usize) -> usize {
        self.check_quotas(worker.now);
        if self.metered.waits(worker.now) {
            return 0;
        }
        let Some(bytes) = &mut self.metered.bytes else { return most };
        let granted = self.tenant.pass(worker, bytes, most as u64, &self.session.client_id);
        granted.map_or(0, |granted| usize::try_from(granted).unwrap_or(most))
    }

    /// Counts bytes that were read from the client, perhaps none.
    pub fn has_read(&mut self, now: MonoTime, bytes: usize) {
        self.metered.has_read(now, bytes);
    }

    /// The time until which messages for the client wait because of a quota.
    pub(super) fn paced_until(&self) -> Option<MonoTime> {
        if self.is_paced { self.session.paced_until(self.epoch) } else { None }
    }

    /// Whether the client may publish another message now.
    pub(super) fn may_publish(&mut self, worker: &Worker) -> bool {
        let Some(messages) = &mut self.metered.messages else { return true };
        let granted = self.tenant.pass(worker, messages, MESSAGES_MAX, &self.session.client_id);
        if granted.is_some() {
            messages.spend(worker.now, 1);
        }
        granted.is_some()
    }

    /// Applies the limits as they are now, if they have changed.
    #[inline]
    pub(super) fn check_quotas(&mut self, now: MonoTime) {
        if self.metered.is_outdated(&self.tenant.quotas) {
            self.metered.refresh(now, &self.tenant.quotas, || self.tenant.limits());
            self.is_paced = Self::set_pace(&self.session, self.epoch, &self.metered);
            self.follow_limits();
        }
    }

    /// Replaces the limits that the client was not told by those of now.
    pub(super) fn follow_limits(&mut self) {
        let limits = self.tenant.limits();
        if !Arc::ptr_eq(&limits, &self.limits) {
            self.announced.follow(self.version, &limits);
            self.session.set_window(self.epoch, window(self.receive_maximum, &limits));
            self.limits = limits;
        }
    }

    /// Sets the pace at which the client is sent messages. Returns whether a quota limits it.
    pub(super) fn set_pace(session: &SessionRef, epoch: u32, metered: &Metered) -> bool {
        let pace = metered.outbound();
        let is_paced = pace.is_some();
        session.set_pace(epoch, pace);
        is_paced
    }
}
