//! The back ends of a tenant, in the order in which they are asked.

use std::fmt;
use std::sync::Arc;

use barid_engine::access::TenantRules;

use crate::backend::Backend;
use crate::directory::Unavailable;

/// The back ends of a tenant, in the order in which they are asked, and the rules of the tenant. Without back
/// ends, any client may connect.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The back ends.
    pub backends: Arc<[Arc<dyn Backend>]>,
    /// The rules that follow those of each user.
    pub rules: Arc<TenantRules>,
}

/// The source of chains.
pub trait Chains: Send + Sync + fmt::Debug {
    /// Returns the chain of a tenant, which may not exist. The result is kept until the tenant
    /// [changes](crate::Authenticator::changed).
    ///
    /// # Errors
    /// [`Unavailable`] if the settings of the tenant cannot be read. Nobody is let in then.
    fn of(&self, tenant: &str) -> Result<Chain, Unavailable>;

    /// Returns the back ends of tenants that have none of their own.
    ///
    /// # Errors
    /// [`Unavailable`] if a back end does not exist.
    fn common(&self) -> Result<Arc<[Arc<dyn Backend>]>, Unavailable>;
}
