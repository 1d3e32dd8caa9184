//! What a thread that handles messages carries with it.

use std::sync::Arc;

use barid_core::time::Timestamp;

use crate::broker::Shared;
use crate::housekeeping::Task;
use crate::tenant::Tenant;

/// The identity of a thread that handles messages, and its idea of the present.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its number: which [`Counters`](crate::metrics::Counters) of a tenant are its own.
    pub id: usize,
    /// The time, as of the present turn of the thread.
    pub now: Timestamp,
    /// What all threads share.
    pub shared: Arc<Shared>,
}

impl Worker {
    /// What the operating system's clock shows: the time of entities, whose clients compare it with their own.
    pub fn wall(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    /// The tenant of this name, made if it is not there. `None`: there are too many.
    pub fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        let mut is_new = false;
        let settings = || {
            is_new = true;
            self.shared.settings_of(name)
        };
        let tenant = self.shared.tenants.get_or_create(name, settings)?;
        if is_new {
            let task = Task::PublishSys(Arc::clone(&tenant));
            self.shared.housekeeping.schedule(self.now, task);
        }
        Some(tenant)
    }
}
