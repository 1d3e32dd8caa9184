//! The loader of a shard: reads messages and bodies back from the store when a client is about to take them.
//!
//! An IO thread does not wait for the disk. It queues a request, and goes on with other clients. The loader of the
//! shard reads the records and hands them over.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use barid_store::StoreError;
use tracing::error;

use super::{DurableShard, READ_RETRY};
use crate::clock::Clock;
use crate::sync::Mutex;
use crate::worker::Worker;

/// A request to read something back from the store of a shard.
pub trait Fetch: Send {
    /// Reads what has not been read yet, and hands over all of it.
    ///
    /// # Errors
    /// The store cannot be read now. What has been read is kept, and the next call continues.
    fn fetch(&mut self, shard: &DurableShard, worker: &Worker) -> Result<(), StoreError>;
}

/// A message to the loader of a shard.
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

/// The requests to the loader of one shard, in order of arrival.
pub(super) struct Fetching {
    requests: Sender<Request>,
    /// The receiving end, until the loader is taken.
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
        // Sending fails if the loader has ended, as at the end of the broker.
        let _ = self.requests.send(request);
    }

    /// Lets the loader end after the requests that are queued.
    pub(super) fn close(&self) {
        self.send(Request::End);
    }
}

impl DurableShard {
    /// Queues a request for the loader.
    pub fn fetch(&self, what: Box<dyn Fetch>) {
        self.fetching.send(Request::Fetch(what));
    }

    /// Returns the loader of this shard, which acts as `worker`.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn reading(self: &Arc<Self>, worker: Worker, clock: Clock) -> Reading {
        let requests = self.fetching.reader.lock().take().expect("it is called once");
        Reading { shard: Arc::clone(self), requests, worker, clock }
    }

    /// Carries out the queued requests on this thread.
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

/// The loader of a shard: carries out one request after the other.
pub struct Reading {
    shard: Arc<DurableShard>,
    requests: Receiver<Request>,
    worker: Worker,
    clock: Clock,
}

impl Reading {
    /// Waits for the next request. Returns `None` when there will be no more.
    pub fn wait(&self) -> Option<Box<dyn Fetch>> {
        self.requests.recv().ok().and_then(Request::wanted)
    }

    /// Returns the next request, if there is one now.
    pub fn poll(&self) -> Option<Box<dyn Fetch>> {
        self.requests.try_recv().ok().and_then(Request::wanted)
    }

    /// Carries out a request. If the store could not be read, returns the delay after which the request must be
    /// tried again. It is not tried again while the shard is closing.
    pub fn read(&mut self, wanted: &mut dyn Fetch) -> Option<Duration> {
        self.worker.now = self.clock.now();
        let error = wanted.fetch(&self.shard, &self.worker).err()?;
        error!(shard = self.shard.index(), %error, "cannot read a message back; trying again");
        (!self.shard.is_closing()).then_some(READ_RETRY)
    }
}
