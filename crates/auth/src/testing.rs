//! What the tests of several modules need.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use barid_core::durable::keys::NAMES;
use barid_engine::clock::{Clock, TimeSource};
use barid_engine::durable::{Commits, Shards, Storage};
use barid_engine::managed::{Managed, ManagedKind};
use barid_engine::replicated::Replicated;
use barid_store::Store;
use barid_store::memory::MemoryStore;

thread_local! {
    /// The wall time of this thread's [`clock`], in milliseconds since the Unix epoch.
    pub static WALL: Cell<u64> = const { Cell::new(0) };
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns a clock whose wall time is [`WALL`].
pub fn clock() -> Clock {
    Clock::start(TimeSource { ticks: || *EPOCH, unix: || Duration::from_millis(WALL.get()) })
}

/// Returns objects over an empty store in memory.
pub fn managed() -> Arc<Managed> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(NAMES.len()));
    let shards = Arc::new(Shards::new(Storage::local(&[store]), 0));
    Arc::new(Managed::new(shards, Replicated::alone(clock())))
}

pub fn put(managed: &Managed, kind: ManagedKind, name: &str, text: &str) {
    managed.put(kind, name, text.into(), &mut Commits::default()).unwrap();
}

pub fn remove(managed: &Managed, kind: ManagedKind, name: &str) {
    managed.remove(kind, name, &mut Commits::default()).unwrap();
}

/// Returns the result of a future that is ready at once.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}
