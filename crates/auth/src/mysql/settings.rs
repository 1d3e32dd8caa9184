//! Settings of a back end in MySQL or MariaDB.

use std::path::{Path, PathBuf};
use std::time::Duration;

use barid_engine::amqp::Secret;
use serde::Deserialize;

use super::protocol::Target;
use crate::remote::look_up::LookUp;
use crate::remote::stream::Tls;
use crate::remote::url::{ServerUrl, given};

/// The query of the default schema.
const QUERY: &str = "SELECT name, password_hash, rights, enabled FROM barid_users WHERE name = ?";

/// The query for changes of the default schema.
const CHANGES_QUERY: &str = "SELECT name, changed_at FROM barid_users WHERE changed_at >= ? \
    ORDER BY changed_at DESC LIMIT 1001";

/// Maximum time for a query, in milliseconds. A shared cache counts on it: see
/// [`Cached`](crate::redis::Cached).
const TIMEOUT_MAX_MS: u64 = 5_000;

/// Settings of a back end in MySQL or MariaDB.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct MysqlSettings {
    /// Path of a file that contains the URL. White space around the URL is ignored.
    pub url_file: Option<PathBuf>,
    /// The URL: `mysql://user:password@host:port/database`, with `%XX` for special characters.
    pub url: Option<Secret>,
    /// Whether the connection uses TLS. The certificate of the server is verified.
    pub tls: bool,
    /// Path of a PEM file with the authorities that may issue the certificate of the server, in place of those
    /// that the system trusts. Implies `tls`.
    pub ca_file: Option<PathBuf>,
    /// Maximum number of connections.
    pub pool: usize,
    /// Maximum time for a look-up, including waiting for a connection, in milliseconds.
    pub timeout_ms: u64,
    /// The query that finds a user. Each `?` stands for one of `parameters`.
    pub query: String,
    /// The parts of the user name that are bound to each `?` of the query.
    pub parameters: Vec<Parameter>,
    /// How changes of users are found; absent: they are not looked for.
    pub changes: Option<ChangesSettings>,
}

impl Default for MysqlSettings {
    fn default() -> Self {
        Self {
            url_file: None,
            url: None,
            tls: false,
            ca_file: None,
            pool: 8,
            timeout_ms: 2_000,
            query: QUERY.into(),
            parameters: vec![Parameter::User],
            changes: None,
        }
    }
}

/// A part of a user name.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Parameter {
    /// The whole name, `{tenant}/{client}`.
    User,
    /// The tenant.
    Tenant,
    /// What follows the slash after the tenant.
    Client,
}

/// Settings of the search for changes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct ChangesSettings {
    /// Interval between two searches, in milliseconds.
    pub interval_ms: u64,
    /// The query that finds the users that have changed at a time, in UTC, or later.
    pub query: String,
}

impl Default for ChangesSettings {
    fn default() -> Self {
        Self { interval_ms: 1_000, query: CHANGES_QUERY.into() }
    }
}

impl MysqlSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.url_file, &self.ca_file].into_iter().flatten().map(|file| &**file)
    }

    /// Checks what the types do not, and that the files are there.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong. It contains no part of the URL.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=256).contains(&self.pool) {
            return Err("`pool` is from 1 to 256".into());
        }
        if !(10..=TIMEOUT_MAX_MS).contains(&self.timeout_ms) {
            return Err(format!("`timeout_ms` is from 10 to {TIMEOUT_MAX_MS}"));
        }
        if self.parameters.is_empty() {
            return Err(
                "`parameters` is empty: the query would find the same row for all users".into()
            );
        }
        let marks = self.query.matches('?').count();
        if marks < self.parameters.len() {
            let count = self.parameters.len();
            return Err(format!("`query` has {marks} `?`, and `parameters` has {count}"));
        }
        if let Some(changes) = &self.changes {
            if !(100..=60_000).contains(&changes.interval_ms) {
                return Err("`changes.interval_ms` is from 100 to 60000".into());
            }
            if !changes.query.contains('?') {
                return Err("`changes.query` has no `?`, which stands for a time".into());
            }
        }
        self.target().map(|_| ())
    }

    pub(super) fn target(&self) -> Result<Target, String> {
        let url = given(self.url.as_ref(), self.url_file.as_deref())?;
        let url = ServerUrl::parse(&url, &[("mysql", 3306)])?;
        if url.user.is_none() || url.path.is_empty() || url.path.contains('/') {
            return Err(
                "the URL names no user or no database: mysql://user:password@host/database".into(),
            );
        }
        let with_tls = self.tls || self.ca_file.is_some();
        let tls = with_tls.then(|| Tls::new(&url.host, self.ca_file.as_deref())).transpose()?;
        Ok(Target { url, tls, names: LookUp::default() })
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut MysqlSettings)) -> Result<(), String> {
        let url = Some(Secret::new("mysql://u:hidden@127.0.0.1/d"));
        let mut settings = MysqlSettings { url, ..MysqlSettings::default() };
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|settings| settings.changes = Some(ChangesSettings::default())), Ok(()));
        let mistakes: [fn(&mut MysqlSettings); 9] = [
            |settings| settings.pool = 0,
            |settings| settings.timeout_ms = 5_001,
            |settings| settings.parameters.clear(),
            |settings| settings.parameters = vec![Parameter::Tenant, Parameter::Client],
            |settings| settings.url = Some(Secret::new("mysql://u:hidden@127.0.0.1")),
            |settings| settings.url = Some(Secret::new("mysql://127.0.0.1/d")),
            |settings| settings.url_file = Some("/nowhere".into()),
            |settings| settings.ca_file = Some("/nowhere".into()),
            |settings| {
                settings.changes =
                    Some(ChangesSettings { query: "SELECT 1".into(), ..ChangesSettings::default() })
            },
        ];
        for (at, mistake) in mistakes.into_iter().enumerate() {
            let error = with(mistake).expect_err(&at.to_string());
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn the_url_is_not_shown() {
        let json =
            r#"{"url": "mysql://u:hidden@h/d", "parameters": ["tenant", "client"], "changes": {}}"#;
        let settings: MysqlSettings = serde_json::from_str(json).unwrap();
        assert!(!format!("{settings:?}").contains("hidden"));
        assert!(serde_json::from_str::<MysqlSettings>(r#"{"hots": "h"}"#).is_err());
    }
}
