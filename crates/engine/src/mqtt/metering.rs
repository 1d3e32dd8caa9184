//! When an MQTT client is read from: the quotas of rates, the quorum of the cluster, and slots that are being moved.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;
use mqtt_proto::{FixedHeader, PacketType};

use super::client::Client;
use super::wanted::window;
use crate::cluster::Remote;
use crate::quotas::Metered;
use crate::session::SessionRef;
use crate::turn::Scratch;
use crate::worker::Worker;

/// Maximum number of messages of a client, and maximum number of bytes of answers, that are granted at a time.
const MESSAGES_MAX: u64 = 64;
const ANSWERS_MAX: u64 = 64 * 1024;

/// Time for which the broker must have the quorum at least when it reads from a client: that of a long turn.
const QUORUM_MARGIN: Duration = Duration::from_millis(100);

/// Time after which a client that is not read from is looked at again.
const CLUSTER_AGAIN: Duration = Duration::from_millis(50);

/// Time after which a client is looked at again that is not read from because a slot is being moved: that takes some
/// milliseconds, in which there is nothing else to do.
const HELD_AGAIN: Duration = Duration::from_millis(10);

/// Length of an acknowledgement without properties.
const ACK_LEN: usize = 4;

impl Client {
    /// Whether the client must not be read from now, because of a quota, or because of the cluster.
    pub fn is_held_back(&self) -> bool {
        self.metered.waits_until().is_some() || self.cluster_waits_until.is_some()
    }

    /// Whether the client must not be read from now, because of a quota for what it sends.
    pub fn is_unread(&self) -> bool {
        self.metered.waits_for_input()
    }

    /// Lets a client go on that waits because of the answers to what it sends. It has closed its side, so nobody reads
    /// them, and what it has sent must not keep its connection.
    pub fn forgive_answers(&mut self, worker: &Worker) {
        if let Some(mut answers) = self.metered.answers.take() {
            self.tenant.cut_short(worker, &mut answers);
        }
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        self.metered.is_at_limit(now)
    }

    /// Returns how many bytes may be read from the client now, at most `most`. 0: none, before a later
    /// [`Self::on_time`]. [`Self::has_read`] must be called next.
    pub fn may_read(&mut self, worker: &Worker, most: usize) -> usize {
        self.check_quotas(worker);
        if self.metered.waits(worker.now) || self.waits_for_cluster(worker.now) {
            return 0;
        }
        let Some(bytes) = &mut self.metered.bytes else { return most };
        let granted = self.tenant.pass(worker, bytes, most as u64, &self.session.client_id);
        granted.map_or(0, |granted| usize::try_from(granted).unwrap_or(most))
    }

    /// Whether the client must not be read from now because the broker has not the quorum of its cluster, or is about to lose it,
    /// because a slot is being moved, or because other brokers have not yet what the client has published on an earlier
    /// connection: what it publishes now must not overtake that. Packets that are not read need no acknowledgement.
    pub(super) fn waits_for_cluster(&mut self, now: MonoTime) -> bool {
        let sources = self.tenant.shards.sources();
        self.awaited.take_if(|it| now >= it.until || sources.are_done(&it.commits));
        let serves =
            |remote: &Remote| remote.serves(now.after(QUORUM_MARGIN)) && !remote.is_held(now);
        let remote = self.tenant.remote.as_ref();
        let waits = self.awaited.is_some() || !remote.is_none_or(serves);
        let is_held = waits && remote.is_some_and(|remote| remote.is_held(now));
        let again = if is_held { HELD_AGAIN } else { CLUSTER_AGAIN };
        self.cluster_waits_until = waits.then(|| now.after(again));
        waits
    }

    /// Whether nothing must be published now because a slot is being moved.
    #[inline]
    pub(super) fn is_held(&mut self, now: MonoTime) -> bool {
        let is_held = self.tenant.remote.as_ref().is_some_and(|remote| remote.is_held(now));
        if is_held {
            self.cluster_waits_until = Some(now.after(HELD_AGAIN));
        }
        is_held
    }

    /// Counts bytes that were read from the client, perhaps none.
    pub fn has_read(&mut self, now: MonoTime, bytes: usize) {
        self.metered.has_read(now, bytes);
    }

    /// Tells that the client had sent so many bytes before it had a session. They count when they are handled,
    /// as if they were [read](Self::may_read) then.
    pub fn expect_bytes(&mut self, bytes: usize) {
        self.metered.expect_bytes(bytes);
    }

    /// Whether the packet with this header may be handled now, although it will be answered. An answer is never
    /// delayed, so a client whose answers would exceed a quota may not cause any.
    #[inline]
    pub(super) fn may_be_answered(
        &mut self,
        worker: &Worker,
        scratch: &Scratch,
        header: FixedHeader,
    ) -> bool {
        if self.metered.answers.is_none() || !is_answered(header) {
            return true;
        }
        // Acknowledgements are encoded later, those of a run together.
        let waiting = scratch.run.ids.len() + scratch.acks.len();
        self.metered.has_answered(worker.now, scratch.answers.len() + ACK_LEN * waiting);
        let Some(answers) = &mut self.metered.answers else { return true };
        self.tenant.pass(worker, answers, ANSWERS_MAX, &self.session.client_id).is_some()
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
    pub(super) fn check_quotas(&mut self, worker: &Worker) {
        if self.metered.is_outdated(&self.tenant.quotas) {
            self.metered.paces().for_each(|pace| self.tenant.cut_short(worker, pace));
            self.metered.refresh(worker.now, &self.tenant.quotas, || self.tenant.limits());
            self.is_paced = Self::set_pace(worker, &self.session, self.epoch, &self.metered);
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
    pub(super) fn set_pace(
        worker: &Worker,
        session: &SessionRef,
        epoch: u32,
        metered: &Metered,
    ) -> bool {
        let pace = metered.outbound();
        let is_paced = pace.is_some();
        session.set_pace(worker, epoch, pace);
        is_paced
    }
}

/// Whether the broker answers a packet with this header.
fn is_answered(header: FixedHeader) -> bool {
    match header.packet_type() {
        PacketType::Publish => header.first & 0b0110 != 0,
        PacketType::PubAck | PacketType::PubComp | PacketType::Disconnect => false,
        _ => true,
    }
}
