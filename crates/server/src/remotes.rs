//! Back ends of logins that are elsewhere: databases, services, and the keys of tokens.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use barid_auth::mysql::{Mysql, MysqlSettings};
use barid_auth::redis::{CacheCounts, Cached, RedisSettings};
use barid_auth::{
    Authenticator, Backend, CertificateSettings, CertificateUsers, Http, HttpSettings, Jwt,
    JwtSettings, Passwords, Scope, Unavailable,
};
use barid_engine::clock::Clock;
use ring::digest::{SHA256, digest};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::error;

use crate::settings::Auth;

/// Called with the users that may have changed at a back end.
pub type Tell = Arc<dyn Fn(&Scope) + Send + Sync>;

/// The back ends of a configuration, by name.
#[derive(Debug, Default)]
pub struct Remotes(BTreeMap<String, Remote>);

/// One back end, with what it does in the background.
#[derive(Debug)]
struct Remote {
    settings: Kind,
    /// The contents of the files that the settings name.
    files: FilesDigest,
    backend: Arc<dyn Backend>,
    cache: Option<SharedCache>,
    tasks: Vec<AbortHandle>,
}

/// Digests of files; `None` for a file that cannot be read.
#[derive(Debug, PartialEq)]
struct FilesDigest(Box<[Option<Box<[u8]>>]>);

/// The cache in Redis that brokers share for the users of one back end.
#[derive(Clone)]
pub struct SharedCache(Arc<Cached<Arc<Mysql>>>);

/// The settings of a back end.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Mysql(MysqlSettings, Option<RedisSettings>),
    Certificate(CertificateSettings),
    Jwt(JwtSettings),
    Http(HttpSettings),
}

impl Drop for Remote {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Remotes {
    /// Returns the back end with this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Backend>> {
        self.0.get(name).map(|remote| Arc::clone(&remote.backend))
    }

    /// Returns the shared caches, with the names of their back ends.
    pub fn caches(&self) -> Vec<(String, SharedCache)> {
        let cache =
            |(name, remote): (&String, &Remote)| Some((name.clone(), remote.cache.clone()?));
        self.0.iter().filter_map(cache).collect()
    }

    /// Applies a configuration. Back ends stay as they are if neither their settings have changed nor the files that
    /// these name. A back end that cannot be created is logged, and does not exist: nobody logs in through it. `tell` is
    /// called when users may have changed. Returns whether a back end was replaced.
    pub fn configure(
        &mut self,
        auth: &Auth,
        authenticator: &Authenticator,
        clock: Clock,
        tell: &Tell,
    ) -> bool {
        let mut before = std::mem::take(&mut self.0);
        let mut is_replaced = false;
        for (name, settings) in kinds(auth) {
            let files = settings.digest_files();
            let kept = before
                .remove(&name)
                .filter(|remote| (&remote.settings, &remote.files) == (&settings, &files));
            is_replaced |= kept.is_none();
            let remote = match kept {
                Some(remote) => Ok(remote),
                None => settings.start(&name, files, authenticator, clock, tell),
            };
            match remote {
                Ok(remote) => {
                    self.0.insert(name, remote);
                }
                Err(reason) => {
                    error!(backend = name, "cannot use this back end of logins: {reason}")
                }
            }
        }
        is_replaced
    }
}

fn kinds(auth: &Auth) -> impl Iterator<Item = (String, Kind)> {
    let mysql = auth.mysql.iter().map(|(name, settings)| {
        (name.clone(), Kind::Mysql(settings.clone(), auth.redis.get(name).cloned()))
    });
    let jwt = auth.jwt.iter().map(|(name, settings)| (name.clone(), Kind::Jwt(settings.clone())));
    let http =
        auth.http.iter().map(|(name, settings)| (name.clone(), Kind::Http(settings.clone())));
    let certificate = auth.certificate.iter();
    let certificate =
        certificate.map(|(name, settings)| (name.clone(), Kind::Certificate(settings.clone())));
    mysql.chain(certificate).chain(jwt).chain(http)
}

impl Kind {
    fn digest_files(&self) -> FilesDigest {
        let files: Vec<&Path> = match self {
            Self::Mysql(mysql, redis) => {
                mysql.files().chain(redis.iter().flat_map(RedisSettings::files)).collect()
            }
            Self::Certificate(_) => Vec::new(),
            Self::Jwt(jwt) => jwt.files().collect(),
            Self::Http(http) => http.files().collect(),
        };
        let of_file = |file: &Path| Some(digest(&SHA256, &fs::read(file).ok()?).as_ref().into());
        FilesDigest(files.into_iter().map(of_file).collect())
    }

    fn start(
        self,
        name: &str,
        files: FilesDigest,
        authenticator: &Authenticator,
        clock: Clock,
        tell: &Tell,
    ) -> Result<Remote, String> {
        let (runtime, hashing) = (authenticator.runtime(), authenticator.hashing());
        let secret = authenticator.secret();
        let tell = {
            let tell = Arc::clone(tell);
            move |changed: &Scope| tell(changed)
        };
        let mut cache = None;
        let (backend, tasks): (Arc<dyn Backend>, _) = match &self {
            Self::Certificate(settings) => {
                (Arc::new(CertificateUsers::new(name, settings.clone())?), Vec::new())
            }
            Self::Jwt(settings) => {
                let jwt = Jwt::new(name, settings.clone(), hashing)?;
                jwt.start(runtime);
                (Arc::new(jwt), Vec::new())
            }
            Self::Http(settings) => (Arc::new(Http::new(name, settings)?), Vec::new()),
            Self::Mysql(settings, None) => {
                let mysql = Arc::new(Mysql::new(name, settings.clone(), secret)?);
                let watching = watch(runtime, Arc::clone(&mysql), tell);
                (Arc::new(Passwords::new(mysql, hashing)), vec![watching])
            }
            Self::Mysql(settings, Some(redis)) => {
                let mysql = Arc::new(Mysql::new(name, settings.clone(), secret)?);
                let cached = Cached::new(Arc::clone(&mysql), redis.clone(), secret, clock)?;
                let cached = Arc::new(cached);
                cache = Some(SharedCache(Arc::clone(&cached)));
                let running = runtime.spawn(Arc::clone(&cached).run(tell.clone()));
                let of_changed = Arc::clone(&cached);
                let watching = watch(runtime, mysql, move |changed| {
                    of_changed.forget(changed);
                    tell(changed);
                });
                let tasks = vec![running.abort_handle(), watching];
                (Arc::new(Passwords::new(cached, hashing)), tasks)
            }
        };
        Ok(Remote { settings: self, files, backend, cache, tasks })
    }
}

impl SharedCache {
    /// Returns the counts since the start.
    pub fn counts(&self) -> CacheCounts {
        self.0.counts()
    }

    /// Notes that users have changed, and tells all brokers that share the cache.
    ///
    /// # Errors
    /// The other brokers could not be told.
    pub async fn invalidate(&self, scope: &Scope) -> Result<(), Unavailable> {
        self.0.invalidate(scope).await
    }
}

impl std::fmt::Debug for SharedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedCache").finish_non_exhaustive()
    }
}

fn watch(
    runtime: &Handle,
    mysql: Arc<Mysql>,
    tell: impl Fn(&Scope) + Send + Sync + 'static,
) -> AbortHandle {
    runtime.spawn(async move { mysql.watch(tell).await }).abort_handle()
}
