//! Whether a connected client may stay, after changes that may concern its user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::access::Policy;
use barid_engine::names::tenant_of;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::{RENEWALS_MAX, Shared};
use crate::backend::Renewal;
use crate::principal::Principal;

/// Time after which a user is looked up again who could not be looked up.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 2_000 });

/// Whether a connected client may stay.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It may stay, as this principal.
    Stays(Arc<Principal>),
    /// It has to go. The text is for the log.
    Gone {
        /// The reason.
        reason: &'static str,
        /// Whether the client may come back with other credentials. Otherwise an operator has removed or
        /// disabled the user.
        may_return: bool,
    },
}

/// The question whether a connected client may stay. It is withdrawn when this is dropped, but its answer may
/// already be on its way.
#[derive(Debug)]
pub struct Inquiry {
    task: AbortHandle,
    must_log_in: Arc<AtomicBool>,
}

impl Inquiry {
    pub(super) fn new(task: AbortHandle, must_log_in: Arc<AtomicBool>) -> Self {
        Self { task, must_log_in }
    }

    /// From now on, a user that cannot be looked up without its credentials has to go.
    pub fn must_log_in(&self) {
        self.must_log_in.store(true, Ordering::SeqCst);
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Looks a user up until its back end can tell. If this very user has changed, it is not let to stay for longer
    /// than the grace without an answer. Otherwise a database that fails would disconnect whole fleets.
    pub(super) async fn renew(
        &self,
        principal: &Arc<Principal>,
        must_log_in: &AtomicBool,
    ) -> Standing {
        let tenant = tenant_of(Some(&principal.user)).unwrap_or_default();
        let places =
            self.renewing.get_with(tenant.into(), || Arc::new(Semaphore::new(RENEWALS_MAX)));
        let mut until: Option<MonoTime> = None;
        loop {
            let has_changed = must_log_in.load(Ordering::SeqCst);
            let renewed = {
                // As many look-ups as clients are connected would keep those of other tenants waiting.
                let _place = places.acquire().await;
                self.look_up(principal, has_changed).await
            };
            if let Some(standing) = renewed {
                return standing;
            }
            let now = self.clock.now();
            if has_changed && now >= *until.get_or_insert(now.after(self.grace)) {
                return Standing::Gone {
                    reason: "the back end of the user could not be asked within the grace",
                    may_return: true,
                };
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns `None` if a back end cannot tell.
    async fn look_up(&self, principal: &Arc<Principal>, must_log_in: bool) -> Option<Standing> {
        let user = &*principal.user;
        let chain = self.chain_of(tenant_of(Some(user)).unwrap_or_default()).ok()?;
        let gone = |reason, may_return| Some(Standing::Gone { reason, may_return });
        for backend in chain.backends.iter() {
            match backend.renew(user, principal.proof).await {
                // The back end that has let the user in may not be able to look it up.
                Renewal::LogInAgain if *backend.name() != *principal.backend => {}
                Renewal::Unknown => {}
                Renewal::LogInAgain if must_log_in => {
                    return gone("the user has to log in again", true);
                }
                Renewal::LogInAgain => {
                    let policy = Arc::new(principal.policy.under(Arc::clone(&chain.rules)));
                    return Some(stays(principal, policy));
                }
                Renewal::Stays(_) if *backend.name() != *principal.backend => {
                    return gone("another back end has the user now", true);
                }
                Renewal::Stays(rights) => {
                    rights.check(user).ok()?;
                    let policy = Arc::new(Policy::new(&rights, Arc::clone(&chain.rules)));
                    return Some(stays(principal, policy));
                }
                Renewal::Gone(reason) => return gone(reason, false),
                Renewal::OtherPassword => return gone("the password has changed", true),
                Renewal::Unavailable(_) | Renewal::Busy => return None,
            }
        }
        gone("the user has been removed", false)
    }
}

fn stays(principal: &Principal, policy: Arc<Policy>) -> Standing {
    let Principal { user, backend, proof, expires, .. } = principal;
    Standing::Stays(Arc::new(Principal {
        user: user.clone(),
        backend: Arc::clone(backend),
        proof: *proof,
        expires: *expires,
        policy,
    }))
}
