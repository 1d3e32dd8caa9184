//! Users in MySQL or MariaDB.

mod changes;
mod pool;
mod protocol;
mod record;
pub mod schema;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

pub use settings::{ChangesSettings, MysqlSettings, Parameter};

use crate::asker::Asker;
use crate::decoys::Decoys;
use crate::directory::{Directory, Found, NoAnswer, Record, Unavailable};
use crate::remote::breaker::Breaker;
use crate::scope::Scope;
use pool::{Health, Pool, Query};
use protocol::Error;

/// A password hash whose password nobody knows, with the default cost. It stands in until a hash was read, and for
/// users without a hash.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$poSWlI8YMS47EfoS5qz5LA$3Edds2lwdfS87YqAAkIk2TzKLcfMk6QyeYfugsLHVA4";

/// Maximum length of a reason in the log, in characters.
const REASON_MAX: usize = 400;

/// A directory of users in MySQL or MariaDB.
///
/// Connections are opened when they are needed, so a broker starts without its database. While the database
/// does not answer, one login in a second finds out whether it answers again; the others are told at once.
#[derive(Debug)]
pub struct Mysql {
    settings: MysqlSettings,
    query: Arc<str>,
    pool: Arc<Pool>,
    /// The connection of the search for changes, which does not wait for those of logins.
    watching: Arc<Pool>,
    health: Arc<Health>,
    /// Password hashes of users that were read.
    decoys: Mutex<Decoys<Box<str>>>,
}

impl Mysql {
    /// Creates the directory with the name that it has in the configuration. No connection is opened. `secret`:
    /// that of the [authenticator](crate::Authenticator::secret).
    ///
    /// # Errors
    /// A sentence about what is wrong with the settings, without any part of the URL.
    pub fn new(name: &str, settings: MysqlSettings, secret: &[u8; 32]) -> Result<Self, String> {
        settings.check()?;
        let health = Arc::new(Health { name: name.into(), breaker: Breaker::default() });
        let target = settings.target()?;
        let pool = |size| Arc::new(Pool::new(target.clone(), size, settings.timeout(), &health));
        Ok(Self {
            query: settings.query.as_str().into(),
            pool: pool(settings.pool),
            watching: pool(1),
            settings,
            health,
            decoys: Mutex::new(Decoys::new(secret)),
        })
    }

    /// Looks for users that have changed, forever, and calls `on_change` for them. Ends at once if the settings
    /// do not ask for it.
    pub async fn watch(&self, on_change: impl Fn(&Scope)) {
        if let Some(settings) = &self.settings.changes {
            changes::watch(self, settings, on_change).await;
        }
    }

    async fn look_up(&self, user: &str, asker: Asker<'_>) -> Result<Option<Record>, NoAnswer> {
        self.health.breaker.check(Instant::now()).map_err(|reason| self.unavailable(&reason))?;
        let query =
            Query { sql: Arc::clone(&self.query), parameters: self.bound(user), rows_max: 1 };
        let (mut rows, are_all) = match self.pool.query(asker, query).await {
            Ok(rows) => rows,
            Err(Error::Busy) => return Err(NoAnswer::Busy),
            Err(error) => return Err(self.unavailable(&error.to_string()).into()),
        };
        if !are_all {
            let reason = "the query returns more than one row for a user: it needs a key that is unique, \
                and is compared byte by byte";
            return Err(self.unavailable(reason).into());
        }
        let Some(row) = rows.pop() else { return Ok(None) };
        Ok(record::read(row, user, DECOY).map_err(|reason| self.unavailable(&reason))?)
    }

    fn bound(&self, user: &str) -> Vec<Box<str>> {
        let (tenant, client) = user.split_once('/').unwrap_or(("", user));
        let part = |parameter: &Parameter| match parameter {
            Parameter::User => user.into(),
            Parameter::Tenant => tenant.into(),
            Parameter::Client => client.into(),
        };
        self.settings.parameters.iter().map(part).collect()
    }

    fn unavailable(&self, reason: &str) -> Unavailable {
        let reason: String = reason.chars().take(REASON_MAX).collect();
        Unavailable(format!("mysql back end `{}`: {reason}", self.health.name))
    }
}

impl Directory for Mysql {
    fn name(&self) -> &str {
        &self.health.name
    }

    fn find<'a>(&'a self, user: &'a str, asker: Asker<'a>) -> Found<'a> {
        Box::pin(async move {
            let found = self.look_up(user, asker).await?;
            self.decoys.lock().note(user, found.as_ref());
            Ok(found)
        })
    }

    fn decoy(&self, user: &str) -> Option<String> {
        let decoys = self.decoys.lock();
        Some(decoys.of(user).map_or(DECOY, |hash| hash).into())
    }
}
