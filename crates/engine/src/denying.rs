//! Reporting of denials: in counters, in `barid why`, and in the log, with bounds so that a flood cannot fill
//! the log.

use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use crate::agenda::Task;
use crate::context::Context;
use crate::denials::{self, Denial, Line};
use crate::events::Event;
use crate::names::{DEFAULT_TENANT, tenant_of};
use crate::tenant::Tenant;

/// Delay after which the denials that were not logged are summed up in one line.
const SUMMARY_AFTER: Duration = Duration::from_secs(1);

impl Context {
    /// Returns the tenant in which denials to a client without a session are counted: the one that its user
    /// name or key names, or else the default tenant. A client without a session does not create a tenant,
    /// unless the configuration has users of that tenant.
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

    /// Counts a denial, remembers it, and logs it if the bounds of this second allow that.
    pub fn deny(&self, tenant: &Arc<Tenant>, denial: &Denial<'_>) {
        let now = self.worker.now;
        tenant.counters(self.worker.id).denied(denial.action);
        self.engine.events.tell(&Event::Denied { tenant: &tenant.name, denial });
        match tenant.denials.note(now, denial, || self.engine.denial_lines.admit(now)) {
            Line::Written => denials::write(&tenant.name, denial),
            Line::Summed { first: false } => {}
            Line::Summed { first: true } => self.sum_up_later(tenant),
        }
    }

    /// Logs how many denials of a tenant were counted and not logged.
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
                "denied more actions, too many to log each; see barid_denied_total and `barid why`"
            );
        }
    }

    fn sum_up_later(&self, tenant: &Arc<Tenant>) {
        let task = Task::SumUpDenials(Arc::downgrade(tenant));
        self.engine.agenda.schedule(self.worker.now.after(SUMMARY_AFTER), task);
    }
}
