//! Messages that are read back from the store when their client takes them.
//!
//! An IO thread does not wait for the disk: it asks, and goes on with other clients. The answer is
//! supplied to the session, whose connection is woken.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use barid_core::durable::StoredAs;
use tracing::error;

use super::{DurableShard, READ_RETRY, Shards};
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

/// Where to ask. One thread for each shard reads.
#[derive(Debug)]
pub struct Loader {
    shards: Box<[Sender<Option<Wanted>>]>,
}

/// The other end, before it is read from.
pub struct LoaderThreads(Vec<Receiver<Option<Wanted>>>);

impl Loader {
    /// For so many shards.
    pub fn new(shards: usize) -> (Self, LoaderThreads) {
        let (senders, receivers): (Vec<_>, _) = (0..shards).map(|_| mpsc::channel()).unzip();
        (Self { shards: senders.into() }, LoaderThreads(receivers))
    }

    /// Has messages of a shard read.
    pub fn ask(&self, shard: u16, wanted: Wanted) {
        // At the end of the broker nobody reads any more.
        let _ = self.shards[usize::from(shard)].send(Some(wanted));
    }

    /// Lets the threads end.
    pub fn close(&self) {
        for shard in &self.shards {
            let _ = shard.send(None);
        }
    }
}

impl LoaderThreads {
    /// Starts the threads; `worker` makes the identity of each by its shard's number.
    pub fn start(self, shards: &Shards, worker: impl Fn(u16) -> Worker) -> Vec<JoinHandle<()>> {
        let start = |(receiver, shard): (Receiver<Option<Wanted>>, &Arc<DurableShard>)| {
            let (shard, mut worker) = (Arc::clone(shard), worker(shard.index()));
            thread::Builder::new()
                .name(format!("barid-load-{}", shard.index()))
                .spawn(move || {
                    for wanted in receiver.iter().map_while(|wanted| wanted) {
                        worker.now = worker.shared.clock.now();
                        load(&worker, &shard, wanted);
                    }
                })
                .expect("the operating system has room for a thread")
        };
        self.0.into_iter().zip(shards.iter()).map(start).collect()
    }
}

fn load(worker: &Worker, shard: &DurableShard, wanted: Wanted) {
    let Wanted { session, stored } = wanted;
    let Some(durable) = session.durable() else { return };
    let mut fetched = Vec::with_capacity(stored.len());
    for stored in stored {
        let message = loop {
            match shard.message(durable.tenant, &session.tenant.name, stored.message) {
                Ok(message) => break message,
                Err(error) => {
                    error!(shard = shard.index(), %error, "cannot read a message back; trying again");
                    thread::sleep(READ_RETRY);
                    if shard.is_closing() {
                        return;
                    }
                }
            }
        };
        fetched.push((stored, message));
    }
    session.supply(worker, &fetched);
}
