//! What another broker sends to the sessions of this one, and to its state store.

use barid_core::commits::Commits;
use barid_core::drop_reason::DropReason;
use barid_core::durable::RetainedRecord;
use barid_core::time::MonoTime;
use barid_peers::{Destination, Retaining, Run as RemoteRun};
use hashbrown::HashMap;
use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, PacketType, Version};
use thiserror::Error;

use crate::budget::Budget;
use crate::cluster::{Home, LeftRun, Lost, MemberRef};
use crate::context::Context;
use crate::retaining::merge;
use crate::router::Publisher;
use crate::run::{Messages, Run};
use crate::tenant::Tenant;

/// Error: the packets of a run are not what a run contains.
#[derive(Clone, Copy, Debug, Error)]
#[error("the packets of a run are malformed")]
pub struct Malformed;

impl Context {
    /// Hands the messages of another broker to the sessions of this one. `packets` are those of `run`. Returns what
    /// must be durable before the run is done.
    ///
    /// # Errors
    /// The packets are malformed. None of them was handed on.
    pub fn deliver_here(
        &mut self,
        (from, run): (MemberRef, &RemoteRun<'_>),
        packets: &mut [u8],
        scratch: &mut Run,
        budget: &mut Budget,
    ) -> Result<Commits, Malformed> {
        match run.to {
            Destination::StateStore(_) | Destination::Inquirer(_) => {
                self.on_state(from, run, packets, scratch, budget)
            }
            Destination::OldSession(at) => Ok(self.on_clean_start(run, at)),
            Destination::Sessions | Destination::Shared(_) => {
                self.deliver(run, packets, scratch, budget)
            }
        }
    }

    /// A client has connected to another broker with Clean Start: its session here ends.
    fn on_clean_start(&mut self, run: &RemoteRun<'_>, at: u64) -> Commits {
        if let Some(cluster) = &self.engine.cluster {
            // The client hears of this before it connects here.
            cluster.has_connected(at, self.engine.clock.wall_micros());
        }
        let tenant = self.engine.tenants.recover(run.tenant);
        let session = tenant.sessions.entry(run.publisher).get().cloned();
        let mut commits = session
            .map_or_else(Commits::default, |session| self.end_old_session(&tenant, &session, at));
        commits.join(&tenant.removals(run.publisher));
        if let Some(remote) = &tenant.remote {
            // The slot has just been moved, and the other broker has not heard of it.
            commits.join(&remote.end_old_session(&self.worker, run.publisher, at));
        }
        // In a closed shard it stays, and nobody is to wait.
        if commits.are_lost() { Commits::default() } else { commits }
    }

    /// Handles a request to the state store, or what a client is told that has asked one.
    fn on_state(
        &mut self,
        from: MemberRef,
        run: &RemoteRun<'_>,
        packets: &mut [u8],
        scratch: &mut Run,
        budget: &mut Budget,
    ) -> Result<Commits, Malformed> {
        scratch.clear();
        let parsed = self.parse(run.is_v5, packets, scratch);
        let commits = parsed.map(|()| match &run.to {
            Destination::StateStore(inquiry) => {
                self.on_inquiry((from, run), inquiry, (scratch, packets), budget)
            }
            Destination::Inquirer(told) => {
                let tenant = self.engine.tenants.recover(run.tenant);
                self.on_told((from, &tenant), (run.publisher, *told), scratch, packets);
                Commits::default()
            }
            Destination::Sessions | Destination::Shared(_) | Destination::OldSession(_) => {
                Commits::default()
            }
        });
        scratch.clear();
        commits
    }

    fn deliver(
        &mut self,
        run: &RemoteRun<'_>,
        packets: &mut [u8],
        scratch: &mut Run,
        budget: &mut Budget,
    ) -> Result<Commits, Malformed> {
        let tenants = &self.engine.tenants;
        let tenant = match run.retaining {
            // Its retained messages are here, whether or not the tenant has clients here.
            Some(_) => Some(tenants.recover(run.tenant)),
            None => tenants.get(run.tenant),
        };
        let Some(tenant) = tenant else { return Ok(Commits::default()) };
        scratch.clear();
        let parsed = self.parse(run.is_v5, packets, scratch);
        let result = parsed.map(|()| {
            if scratch.is_empty() {
                return Commits::default();
            }
            scratch.class = tenant.durability().of(scratch.topic());
            let publisher = Publisher { session: 0, client_id: run.publisher, holder: None };
            let mut messages = scratch.in_buffer(packets, self.worker.now);
            if let Some(retaining) = run.retaining {
                // First, so that a client that subscribes in the meantime gets the message.
                merge_last(&tenant, retaining, self.worker.now, &mut messages);
            }
            // The publisher is told nothing, so what a full queue refuses is dropped and counted.
            let refuses_at = tenant.limits().queue_overflow.refuses_at();
            let Self { worker, router, .. } = self;
            let admitted =
                router.admissible_here(worker, &tenant, publisher, &messages, refuses_at);
            scratch.truncate(admitted.unwrap_or(0));
            let has_queues = matches!(tenant.home(), Home::Here | Home::Closed);
            if run.to == Destination::Sessions && has_queues {
                self.enter_here(&tenant, publisher, scratch, packets);
            }
            let Self { worker, router, .. } = self;
            if !scratch.is_empty() {
                let targets = router.targets(&tenant, scratch.topic());
                let mut messages = scratch.in_buffer(packets, worker.now);
                let shared = match run.to {
                    Destination::Shared(group) => Some(group),
                    _ => None,
                };
                let source = (publisher, shared);
                router.deliver_here(worker, &tenant, source, &targets, &mut messages, budget);
                // Their publisher cannot be held back from here: the queues drop what exceeds their limits.
                router.take_full();
            }
            std::mem::take(&mut scratch.commits)
        });
        scratch.clear();
        // What a closed shard has not taken is lost, and nobody is to wait for it.
        result.map(|commits| if commits.are_lost() { Commits::default() } else { commits })
    }

    /// Counts messages that were given up, because the broker with the sessions is down.
    pub(crate) fn count_lost(&self, lost: &HashMap<String, Lost>) {
        for (tenant, Lost { messages, seen }) in lost {
            let tenant = self.engine.tenants.recover(tenant);
            let reason = DropReason::BrokerDown;
            for (topic, publisher) in seen {
                tenant.dropped(&self.worker, reason, Some(topic), publisher);
            }
            tenant.counters(self.worker.id).dropped(reason, messages - seen.len() as u64);
        }
    }

    /// Hands messages of a shared subscription to another member: their broker is down.
    pub(crate) fn share_again(&mut self, mut left: LeftRun) {
        let mut packets = std::mem::take(&mut left.packets);
        let (mut scratch, mut budget) = (Run::default(), Budget::unbounded());
        // They were made here, so they are well-formed. Their publisher does not wait for them any more.
        let _ = self.deliver(&left.as_run(), &mut packets, &mut scratch, &mut budget);
    }

    /// Decodes the packets of a run.
    fn parse(&self, is_v5: bool, packets: &[u8], run: &mut Run) -> Result<(), Malformed> {
        let version = if is_v5 { Version::V5 } else { Version::V3_1_1 };
        let mut at = 0;
        while at < packets.len() {
            let header = FixedHeader::read(&packets[at..], MAX_PACKET_LEN);
            let header = header.ok().flatten().ok_or(Malformed)?;
            let frame = at..at + header.packet_len();
            at = frame.end;
            if header.packet_type() != PacketType::Publish || frame.end > packets.len() {
                return Err(Malformed);
            }
            let parsed = run.parse(version, header, packets, &frame).map_err(|_| Malformed)?;
            if run.is_empty() {
                let topic = std::str::from_utf8(&packets[parsed.topic.clone()]);
                let topic = topic.map_err(|_| Malformed)?;
                run.begin(topic, parsed.qos, parsed.retain, is_v5, run.class);
            } else if !(parsed.same_topic && run.continues(&parsed)) {
                return Err(Malformed);
            }
            run.push(parsed, packets, self.worker.now);
        }
        Ok(())
    }
}

/// Makes the last of the messages the retained message of its topic, unless there is a later one.
fn merge_last(
    tenant: &Tenant,
    Retaining { stamp, user }: Retaining<'_>,
    now: MonoTime,
    messages: &mut Messages<'_>,
) {
    if !messages.retain() {
        return;
    }
    let message = messages.message(messages.len() - 1);
    let holder = (!user.is_empty()).then(|| tenant.quotas.holder(user));
    let record = RetainedRecord { message, holder, stamp };
    let mut commits = Commits::default();
    // A closed shard gets the message when the brokers compare what they have.
    merge(tenant, record, now, &mut commits);
    messages.wait_for_all(&commits);
}
