//! Reading messages and bodies back from a store, when a client is about to take them.
//!
//! An IO thread does not wait for the disk: it asks, and goes on with other clients. The loader of each shard
//! reads, and hands over what it has read.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use barid_store::StoreError;
use tracing::error;

use super::{DurableShard, READ_RETRY};
use crate::clock::Clock;
use crate::sync::Mutex;
use crate::worker::Worker;

/// Something that is to be read back from the store of a shard.
pub trait Fetch: Send {
    /// Reads what is left of it, and hands all over.
    ///
    /// # Errors
    /// The store cannot be read now. What has been read is kept, and the next call goes on.
    fn fetch(&mut self, shard: &DurableShard, worker: &Worker) -> Result<(), StoreError>;
}

/// What the loader of a shard is asked to do.
enum Request {
    Fetch(Box<dyn Fetch>),
    End,
}

impl Request {
    fn wanted(self) -> Option<Box<dyn Fetch>> {
        match self {
            Self::Fetch(wanted) => Some(wanted),
            Self::End => None,
        }
    }
}

/// The requests to read back from one shard, in the order in which they came.
pub(super) struct Fetching {
    requests: Sender<Request>,
    /// Until the loader is taken.
    reader: Mutex<Option<Receiver<Request>>>,
}

impl Default for Fetching {
    fn default() -> Self {
        let (requests, reader) = mpsc::channel();
        Self { requests, reader: Mutex::new(Some(reader)) }
    }
}

impl Fetching {
    fn send(&self, request: Request) {
        // At the end of the broker nobody reads any more.
        let _ = self.requests.send(request);
    }

    /// Lets the loader end when it has done what it was asked for.
    pub(super) fn close(&self) {
        self.send(Request::End);
    }
}

impl DurableShard {
    /// Queues a request for the loader.
    pub fn fetch(&self, what: Box<dyn Fetch>) {
        self.fetching.send(Request::Fetch(what));
    }

    /// The loader of this shard; it counts as `worker`.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn reading(self: &Arc<Self>, worker: Worker, clock: Clock) -> Reading {
        let requests = self.fetching.reader.lock().take().expect("it is called once");
        Reading { shard: Arc::clone(self), requests, worker, clock }
    }

    /// Reads what was asked for, on this thread.
    #[cfg(test)]
    pub fn fetch_now(&self, worker: &Worker) {
        let reader = self.fetching.reader.lock();
        for request in reader.as_ref().expect("no thread does").try_iter() {
            if let Request::Fetch(mut wanted) = request {
                wanted.fetch(self, worker).expect("the store can be read");
            }
        }
    }
}

/// The loader of a shard: reads back one thing after the other.
pub struct Reading {
    shard: Arc<DurableShard>,
    requests: Receiver<Request>,
    worker: Worker,
    clock: Clock,
}

impl Reading {
    /// Waits for the next request. `None`: there will be no more.
    pub fn wait(&self) -> Option<Box<dyn Fetch>> {
        self.requests.recv().ok().and_then(Request::wanted)
    }

    /// The next request, if there is one now.
    pub fn poll(&self) -> Option<Box<dyn Fetch>> {
        self.requests.try_recv().ok().and_then(Request::wanted)
    }

    /// Reads it. `Some`: the store could not be read, and it is to be tried again so much later.
    pub fn read(&mut self, wanted: &mut dyn Fetch) -> Option<Duration> {
        self.worker.now = self.clock.now();
        let error = wanted.fetch(&self.shard, &self.worker).err()?;
        error!(shard = self.shard.index(), %error, "cannot read a message back; trying again");
        (!self.shard.is_closing()).then_some(READ_RETRY)
    }
}
