//! Users, and the verification of their logins.
//!
//! Verifying a password takes milliseconds by design, so no IO thread does it: a `Verifier` has threads of
//! its own, and posts the verdict.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;

use barid_auth::password;
use barid_engine::access::{Permissions, Policy};
use barid_engine::names::{full_name, tenant_of};
use hashbrown::{HashMap, HashSet};

use crate::settings::User;

/// Maximum length of a password, in bytes. Logins with a longer one are denied.
pub const PASSWORD_MAX: usize = 4 * 1024;

/// The outcome of a login.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The client may connect, with these permissions; `None`: it may do everything in its tenant.
    Allowed(Option<Arc<Permissions>>),
    /// The user name or the password is wrong.
    Denied,
    /// The login was not verified: too many logins wait, most of them from the same address.
    Busy,
}

/// The users. If there are none, any client may connect.
#[derive(Debug, Default)]
pub struct Users {
    all: Vec<User>,
    /// Index in `all` of each user, by full name.
    by_name: HashMap<String, usize>,
    /// Names of the tenants that the users belong to.
    tenants: HashSet<String>,
    /// Hash function that chooses the user whose password hash stands in for that of an unknown name.
    decoys: RandomState,
}

impl Users {
    /// Creates the users of a configuration.
    pub fn new(users: &[User]) -> Self {
        let by_name: HashMap<_, _> =
            users.iter().map(|user| full_name(&user.name)).zip(0..).collect();
        let tenants = by_name.keys().filter_map(|name| tenant_of(Some(name)).map(str::to_owned));
        let tenants = tenants.collect();
        Self { all: users.to_vec(), by_name, tenants, decoys: RandomState::new() }
    }

    /// Whether any client may connect, with any password.
    pub fn allow_anybody(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any user belongs to the tenant with this name.
    pub fn are_in(&self, tenant: &str) -> bool {
        self.tenants.contains(tenant)
    }

    /// Verifies a login. Takes as long as the password hash of the user requires. A login with an unknown
    /// name is verified against the hash of a user, always the same one for that name. So the time does not
    /// reveal whether a user exists, and unknown names cost no more than users.
    pub fn verify(&self, name: &str, password: &[u8], client_id: &str) -> Verdict {
        let name = full_name(name);
        let user = self.by_name.get(&name).map(|index| &self.all[*index]);
        let user = user.filter(|_| password.len() <= PASSWORD_MAX);
        let Some(hash) = user.or_else(|| self.decoy(&name)).map(|user| &user.password) else {
            return Verdict::Denied;
        };
        let verified = password::verify(hash, &password[..password.len().min(PASSWORD_MAX)]);
        match user {
            Some(user) if verified => Verdict::Allowed(Some(Arc::new(Permissions::new(
                Arc::new(Policy::new(&user.rights(), Arc::default())),
                &user.name,
                client_id,
            )))),
            _ => Verdict::Denied,
        }
    }

    fn decoy(&self, name: &str) -> Option<&User> {
        let count = NonZeroU64::new(self.all.len() as u64)?;
        let index = usize::try_from(self.decoys.hash_one(name) % count);
        self.all.get(index.expect("it is less than a length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        let password = password::hash("secret", password::Cost::Device);
        User {
            name: "acme/ada".into(),
            password,
            rules: Vec::new(),
            publish: None,
            subscribe: None,
            state: None,
        }
    }

    #[test]
    fn a_login_is_verified() {
        let users = Users::new(&[user()]);
        assert!(matches!(users.verify("acme/ada", b"secret", "c"), Verdict::Allowed(Some(_))));
        assert!(matches!(users.verify("acme/ada", b"wrong", "c"), Verdict::Denied));
        assert!(matches!(users.verify("acme/bob", b"secret", "c"), Verdict::Denied));
        let decoy = |name| users.decoy(name).map(|user| &*user.name);
        assert_eq!(decoy("acme/bob"), Some("acme/ada"), "it costs as much as a user");
        assert_eq!(decoy("acme/bob"), decoy("acme/bob"));
        assert!(matches!(Users::default().verify("a", b"b", "c"), Verdict::Denied));
    }
}
