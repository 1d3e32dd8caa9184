//! What happens in the broker, told to those who listen: clients come and go, actions are denied, operators change
//! something, brokers and shards come and go.
//!
//! While nobody listens, an event costs one look. A listener is called by the thread in which the event happens, so it must
//! not wait.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use barid_core::durable::keys::ManagedKind;

use crate::denials::Denial;
use crate::ids::ConnectionId;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::tapping::Protocol;

/// Something that has happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A client of a tenant has been admitted.
    Connected {
        /// The name of the tenant.
        tenant: &'a str,
        /// The client.
        client: &'a Client<'a>,
    },
    /// Its connection has ended.
    Disconnected {
        /// The name of the tenant.
        tenant: &'a str,
        /// The client.
        client: &'a Client<'a>,
        /// Why it has ended.
        reason: &'a str,
    },
    /// A client was not allowed to do something.
    Denied {
        /// The name of the tenant.
        tenant: &'a str,
        /// The action, its object, and the reason.
        denial: &'a Denial<'a>,
    },
    /// An operator has changed a managed object.
    Changed {
        /// The kind of the object.
        kind: ManagedKind,
        /// Its name.
        name: &'a str,
    },
    /// The state of a broker of the cluster has changed.
    Member {
        /// The name of the broker.
        broker: &'a str,
        /// Its state.
        state: &'a str,
    },
    /// A shard was opened or closed.
    Shard {
        /// Its number.
        shard: u16,
        /// Whether it is open now.
        is_open: bool,
    },
}

/// A client, as events name it.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The client identifier, or the container id.
    pub id: &'a str,
    /// The user, if there are users.
    pub user: Option<&'a str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The number of the connection.
    pub connection: ConnectionId,
    /// The address.
    pub peer: SocketAddr,
}

/// Someone who is told what happens.
pub trait Listener: Send + Sync + fmt::Debug {
    /// Hears of an event.
    fn hear(&self, event: &Event<'_>);
}

/// Those who are told what happens.
#[derive(Debug, Default)]
pub struct Events {
    count: AtomicUsize,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
}

impl Events {
    /// Adds a listener.
    pub fn add(&self, listener: Arc<dyn Listener>) {
        let mut listeners = self.listeners.write();
        listeners.push(listener);
        self.count.store(listeners.len(), Ordering::Relaxed);
    }

    /// Removes a listener.
    pub fn remove(&self, listener: &Arc<dyn Listener>) {
        let mut listeners = self.listeners.write();
        listeners.retain(|one| !Arc::ptr_eq(one, listener));
        self.count.store(listeners.len(), Ordering::Relaxed);
    }

    /// Whether anybody listens.
    #[inline]
    pub fn are_heard(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Tells an event. What it costs to describe one is saved if [nobody listens](Self::are_heard).
    pub fn tell(&self, event: &Event<'_>) {
        if self.are_heard() {
            self.listeners.read().iter().for_each(|listener| listener.hear(event));
        }
    }
}
