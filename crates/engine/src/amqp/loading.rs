//! Messages that are read back from the store, and the purposes for which they are read.

use std::sync::Arc;

use barid_amqp::LinkId;
use barid_core::entity::{LockToken, ReceiverId};
use hashbrown::HashMap;

use super::container::Container;
use super::management::Gathering;
use crate::entities::Queue;
use crate::turn::Turn;

/// The receiver for which bodies are fetched. The connection fetches them, and recognizes them by their tags, so
/// no receiver is named.
const NOBODY: ReceiverId = ReceiverId(0);

/// The purpose for which a message is read.
#[derive(Clone, Copy, Debug)]
pub enum For {
    /// A delivery to a receiver, which has locked the message.
    Delivery(LinkId, LockToken),
    /// A response, by its number, and the place of the message in it.
    Response(u64, usize),
}

/// Messages that are being read back from the store.
#[derive(Debug, Default)]
pub struct Loading {
    wanted: HashMap<u64, For>,
    gatherings: HashMap<u64, Gathering>,
    next: u64,
}

impl Loading {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Keeps a response until its messages have been read. Returns its number.
    pub(super) fn gather(&mut self, gathering: Gathering) -> u64 {
        let number = self.number();
        self.gatherings.insert(number, gathering);
        number
    }

    pub(super) fn gathering(&mut self, number: u64) -> Option<&mut Gathering> {
        self.gatherings.get_mut(&number)
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Gathering> {
        self.gatherings.remove(&number)
    }
}

impl Container {
    /// Queues a request to read messages. `wanted` has the purpose and the body id of each.
    pub(super) fn load(&mut self, queue: &Arc<Queue>, wanted: Vec<(For, u64)>) {
        if wanted.is_empty() {
            return;
        }
        let bodies = wanted.into_iter().map(|(what, body)| {
            let tag = self.loading.number();
            self.loading.wanted.insert(tag, what);
            (tag, body)
        });
        let bodies = bodies.collect();
        let inbox = Arc::clone(self.inbox());
        queue.fetch_bodies(NOBODY, bodies, inbox);
    }

    /// Handles messages that have been read; `None`: the message is lost.
    pub(super) fn on_bodies(&mut self, turn: &Turn<'_>, bodies: Vec<(u64, Option<Arc<[u8]>>)>) {
        for (tag, bytes) in bodies {
            match self.loading.wanted.remove(&tag) {
                Some(For::Delivery(link, token)) => self.on_body(turn, link, token, bytes),
                Some(For::Response(number, index)) => self.on_gathered(turn, number, index, bytes),
                None => {}
            }
        }
    }
}
