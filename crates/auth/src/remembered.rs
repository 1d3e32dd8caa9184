//! Logins that were accepted a short while ago.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::{MonoTime, WallTime};
use moka::sync::Cache;
use ring::hmac;

use crate::credentials::{Credentials, Revocable};
use crate::principal::Principal;

/// Logins that were accepted a short while ago, found by their user. A login with the same password and certificate
/// is accepted again without asking a back end, at the cost of a hash of microseconds.
///
/// The password is kept as an HMAC under a key that only this process has and that is never written. So the
/// memory of the process gives no more away than the login itself.
#[derive(Debug)]
pub(crate) struct Remembered {
    key: hmac::Key,
    logins: Cache<Box<str>, Arc<Login>>,
    fresh: Duration,
    grace: Duration,
}

#[derive(Debug)]
struct Login {
    shown: hmac::Tag,
    principal: Arc<Principal>,
    since: MonoTime,
}

/// How old a remembered login may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// Young enough that no back end needs to be asked.
    Fresh,
    /// Young enough while the back end cannot tell.
    InGrace,
}

impl Remembered {
    /// Remembers up to `most` logins, each for `fresh`, and for `grace` longer while back ends cannot tell.
    pub(crate) fn new(key: &[u8; 32], most: u64, fresh: Duration, grace: Duration) -> Self {
        let logins = Cache::builder()
            .max_capacity(most)
            .time_to_live(fresh + grace)
            .support_invalidation_closures()
            .build();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), logins, fresh, grace }
    }

    /// Returns the principal of a login that was accepted before with the same password.
    pub(crate) fn find(
        &self,
        credentials: &Credentials,
        age: Age,
        now: MonoTime,
        wall: WallTime,
    ) -> Option<Arc<Principal>> {
        let user = credentials.user.as_deref()?;
        let login = self.logins.get(user)?;
        let most = match age {
            Age::Fresh => self.fresh,
            Age::InGrace => self.fresh + self.grace,
        };
        let has_expired = login.principal.expires.is_some_and(|expires| expires <= wall);
        if has_expired || now >= login.since.after(most) {
            return None;
        }
        self.is_by(&login, user, credentials).then(|| Arc::clone(&login.principal))
    }

    fn is_by(&self, login: &Login, user: &str, credentials: &Credentials) -> bool {
        hmac::verify(&self.key, &message(user, credentials), login.shown.as_ref()).is_ok()
    }

    /// Remembers an accepted login.
    pub(crate) fn put(&self, credentials: &Credentials, principal: &Arc<Principal>, now: MonoTime) {
        let Some(user) = credentials.user.as_deref() else { return };
        let shown = hmac::sign(&self.key, &message(user, credentials));
        let login = Login { shown, principal: Arc::clone(principal), since: now };
        self.logins.insert(user.into(), Arc::new(login));
    }

    /// Forgets the login with these credentials. That of the user with another password is not forgotten, so a wrong
    /// password costs nobody the grace.
    pub(crate) fn forget_login(&self, credentials: &Credentials) {
        let Some(user) = credentials.user.as_deref() else { return };
        if self.logins.get(user).is_some_and(|login| self.is_by(&login, user, credentials)) {
            self.logins.invalidate(user);
        }
    }

    /// Forgets the login of a user.
    pub(crate) fn forget(&self, user: &str) {
        self.logins.invalidate(user);
    }

    /// Forgets the logins of all users of a tenant.
    pub(crate) fn forget_tenant(&self, tenant: &str) {
        let prefix = format!("{tenant}/");
        let forgotten = self.logins.invalidate_entries_if(move |user, _| user.starts_with(&prefix));
        debug_assert!(forgotten.is_ok(), "the cache was built for it");
    }

    /// Forgets all logins.
    pub(crate) fn forget_all(&self) {
        self.logins.invalidate_all();
    }

    /// Returns the number of remembered logins, about.
    pub(crate) fn len(&self) -> u64 {
        self.logins.entry_count()
    }
}

/// Returns what the client has shown. The user name has no length in front, because it is the key under which the login is
/// found.
fn message(user: &str, credentials: &Credentials) -> Vec<u8> {
    let certificate = credentials.certificate.as_ref().and_then(|names| names.revocable);
    let certificate = certificate.map_or([0; 16], |Revocable(digest)| digest);
    [user.as_bytes(), &[0], &certificate, credentials.password()].concat()
}
