//! Telling of denials: in counters, in `barid why`, and in the log, which a flood cannot fill.

use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use crate::agenda::Task;
use crate::denials::{self, Denial, Line};
use crate::lifecycle::Context;
use crate::names::{DEFAULT_TENANT, tenant_of};
use crate::tenant::Tenant;

/// When denials that were not written one by one are summed up.
const SUMMARY_AFTER: Duration = Duration::from_secs(1);

impl Context {
    /// The tenant in which it is counted what a client without a session may not do: the one that its user name, or key, has,
    /// or else the default one. Strangers make no tenants, but those of the configuration are there for them.
    pub fn tenant_of_stranger(
        &self,
        name: Option<&str>,
        is_configured: impl FnOnce(&str) -> bool,
    ) -> Option<Arc<Tenant>> {
        let tenants = &self.engine.tenants;
        let named = tenant_of(name).and_then(|tenant| {
            if is_configured(tenant) { self.tenant(tenant) } else { tenants.get(tenant) }
        });
        named.or_else(|| tenants.get(DEFAULT_TENANT))
    }

    /// Counts a denial, remembers it, and writes it to the log if there is room in this second.
    pub fn deny(&self, tenant: &Arc<Tenant>, denial: &Denial<'_>) {
        let now = self.worker.now;
        tenant.counters(self.worker.id).denied(denial.action);
        match tenant.denials.note(now, denial, || self.engine.denial_lines.admit(now)) {
            Line::Written => denials::write(&tenant.name, denial),
            Line::Summed { first: false } => {}
            Line::Summed { first: true } => self.sum_up_later(tenant),
        }
    }

    /// Writes how many denials of a tenant were counted and not written.
    pub fn sum_up_denials(&self, tenant: &Arc<Tenant>) {
        if !self.engine.denial_lines.admit(self.worker.now) {
            self.sum_up_later(tenant);
            return;
        }
        let denials = tenant.denials.take_unwritten();
        if denials > 0 {
            info!(
                tenant = &*tenant.name,
                denials,
                "denied besides: too many to write each; see barid_denied_total and `barid why`"
            );
        }
    }

    fn sum_up_later(&self, tenant: &Arc<Tenant>) {
        let task = Task::SumUpDenials(Arc::downgrade(tenant));
        self.engine.agenda.schedule(self.worker.now.after(SUMMARY_AFTER), task);
    }
}
