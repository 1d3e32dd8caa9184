//! Logins that were accepted a short while ago.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::{MonoTime, WallTime};
use moka::sync::Cache;
use ring::hmac;

use crate::credentials::{Credentials, Revocable};
use crate::principal::Principal;
use crate::versions::{Version, Versions};

/// Maximum length of a password that is remembered, in bytes. A longer one would take time that tells whether its user is
/// remembered.
const LENGTH_MAX: usize = 1_024;

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
    /// The place in the order of changes at which the login began.
    version: Version,
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
        let logins = Cache::builder().max_capacity(most).time_to_live(fresh + grace).build();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), logins, fresh, grace }
    }

    /// Returns the principal of a login that was accepted before with the same password, and whose user has not changed
    /// since.
    pub(crate) fn find(
        &self,
        credentials: &Credentials,
        age: Age,
        (now, wall): (MonoTime, WallTime),
        versions: &Versions,
    ) -> Option<Arc<Principal>> {
        let user = credentials.user.as_deref()?;
        let login = self.logins.get(user)?;
        let most = match age {
            Age::Fresh => self.fresh,
            Age::InGrace => self.fresh + self.grace,
        };
        let has_expired = login.principal.expires.is_some_and(|expires| expires <= wall);
        let has_changed = versions.changed_since(login.version, &login.principal.user).is_some();
        if has_expired || has_changed || now >= login.since.after(most) {
            return None;
        }
        self.is_by(&login, user, credentials).then(|| Arc::clone(&login.principal))
    }

    fn is_by(&self, login: &Login, user: &str, credentials: &Credentials) -> bool {
        if credentials.password().len() > LENGTH_MAX {
            return false;
        }
        hmac::verify(&self.key, &message(user, credentials), login.shown.as_ref()).is_ok()
    }

    /// Remembers an accepted login.
    pub(crate) fn put(
        &self,
        credentials: &Credentials,
        principal: &Arc<Principal>,
        now: MonoTime,
        version: Version,
    ) {
        let Some(user) = credentials.user.as_deref() else { return };
        if credentials.password().len() > LENGTH_MAX {
            return;
        }
        let shown = hmac::sign(&self.key, &message(user, credentials));
        let login = Login { shown, principal: Arc::clone(principal), since: now, version };
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
