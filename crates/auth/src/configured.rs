//! The users in the configuration file.

use barid_engine::names::full_name;
use hashbrown::HashMap;

use crate::asker::Asker;
use crate::decoys::Decoys;
use crate::directory::{Directory, Found, Record};

/// The users in the configuration file.
#[derive(Debug)]
pub struct ConfiguredUsers {
    by_name: HashMap<Box<str>, Record>,
    /// Password hashes that stand in for those of unknown names.
    decoys: Decoys<Box<str>>,
}

impl ConfiguredUsers {
    /// The name of this back end.
    pub const NAME: &str = "file";

    /// Creates the directory of `users`: names, with or without tenants, and records. `secret`: that of the
    /// [authenticator](crate::Authenticator::secret).
    pub fn new(users: impl IntoIterator<Item = (String, Record)>, secret: &[u8; 32]) -> Self {
        let by_name: HashMap<Box<str>, Record> =
            users.into_iter().map(|(name, record)| (full_name(&name).into(), record)).collect();
        let mut decoys = Decoys::new(secret);
        by_name.iter().for_each(|(name, record)| decoys.put(name, record.password.as_str().into()));
        Self { by_name, decoys }
    }

    /// Whether there are no users.
    pub fn are_none(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The full names of the users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }
}

impl Directory for ConfiguredUsers {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn find<'a>(&'a self, user: &'a str, _: Asker<'a>) -> Found<'a> {
        let found = self.by_name.get(user).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn decoy(&self, user: &str) -> Option<String> {
        self.decoys.of(user).map(|hash| hash.to_string())
    }
}
