//! Settings of a shared cache in Redis.

use std::path::{Path, PathBuf};
use std::time::Duration;

use barid_engine::amqp::Secret;
use serde::Deserialize;

use super::link::Target;
use crate::remote::look_up::LookUp;
use crate::remote::stream::Tls;
use crate::remote::url::{ServerUrl, given, read};

/// Minimum length of the secret, in bytes: that of the key of HMAC-SHA256.
const SECRET_MIN: usize = 32;

/// Maximum time for which a record is cached, in seconds. Who looks for changes in a database looks back
/// further than that when it starts.
const TTL_MAX: u64 = 3_600;

/// Maximum time for which an unknown name is cached, in seconds.
const UNKNOWN_TTL_MAX: u64 = 300;

/// Maximum time for which a fast hash is kept, in seconds.
const FAST_TTL_MAX: u64 = 90 * 86_400;

/// Settings of a shared cache in Redis.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct RedisSettings {
    /// Path of a file that contains the URL. White space around the URL is ignored.
    pub url_file: Option<PathBuf>,
    /// The URL: `redis://user:password@host:port/number`, or `rediss://…` for TLS, with `%XX` for special
    /// characters. User, password and the number of the database may be absent.
    pub url: Option<Secret>,
    /// Path of a PEM file with the authorities that may issue the certificate of the server, in place of those
    /// that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Path of a file that contains the secret under which entries are authenticated and fast hashes made. All
    /// brokers that share the cache need the same. White space around the secret is ignored.
    pub secret_file: PathBuf,
    /// Text in front of each key and channel.
    pub prefix: String,
    /// Time for which a record is cached, in seconds. A change that nobody tells is seen after this time.
    pub ttl: u64,
    /// Time for which it is cached that a name is unknown, in seconds; 0: not at all.
    pub unknown_ttl: u64,
    /// Whether fast hashes of passwords are kept.
    pub fast: bool,
    /// Time for which a fast hash is kept, in seconds. It is of no use any more when the stored hash changes.
    pub fast_ttl: u64,
    /// Maximum time for an answer of Redis, in milliseconds. The next directory is asked after it.
    pub timeout_ms: u64,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            url_file: None,
            url: None,
            ca_file: None,
            secret_file: PathBuf::new(),
            prefix: "barid:".into(),
            ttl: 300,
            unknown_ttl: 10,
            fast: true,
            fast_ttl: 7 * 86_400,
            timeout_ms: 250,
        }
    }
}

impl RedisSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.url_file, &self.ca_file]
            .into_iter()
            .flatten()
            .map(|file| &**file)
            .chain([&*self.secret_file])
    }

    /// Checks what the types do not, and that the files are there.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong. It contains no part of the URL and of the secret.
    pub fn check(&self) -> Result<(), String> {
        let ranges = [
            ("ttl", self.ttl, 1, TTL_MAX),
            ("unknown_ttl", self.unknown_ttl, 0, UNKNOWN_TTL_MAX),
            ("fast_ttl", self.fast_ttl, 1, FAST_TTL_MAX),
            ("timeout_ms", self.timeout_ms, 10, 2_000),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(format!("`{name}` is from {least} to {most}"));
            }
        }
        if self.prefix.len() > 64 || self.prefix.chars().any(char::is_control) {
            return Err("`prefix` has at most 64 bytes, and no control characters".into());
        }
        self.secret()?;
        self.target().map(|_| ())
    }

    pub(super) fn secret(&self) -> Result<Vec<u8>, String> {
        if self.secret_file.as_os_str().is_empty() {
            return Err(
                "`secret_file` is missing: the output of `openssl rand -hex 32` is a good secret"
                    .into(),
            );
        }
        let secret = read(&self.secret_file)?;
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_MIN {
            let file = self.secret_file.display();
            return Err(format!("{file}: the secret has less than {SECRET_MIN} bytes"));
        }
        Ok(secret.to_vec())
    }

    pub(super) fn target(&self) -> Result<Target, String> {
        let url = given(self.url.as_ref(), self.url_file.as_deref())?;
        let url = ServerUrl::parse(&url, &[("redis", 6379), ("rediss", 6379)])?;
        let database = match &*url.path {
            "" => 0,
            number => number
                .parse::<u16>()
                .map_err(|_| "the URL ends with the number of a database, or not")?,
        };
        let with_tls = &*url.scheme == "rediss" || self.ca_file.is_some();
        let tls = with_tls.then(|| Tls::new(&url.host, self.ca_file.as_deref())).transpose()?;
        let timeout = Duration::from_millis(self.timeout_ms);
        Ok(Target { url, database, tls, names: LookUp::default(), timeout })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn settings_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let (secret, short) = (directory.path().join("secret"), directory.path().join("short"));
        fs::write(&secret, format!("{}\n", "s".repeat(32))).unwrap();
        fs::write(&short, format!("{}\n\n", "s".repeat(31))).unwrap();
        let with = |change: fn(&mut RedisSettings)| {
            let url = Some(Secret::new("redis://:hidden@127.0.0.1/3"));
            let secret_file = secret.clone();
            let mut settings = RedisSettings { url, secret_file, ..RedisSettings::default() };
            change(&mut settings);
            settings
        };
        assert_eq!(with(|_| {}).check(), Ok(()));
        assert_eq!(with(|_| {}).target().unwrap().database, 3);
        assert_eq!(with(|_| {}).secret().unwrap(), [b's'; 32]);
        let mistakes: [fn(&mut RedisSettings); 8] = [
            |settings| settings.ttl = 3_601,
            |settings| settings.ttl = 0,
            |settings| settings.unknown_ttl = 301,
            |settings| settings.prefix = "a\n".into(),
            |settings| settings.secret_file = PathBuf::new(),
            |settings| settings.url = None,
            |settings| settings.url = Some(Secret::new("redis://:hidden@h/x")),
            |settings| settings.ca_file = Some("/nowhere".into()),
        ];
        for (at, mistake) in mistakes.into_iter().enumerate() {
            let settings = with(mistake);
            let error = settings.check().expect_err(&at.to_string());
            assert!(!error.contains("hidden") && !format!("{settings:?}").contains("hidden"));
        }
        let weak = RedisSettings { secret_file: short, ..with(|_| {}) };
        assert!(weak.check().unwrap_err().contains("less than 32 bytes"));
    }
}
