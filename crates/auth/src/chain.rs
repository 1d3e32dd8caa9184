//! The back ends of a tenant, in the order in which they are asked.

use std::sync::Arc;

use barid_engine::access::TenantRules;
use hashbrown::HashMap;

use crate::backend::Backend;

/// The back ends of a tenant, in the order in which they are asked, and the rules of the tenant. Without back
/// ends, any client may connect.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The back ends.
    pub backends: Arc<[Arc<dyn Backend>]>,
    /// The rules that follow those of each user.
    pub rules: Arc<TenantRules>,
}

/// The chains of all tenants.
#[derive(Debug, Default)]
pub struct Chains {
    /// Tenants with a chain of their own, by name.
    pub own: HashMap<Box<str>, Chain>,
    /// The chain of all other tenants, and of clients without a user name.
    pub common: Chain,
}

impl Chains {
    /// Returns the chain of a tenant.
    pub fn of(&self, tenant: &str) -> &Chain {
        self.own.get(tenant).unwrap_or(&self.common)
    }
}
