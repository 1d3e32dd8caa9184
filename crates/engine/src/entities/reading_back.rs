//! Bodies that are in the store only, when a receiver is about to deliver them.

use std::sync::Arc;

use barid_core::entity::ReceiverId;
use barid_store::StoreError;

use super::{Inbox, Queue, Told};
use crate::durable::{DurableShard, Fetch};
use crate::worker::Worker;

/// What a receiver is about to deliver of a queue.
struct Wanted {
    queue: Arc<Queue>,
    receiver: ReceiverId,
    /// A tag that the receiver knows each by, and the body.
    bodies: Vec<(u64, u64)>,
    /// The bodies, as far as they have been read, with their tags. `None`: the body is lost.
    fetched: Vec<(u64, Option<Arc<[u8]>>)>,
    inbox: Arc<dyn Inbox>,
}

impl Queue {
    /// Has bodies read back for a receiver, each known to it by a tag, which comes first: `inbox` is told
    /// [`Told::Bodies`] with all of them.
    pub fn fetch_bodies(
        self: &Arc<Self>,
        receiver: ReceiverId,
        bodies: Vec<(u64, u64)>,
        inbox: Arc<dyn Inbox>,
    ) {
        let (queue, fetched) = (Arc::clone(self), Vec::with_capacity(bodies.len()));
        self.shard().fetch(Box::new(Wanted { queue, receiver, bodies, fetched, inbox }));
    }
}

impl Fetch for Wanted {
    fn fetch(&mut self, shard: &DurableShard, _: &Worker) -> Result<(), StoreError> {
        let queue = &self.queue;
        for (tag, body) in &self.bodies[self.fetched.len()..] {
            let bytes = shard.body(queue.tenant(), queue.tenant_name(), queue.number(), *body)?;
            self.fetched.push((*tag, bytes));
        }
        self.inbox.tell(self.receiver, Told::Bodies(std::mem::take(&mut self.fetched)));
        Ok(())
    }
}
