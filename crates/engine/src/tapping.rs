//! Tapping: copies of what passes between the broker and a client, for the operators of its tenant.
//!
//! Nothing is copied, and next to nothing is done, while no client of the tenant is traced, and messages are not.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use mqtt_proto::Version;

use crate::ids::ConnectionId;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Receives copies of what passes on one connection. It is called by the threads that serve the client, so it must not
/// wait.
pub trait Tap: Send + Sync + fmt::Debug {
    /// Receives bytes from the client: whole packets or frames.
    fn received(&self, bytes: &[u8]);

    /// Receives bytes that were written to the client, in order, in pieces of any size. The first of them begin a
    /// packet or frame.
    fn sent(&self, bytes: &[u8]);

    /// The answers to what was received, and has none yet, wait: for the disk, or for room in a queue.
    fn waits(&self) {}

    /// The connection has ended.
    fn ended(&self, why: &str);
}

/// Follows a client over its connections, or every client of a tenant.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Returns the tap of a connection.
    fn tap(&self, tapped: &Tapped<'_>) -> Arc<dyn Tap>;
}

/// Follows the clients of all tenants.
pub trait MessageTracing: Send + Sync + fmt::Debug {
    /// Returns what follows the clients of a tenant.
    fn tracer_of(&self, tenant: &str) -> Arc<dyn Tracer>;
}

/// A connection that is tapped.
#[derive(Clone, Copy, Debug)]
pub struct Tapped<'a> {
    /// The client identifier, or the container id.
    pub client: &'a str,
    /// The number of the connection.
    pub connection: ConnectionId,
    /// The protocol of the client.
    pub protocol: Protocol,
    /// The address of the client.
    pub peer: SocketAddr,
    /// Whether the connection begins now.
    pub begins: bool,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT of this version.
    Mqtt(Version),
    /// AMQP 1.0.
    Amqp,
}

/// The clients of one tenant that are traced.
#[derive(Debug, Default)]
pub struct Traced {
    count: AtomicUsize,
    /// Number of traces that have begun or ended.
    changes: AtomicU64,
    by_client: Mutex<HashMap<Box<str>, Arc<dyn Tracer>>>,
    /// Follows every client.
    everybody: OnceLock<Arc<dyn Tracer>>,
}

impl Traced {
    /// Adds a client. Returns false, and adds nothing, if it is traced already.
    pub(crate) fn add(&self, client: &str, tracer: Arc<dyn Tracer>) -> bool {
        let mut by_client = self.by_client.lock();
        if by_client.contains_key(client) {
            return false;
        }
        by_client.insert(client.into(), tracer);
        self.changed(by_client.len());
        true
    }

    /// Removes a client.
    pub(crate) fn remove(&self, client: &str) {
        let mut by_client = self.by_client.lock();
        by_client.remove(client);
        self.changed(by_client.len());
    }

    /// Sets the tracer that follows every client. It stays as long as the tenant exists.
    pub(crate) fn follow_everybody(&self, tracer: Arc<dyn Tracer>) {
        let by_client = self.by_client.lock();
        if self.everybody.set(tracer).is_ok() {
            self.changed(by_client.len());
        }
    }

    fn changed(&self, clients: usize) {
        let count = clients + usize::from(self.everybody.get().is_some());
        self.count.store(count, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether any client is traced.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns a number that changes whenever a trace begins or ends.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the tracer of a client.
    pub fn tracer(&self, client: &str) -> Option<Arc<dyn Tracer>> {
        if !self.is_used() {
            return None;
        }
        let own = self.by_client.lock().get(client).cloned();
        match (self.everybody.get(), own) {
            (None, own) => own,
            (Some(all), None) => Some(Arc::clone(all)),
            (Some(all), Some(own)) => Some(Arc::new(Both(Arc::clone(all), own))),
        }
    }
}

/// Two that follow the same client, or tap the same connection.
#[derive(Debug)]
struct Both<T: ?Sized>(Arc<T>, Arc<T>);

impl Tracer for Both<dyn Tracer> {
    fn tap(&self, tapped: &Tapped<'_>) -> Arc<dyn Tap> {
        Arc::new(Both(self.0.tap(tapped), self.1.tap(tapped)))
    }
}

impl Tap for Both<dyn Tap> {
    fn received(&self, bytes: &[u8]) {
        self.0.received(bytes);
        self.1.received(bytes);
    }

    fn sent(&self, bytes: &[u8]) {
        self.0.sent(bytes);
        self.1.sent(bytes);
    }

    fn waits(&self) {
        self.0.waits();
        self.1.waits();
    }

    fn ended(&self, why: &str) {
        self.0.ended(why);
        self.1.ended(why);
    }
}
