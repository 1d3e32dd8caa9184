//! Reading of bodies that are in the store only, for a receiver that is about to deliver them.

use std::sync::Arc;

use barid_core::entity::ReceiverId;
use barid_store::StoreError;

use super::{Inbox, Queue, Told};
use crate::durable::{DurableShard, Fetch};
use crate::worker::Worker;

/// The request of a receiver for bodies of a queue.
struct Wanted {
    queue: Arc<Queue>,
    receiver: ReceiverId,
    /// For each body, the tag by which the receiver knows it, and its id.
    bodies: Vec<(u64, u64)>,
    /// The bodies read so far, each with its tag. `None`: the body is lost.
    fetched: Vec<(u64, Option<Arc<[u8]>>)>,
    inbox: Arc<dyn Inbox>,
}

impl Queue {
    /// Requests bodies for a receiver, each as a tag chosen by the receiver and the id of the body. `inbox` gets
    /// all of them in one [`Told::Bodies`].
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
