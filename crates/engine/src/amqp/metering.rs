//! The quotas of rates, as they apply to an AMQP connection.
//!
//! Messages and requests of the client wait in front of all later frames. Messages for the client wait in
//! their entities. Responses count, but are not delayed: no request is handled while they would have to be.

use barid_amqp::Delivery;
use barid_core::time::MonoTime;

use super::access::Admitted;
use super::container::Container;
use super::link::Link;
use crate::quotas::Pace;

/// Maximum number of messages of a client, and maximum number of bytes for it, that are granted at a time.
const MESSAGES_MAX: u64 = 64;
const BYTES_MAX: u64 = 64 * 1024;

impl Container {
    /// Whether the client must not be read from now, because of a quota.
    pub fn is_held_back(&self) -> bool {
        self.access.admitted().is_some_and(|admitted| admitted.metered.waits_until().is_some())
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        self.access.admitted().is_some_and(|admitted| admitted.metered.is_at_limit(now))
    }

    /// Returns how many bytes may be read from the client now, at most `most`. 0: none, before a later
    /// [`Self::on_time`]. [`Self::has_read`] must be called next.
    pub fn may_read(&mut self, most: usize) -> usize {
        let (worker, client) = (self.worker, &self.container_id);
        let Some(Admitted { tenant, metered, .. }) = self.access.admitted_mut() else {
            return most;
        };
        if metered.waits(worker.now) {
            return 0;
        }
        let Some(bytes) = &mut metered.bytes else { return most };
        let granted = tenant.pass(&worker, bytes, most as u64, client);
        granted.map_or(0, |granted| usize::try_from(granted).unwrap_or(most))
    }

    /// Counts bytes that were read from the client, perhaps none.
    pub fn has_read(&mut self, bytes: usize) {
        let now = self.worker.now;
        if let Some(admitted) = self.access.admitted_mut() {
            admitted.is_counted = true;
            admitted.metered.has_read(now, bytes);
        }
    }

    /// Counts bytes that were handled, unless they were counted when they were read: the client may have sent
    /// much in one piece with its token.
    pub(super) fn has_received(&mut self, bytes: usize) {
        if self.access.admitted().is_some_and(|admitted| !admitted.is_counted) {
            self.has_read(bytes);
        }
    }

    /// Whether the quotas allow a message or request of the client to be handled now.
    pub(super) fn may_handle(&mut self, delivery: &Delivery) -> bool {
        let is_request = match self.links.get(&delivery.link) {
            Some(Link::Requests(_)) => true,
            Some(Link::Sender(_)) => false,
            _ => return true,
        };
        if is_request && self.may_send(1) == 0 {
            return false;
        }
        let (worker, client) = (self.worker, &self.container_id);
        let Some(Admitted { tenant, metered, .. }) = self.access.admitted_mut() else {
            return true;
        };
        let Some(messages) = &mut metered.messages else { return true };
        let granted = tenant.pass(&worker, messages, MESSAGES_MAX, client).is_some();
        if granted {
            messages.spend(worker.now, 1);
        }
        granted
    }

    /// Counts further messages in one delivery, a batch.
    pub(super) fn count_batched(&mut self, messages: usize) {
        let now = self.worker.now;
        let admitted = self.access.admitted_mut();
        if let Some(pace) = admitted.and_then(|admitted| admitted.metered.messages.as_mut()) {
            pace.spend(now, messages as u64);
        }
    }

    /// Counts messages from the client that have arrived together.
    pub(super) fn count_received(&self, messages: usize, bytes: usize) {
        let (messages, bytes) = (messages as u64, bytes as u64);
        if let Some(tenant) = self.access.tenant() {
            tenant.counters(self.worker.id).amqp_received.add(messages, bytes);
        }
        if let Some(listed) = &self.listed {
            listed.traffic().add_received(messages, bytes);
        }
    }

    /// Counts a message to the client.
    pub(super) fn count_sent(&self, bytes: usize) {
        if let Some(tenant) = self.access.tenant() {
            tenant.counters(self.worker.id).amqp_sent.add(1, bytes as u64);
        }
        if let Some(listed) = &self.listed {
            listed.traffic().add_sent(1, bytes as u64);
        }
    }

    /// Returns how many bytes may be sent to the client now, at most `most`; 0: none, before a later
    /// [`Self::on_time`].
    pub(super) fn may_send(&mut self, most: usize) -> usize {
        let (worker, client) = (self.worker, &self.container_id);
        let Some(Admitted { tenant, outbound, .. }) = self.access.admitted_mut() else {
            return most;
        };
        let Some(outbound) = outbound else { return most };
        let granted = tenant.pass(&worker, outbound, BYTES_MAX.min(most as u64), client);
        granted.map_or(0, |granted| usize::try_from(granted).unwrap_or(most))
    }

    /// Counts bytes that are sent to the client.
    pub(super) fn has_sent(&mut self, bytes: usize) {
        let now = self.worker.now;
        if let Some(outbound) = self.outbound() {
            outbound.spend(now, bytes as u64);
        }
    }

    /// Gives back what the quotas have granted and what was not used.
    pub(super) fn rest(&mut self) {
        if let Some(admitted) = self.access.admitted_mut() {
            admitted.metered.rest();
        }
        if let Some(outbound) = self.outbound() {
            outbound.rest();
        }
    }

    /// Ends waits for quotas that are over.
    pub(super) fn end_waits(&mut self, now: MonoTime) {
        if let Some(admitted) = self.access.admitted_mut() {
            admitted.metered.waits(now);
        }
        if let Some(outbound) = self.outbound() {
            outbound.end_wait(now);
        }
    }

    /// The time at which a quota lets the connection go on.
    pub fn waits_until(&self) -> Option<MonoTime> {
        let admitted = self.access.admitted()?;
        let outbound = admitted.outbound.as_ref().and_then(|pace| pace.until());
        [admitted.metered.waits_until(), outbound].into_iter().flatten().min()
    }

    fn outbound(&mut self) -> Option<&mut Pace> {
        self.access.admitted_mut()?.outbound.as_deref_mut()
    }
}
