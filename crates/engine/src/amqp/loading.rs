//! Messages that are in the store only, and for what they are being read.

use std::sync::Arc;

use barid_amqp::LinkId;
use barid_core::entity::{LockToken, ReceiverId};
use hashbrown::HashMap;

use super::container::Container;
use super::management::Gathering;
use crate::entities::Queue;
use crate::turn::Turn;

/// Bodies are told apart by their tags.
const NOBODY: ReceiverId = ReceiverId(0);

/// The purpose for which a message is read.
#[derive(Clone, Copy, Debug)]
pub enum For {
    /// A receiver that has locked it.
    Delivery(LinkId, LockToken),
    /// A response, and its place there.
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

    /// Keeps a response until its messages have been read.
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
    /// Has messages read: of each, for what, and which body it is.
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

    /// Messages have been read; `None`: they are lost.
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
