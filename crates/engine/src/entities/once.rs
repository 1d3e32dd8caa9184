//! A message that each queue takes once, although it may be sent again after a crash.

use std::cell::RefCell;

use barid_core::durable::Shard;
use barid_core::ids::{PacketId, QueueNumber, SessionNumber, TenantNumber};
use smallvec::SmallVec;

use crate::faults::{Rule, holds};

/// A message that a client has published with QoS 2, on its way into queues. Each queue notes in its shard that it
/// has the message, in the batch of the message itself.
///
/// Several copies may come to one queue on different paths. When the message is sent again, the queue skips as many
/// copies as it had before.
#[derive(Debug)]
pub struct Once {
    tenant: TenantNumber,
    publisher: SessionNumber,
    packet_id: PacketId,
    visits: RefCell<SmallVec<[Visit; 2]>>,
}

#[derive(Debug)]
struct Visit {
    queue: QueueNumber,
    /// Copies that the queue had at the first visit and that have not been skipped yet.
    to_skip: usize,
}

impl Once {
    /// Creates the state of a message that a client has published under this Packet Identifier and has not
    /// released.
    pub fn new(tenant: TenantNumber, publisher: SessionNumber, packet_id: PacketId) -> Self {
        Self { tenant, publisher, packet_id, visits: RefCell::default() }
    }

    /// Registers a copy that comes to a queue. Returns whether the queue already has it.
    pub(super) fn visit(&self, queue: QueueNumber, shard: &Shard) -> bool {
        let mut visits = self.visits.borrow_mut();
        let at = visits.iter().position(|visit| visit.queue == queue).unwrap_or_else(|| {
            let noted = shard.received(self.publisher, self.packet_id);
            let had = noted.map_or(0, |noted| noted.copies_in(queue));
            let to_skip = if holds(Rule::AskWhoHasIt) { had } else { 0 };
            visits.push(Visit { queue, to_skip });
            visits.len() - 1
        });
        let visit = &mut visits[at];
        let has_it = visit.to_skip > 0;
        visit.to_skip -= usize::from(has_it);
        has_it
    }

    /// Notes that the queue has taken the copy.
    pub(super) fn note(&self, queue: QueueNumber, shard: &mut Shard) {
        if holds(Rule::NoteReceivedWithMessage) {
            let (publisher, id) = (self.publisher, self.packet_id);
            shard.note_received(self.tenant, publisher, id, |noted| noted.add_queue(queue));
        }
    }
}

#[cfg(test)]
mod tests {
    use barid_core::durable::ReceivedRecord;

    use super::*;

    const TENANT: TenantNumber = TenantNumber(0);

    #[test]
    fn a_queue_gets_the_copies_that_it_does_not_have() {
        let mut shard = Shard::new(0);
        shard.name_tenant(TENANT, "t");
        let send = |shard: &mut Shard, queues: &[QueueNumber]| {
            let message = Once::new(TENANT, 7, 1);
            let mut taken = Vec::new();
            for queue in queues {
                if !message.visit(*queue, shard) {
                    message.note(*queue, shard);
                    taken.push(*queue);
                }
            }
            taken
        };
        assert_eq!(send(&mut shard, &[5, 5, 6]), [5, 5, 6]);
        assert_eq!(send(&mut shard, &[6, 5, 8, 5, 5]), [8, 5]);
        shard.note_received(TENANT, 7, 1, |noted| *noted = ReceivedRecord::All);
        assert!(send(&mut shard, &[9, 9]).is_empty());
        assert!(shard.remove_received(TENANT, 7, 1));
        assert_eq!(send(&mut shard, &[5]), [5]);
    }
}
