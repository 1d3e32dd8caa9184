//! Messages that are read back from the store when their client takes them.
//!
//! An IO thread does not wait for the disk: it asks, and goes on with other clients. The answer is
//! supplied to the session, whose connection is woken.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use barid_core::entity::ReceiverId;
use barid_core::ids::StoredAs;
use barid_store::StoreError;
use tracing::error;

use super::{DurableShard, READ_RETRY, Shards};
use crate::entities::{Inbox, Queue, Told};
use crate::session::SessionRef;
use crate::worker::Worker;

/// What a session has to send next and is in the store only.
#[derive(Debug)]
pub struct Wanted {
    /// Whose it is.
    pub session: SessionRef,
    /// Where it is, in the order in which it will be sent.
    pub stored: Vec<StoredAs>,
}

/// What a receiver is about to deliver of a queue and is in the store only.
struct WantedBodies {
    queue: Arc<Queue>,
    receiver: ReceiverId,
    /// A tag that the receiver knows each by, and the body.
    bodies: Vec<(u64, u64)>,
    reply: Arc<dyn Inbox>,
}

/// What a thread is asked to do.
enum Request {
    Messages(Wanted),
    Bodies(WantedBodies),
    End,
}

/// Where to ask. One thread for each shard reads.
pub struct Loader {
    shards: Box<[Sender<Request>]>,
}

/// The other end, before it is read from.
pub struct LoaderThreads(Vec<Receiver<Request>>);

impl Loader {
    /// For so many shards.
    pub fn new(shards: usize) -> (Self, LoaderThreads) {
        let (senders, receivers): (Vec<_>, _) = (0..shards).map(|_| mpsc::channel()).unzip();
        (Self { shards: senders.into() }, LoaderThreads(receivers))
    }

    /// Has messages of a shard read.
    pub fn ask(&self, shard: u16, wanted: Wanted) {
        self.send(shard, Request::Messages(wanted));
    }

    /// Has bodies of a queue read for a receiver of it, each known to it by a tag: it is told
    /// [`Told::Bodies`] with all of them.
    pub fn ask_bodies(
        &self,
        queue: &Arc<Queue>,
        receiver: ReceiverId,
        bodies: Vec<(u64, u64)>,
        reply: Arc<dyn Inbox>,
    ) {
        let (shard, queue) = (queue.shard().index(), Arc::clone(queue));
        self.send(shard, Request::Bodies(WantedBodies { queue, receiver, bodies, reply }));
    }

    fn send(&self, shard: u16, request: Request) {
        // At the end of the broker nobody reads any more.
        let _ = self.shards[usize::from(shard)].send(request);
    }

    /// Lets the threads end.
    pub fn close(&self) {
        for shard in &self.shards {
            let _ = shard.send(Request::End);
        }
    }
}

impl LoaderThreads {
    /// Starts the threads; `worker` makes the identity of each by its shard's number.
    pub fn start(self, shards: &Shards, worker: impl Fn(u16) -> Worker) -> Vec<JoinHandle<()>> {
        let start = |(receiver, shard): (Receiver<Request>, &Arc<DurableShard>)| {
            let (shard, mut worker) = (Arc::clone(shard), worker(shard.index()));
            thread::Builder::new()
                .name(format!("barid-load-{}", shard.index()))
                .spawn(move || {
                    for request in &receiver {
                        match request {
                            Request::Messages(wanted) => {
                                worker.now = worker.shared.clock.now();
                                load(&worker, &shard, wanted);
                            }
                            Request::Bodies(wanted) => load_bodies(&shard, wanted),
                            Request::End => return,
                        }
                    }
                })
                .expect("the operating system has room for a thread")
        };
        self.0.into_iter().zip(shards.iter()).map(start).collect()
    }
}

#[cfg(test)]
impl LoaderThreads {
    /// Reads the bodies that were asked for, on this thread.
    pub fn answer(&self, shards: &Shards) {
        for (receiver, shard) in self.0.iter().zip(shards.iter()) {
            for request in receiver.try_iter() {
                let Request::Bodies(wanted) = request else { continue };
                load_bodies(shard, wanted);
            }
        }
    }
}

fn load(worker: &Worker, shard: &DurableShard, wanted: Wanted) {
    let Wanted { session, stored } = wanted;
    let Some(durable) = session.durable() else { return };
    let mut fetched = Vec::with_capacity(stored.len());
    for stored in stored {
        let read = || shard.message(durable.tenant, &session.tenant.name, stored.message);
        let Some(message) = persist(shard, read) else { return };
        fetched.push((stored, message));
    }
    session.supply(worker, &fetched);
}

fn load_bodies(shard: &DurableShard, wanted: WantedBodies) {
    let WantedBodies { queue, receiver, bodies, reply } = wanted;
    let mut fetched = Vec::with_capacity(bodies.len());
    for (tag, body) in bodies {
        let read = || shard.body(queue.tenant(), queue.tenant_name(), queue.number(), body);
        let Some(bytes) = persist(shard, read) else { return };
        fetched.push((tag, bytes));
    }
    reply.tell(receiver, Told::Bodies(fetched));
}

/// Reads until that works; `None`: the broker is about to end.
fn persist<T>(shard: &DurableShard, mut read: impl FnMut() -> Result<T, StoreError>) -> Option<T> {
    loop {
        match read() {
            Ok(found) => return Some(found),
            Err(error) => {
                error!(shard = shard.index(), %error, "cannot read a message back; trying again");
                thread::sleep(READ_RETRY);
                if shard.is_closing() {
                    return None;
                }
            }
        }
    }
}
