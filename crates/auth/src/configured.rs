//! The users in the configuration file.

use std::hash::{BuildHasher, RandomState};

use barid_engine::names::full_name;
use hashbrown::HashMap;

use crate::asker::Asker;
use crate::directory::{Directory, Found, Record};

/// The users in the configuration file.
#[derive(Debug, Default)]
pub struct ConfiguredUsers {
    by_name: HashMap<Box<str>, Record>,
    names: Box<[Box<str>]>,
    /// Hash function that chooses the user whose password hash stands in for that of an unknown name.
    decoys: RandomState,
}

impl ConfiguredUsers {
    /// The name of this back end.
    pub const NAME: &str = "file";

    /// Creates the directory of `users`: names, with or without tenants, and records.
    pub fn new(users: impl IntoIterator<Item = (String, Record)>) -> Self {
        let by_name: HashMap<Box<str>, _> =
            users.into_iter().map(|(name, record)| (full_name(&name).into(), record)).collect();
        let names = by_name.keys().cloned().collect();
        Self { by_name, names, decoys: RandomState::new() }
    }

    /// Whether there are no users.
    pub fn are_none(&self) -> bool {
        self.names.is_empty()
    }

    /// The full names of the users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
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

    /// Always the same user for a name, so that repeated logins show nothing.
    fn decoy(&self, user: &str) -> Option<String> {
        let count = u64::try_from(self.names.len()).ok().filter(|count| *count > 0)?;
        let index = usize::try_from(self.decoys.hash_one(user) % count).ok()?;
        self.by_name.get(self.names.get(index)?).map(|record| record.password.clone())
    }
}
