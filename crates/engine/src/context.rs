//! The context of a thread that handles messages.

use std::sync::Arc;

use barid_core::time::WallTime;

use crate::agenda::Task;
use crate::departures::Departures;
use crate::engine::Engine;
use crate::limits::Quota;
use crate::names::DEFAULT_TENANT;
use crate::router::Router;
use crate::session::SessionRef;
use crate::tenant::Tenant;
use crate::worker::Worker;

/// A thread that handles messages: its identity, its router, and the engine that all threads share.
pub struct Context {
    /// The identity of the thread and its current time.
    pub worker: Worker,
    /// The state that all threads share.
    pub engine: Arc<Engine>,
    /// Delivers messages to subscribers.
    pub router: Router,
    /// Sessions that the thread has ended and whose subscriptions are still to be removed from the index.
    pub departures: Departures,
}

impl Context {
    /// Returns the wall time. Entities use it, because their clients compare times with their own clocks.
    pub fn wall(&self) -> WallTime {
        self.engine.clock.wall()
    }

    /// Returns the tenant of this name, and creates it if it does not exist. Returns `None` if there are too
    /// many tenants.
    pub fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        self.engine.tenants.get_or_create(name, |tenant| {
            let task = Task::PublishSys(Arc::clone(tenant));
            self.engine.agenda.schedule(self.worker.now, task);
        })
    }

    /// Counts that a client was refused because there are too many tenants. As its tenant does not exist, it is
    /// counted for the default tenant.
    pub(crate) fn refused_tenant(&self, client_id: &str) {
        if let Some(tenant) = self.engine.tenants.get(DEFAULT_TENANT) {
            tenant.refused(&self.worker, Quota::MaxTenants, client_id);
        }
    }

    /// Returns the tenant of a session. Returns `None` if the tenant has been removed, and the session with
    /// it.
    pub fn tenant_of(&self, session: &SessionRef) -> Option<Arc<Tenant>> {
        self.engine.tenants.get(&session.account.name)
    }
}
