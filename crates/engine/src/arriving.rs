//! Messages that another broker sends to the sessions of this one.

use barid_core::commits::Commits;
use barid_peers::{Destination, Run as RemoteRun};
use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, PacketType, Version};
use thiserror::Error;

use crate::budget::Budget;
use crate::context::Context;
use crate::router::Publisher;
use crate::run::Run;

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
        run: &RemoteRun<'_>,
        packets: &mut [u8],
        scratch: &mut Run,
        budget: &mut Budget,
    ) -> Result<Commits, Malformed> {
        let Some(tenant) = self.engine.tenants.get(run.tenant) else {
            return Ok(Commits::default());
        };
        scratch.clear();
        let parsed = self.parse(run.is_v5, packets, scratch);
        let result = parsed.map(|()| {
            if scratch.is_empty() {
                return Commits::default();
            }
            scratch.class = tenant.durability().of(scratch.topic());
            let publisher = Publisher { session: 0, client_id: run.publisher, holder: None };
            let messages = scratch.in_buffer(packets, self.worker.now);
            // The publisher is told nothing, so what a full queue refuses is dropped and counted.
            let refuses_at = tenant.limits().queue_overflow.refuses_at();
            let Self { worker, router, .. } = self;
            let admitted =
                router.admissible_here(worker, &tenant, publisher, &messages, refuses_at);
            scratch.truncate(admitted.unwrap_or(0));
            if !scratch.is_empty() {
                let targets = router.targets(&tenant, scratch.topic());
                let mut messages = scratch.in_buffer(packets, worker.now);
                let shared = match run.to {
                    Destination::Sessions => None,
                    Destination::Shared(group) => Some(group),
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
