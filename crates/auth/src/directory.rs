//! Back ends that store users with the hashes of their passwords.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use barid_engine::rights::Rights;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A future that a source of users returns.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A source of user records, without the verification of passwords, which [`Passwords`](crate::Passwords)
/// adds.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Returns the name of the back end in the configuration, in metrics and in the log.
    fn name(&self) -> &str;

    /// Returns the record of a user, whose name is `{tenant}/{client}`; `None`: the directory does not have
    /// the user. The rest of the contract is that of [`Backend`](crate::Backend).
    fn find<'a>(&'a self, user: &'a str) -> Answering<'a, Result<Option<Record>, Unavailable>>;

    /// Returns a password hash that is verified for names that the directory does not have, so that the time
    /// of the answer does not tell which users exist. `None`: the directory has no users.
    fn decoy(&self, user: &str) -> Option<String>;
}

impl<D: Directory + ?Sized> Directory for Arc<D> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn find<'a>(&'a self, user: &'a str) -> Answering<'a, Result<Option<Record>, Unavailable>> {
        (**self).find(user)
    }

    fn decoy(&self, user: &str) -> Option<String> {
        (**self).decoy(user)
    }
}

/// What a directory stores about a user.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// The password hash, in one of the formats of [`password`](crate::password).
    pub password: String,
    /// The rights of the user.
    #[serde(flatten)]
    pub rights: Rights,
    /// Whether the user may not log in.
    #[serde(default)]
    pub disabled: bool,
}

/// Shows no password hash.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rights, disabled, .. } = self;
        f.debug_struct("Record")
            .field("rights", rights)
            .field("disabled", disabled)
            .finish_non_exhaustive()
    }
}

/// Reason for which a back end cannot tell. The text names the back end and what to do, and has no secrets.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Unavailable(pub String);
