//! Reading messages and bodies back from a store, when a client is about to take them.
//!
//! An IO thread does not wait for the disk: it asks, and goes on with other clients. One thread for each shard reads,
//! and hands over what it has read.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use barid_store::StoreError;
use parking_lot::Mutex;
use tracing::error;

use super::{DurableShard, READ_RETRY};
use crate::clock::Clock;
use crate::worker::Worker;

/// Something that is to be read back from the store of a shard.
pub trait Fetch: Send {
    /// Reads what is left of it, and hands all over.
    ///
    /// # Errors
    /// The store cannot be read now. What has been read is kept, and the next call goes on.
    fn fetch(&mut self, shard: &DurableShard, worker: &Worker) -> Result<(), StoreError>;
}

/// What the thread of a shard is asked to do.
enum Request {
    Fetch(Box<dyn Fetch>),
    End,
}

/// The requests to read back from one shard, in the order in which they came.
pub(super) struct Fetching {
    requests: Sender<Request>,
    /// Until the thread starts.
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

    /// Lets the thread end when it has done what it was asked for.
    pub(super) fn close(&self) {
        self.send(Request::End);
    }
}

impl DurableShard {
    /// Has something read back by the thread for that.
    pub fn fetch(&self, what: Box<dyn Fetch>) {
        self.fetching.send(Request::Fetch(what));
    }

    /// Starts the thread that reads back, as which `worker` counts.
    ///
    /// # Panics
    /// If it has been started before.
    pub fn start_fetching(self: &Arc<Self>, mut worker: Worker, clock: Clock) -> JoinHandle<()> {
        let requests = self.fetching.reader.lock().take().expect("it is started once");
        let shard = Arc::clone(self);
        thread::Builder::new()
            .name(format!("barid-load-{}", self.index()))
            .spawn(move || {
                while let Ok(Request::Fetch(mut wanted)) = requests.recv() {
                    worker.now = clock.now();
                    shard.fetch_until_it_works(&mut *wanted, &worker);
                }
            })
            .expect("the operating system has room for a thread")
    }

    /// Unless the broker is about to end.
    fn fetch_until_it_works(&self, wanted: &mut dyn Fetch, worker: &Worker) {
        while let Err(error) = wanted.fetch(self, worker) {
            error!(shard = self.index(), %error, "cannot read a message back; trying again");
            thread::sleep(READ_RETRY);
            if self.is_closing() {
                return;
            }
        }
    }

    /// Reads what was asked for, on this thread.
    #[cfg(test)]
    pub fn fetch_now(&self, worker: &Worker) {
        let reader = self.fetching.reader.lock();
        for request in reader.as_ref().expect("no thread does").try_iter() {
            if let Request::Fetch(mut wanted) = request {
                self.fetch_until_it_works(&mut *wanted, worker);
            }
        }
    }
}
