//! Back ends that store users with the hashes of their passwords.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use barid_engine::rights::Rights;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::asker::Asker;

/// A future that a source of users returns.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a directory says about a user.
pub type Found<'a> = Answering<'a, Result<Option<Record>, NoAnswer>>;

/// A source of user records, without the verification of passwords, which [`Passwords`](crate::Passwords)
/// adds.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Returns the name of the back end in the configuration, in metrics and in the log.
    fn name(&self) -> &str;

    /// Returns the record of a user, whose name is `{tenant}/{client}`; `None`: the directory does not have
    /// the user. `asker`: for whom, if there are others who wait. The rest of the contract is that of
    /// [`Backend`](crate::Backend).
    fn find<'a>(&'a self, user: &'a str, asker: Asker<'a>) -> Found<'a>;

    /// Returns a password hash that is verified for names that the directory does not have, so that the time
    /// of the answer does not tell which users exist. A name keeps its hash when it is asked about again. `None`:
    /// the directory has no users.
    fn decoy(&self, user: &str) -> Option<String>;

    /// Returns the fast hash of a password, under a key that only the brokers have, for comparison with
    /// [`Record::fast`], and for [`remember`](Self::remember). It is different for each user and each stored
    /// password hash. `proof`: the digest of the stored hash, as in [`Principal`](crate::Principal). `None`:
    /// the directory keeps no fast hashes.
    fn fast_hash(&self, _user: &str, _proof: u64, _password: &[u8]) -> Option<[u8; 32]> {
        None
    }

    /// Keeps the fast hash of a password that was verified against the stored hash, so that
    /// [`find`](Self::find) returns it from now on, to this broker and to others. Does not block; the fast
    /// hash may be lost.
    fn remember(&self, _user: &str, _fast: [u8; 32]) {}
}

impl<D: Directory + ?Sized> Directory for Arc<D> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn find<'a>(&'a self, user: &'a str, asker: Asker<'a>) -> Found<'a> {
        (**self).find(user, asker)
    }

    fn decoy(&self, user: &str) -> Option<String> {
        (**self).decoy(user)
    }

    fn fast_hash(&self, user: &str, proof: u64, password: &[u8]) -> Option<[u8; 32]> {
        (**self).fast_hash(user, proof, password)
    }

    fn remember(&self, user: &str, fast: [u8; 32]) {
        (**self).remember(user, fast);
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
    /// The [fast hash](Directory::fast_hash) of the password, if a broker has verified it before.
    #[serde(skip)]
    pub fast: Option<[u8; 32]>,
}

/// Shows no hash: hashes can be guessed at, and belong into no log.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("rights", &self.rights)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

/// Reason for which a directory does not say whether it has a user.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoAnswer {
    /// The directory cannot tell.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Too many wait for the directory, most of them from the same tenant and address.
    #[error("too many wait")]
    Busy,
}

/// Reason for which a back end cannot tell. The text names the back end and what to do, and has no secrets.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Unavailable(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_is_shown_or_written_where_it_does_not_belong() {
        let record = Record {
            password: "$argon2id$hidden".into(),
            rights: Rights::default(),
            disabled: false,
            fast: Some([b'f'; 32]),
        };
        let shown = format!("{record:?}");
        assert!(!shown.contains("hidden") && !shown.contains("102"), "{shown}");
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(json, r#"{"password":"$argon2id$hidden","disabled":false}"#);
        let read: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Record { fast: None, ..record });
    }
}
