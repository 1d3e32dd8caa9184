//! A shared cache in Redis, in front of another directory.

mod freshness;
mod guard;
mod link;
mod seal;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barid_core::time::WallTime;
use barid_engine::clock::Clock;
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;

pub use settings::RedisSettings;

use crate::asker::Asker;
use crate::decoys::Decoys;
use crate::directory::{Directory, Found, NoAnswer, Record, Unavailable};
use crate::remote::printable;
use crate::remote::rarely::Rarely;
use crate::scope::Scope;
use freshness::Freshness;
use link::{Events, Link};
use seal::{ENTRY_MAX, Entry, FAST_LEN, Seal, Unusable};

/// Maximum length of the name of a user that is cached, in bytes. A default schema has no longer names.
const NAME_MAX: usize = 2048;

/// Maximum number of values that wait to be written. Further ones are not written.
const WRITES_MAX: usize = 1024;

/// Maximum number of values that are written together.
const BATCH_MAX: usize = 64;

/// Time for which nothing is cached about a user that has changed. A look-up that began before the change, and
/// that has read the old record, has ended by then.
const CHANGE_LASTS: Duration = Duration::from_secs(10);

/// Maximum duration of a look-up whose result is cached.
const LOOK_UP_MAX: Duration = Duration::from_secs(5);

/// A shared cache in Redis in front of another directory.
///
/// Redis is a cache and nothing else: without it, or if it answers wrongly, the directory behind it is asked.
/// Values are authenticated under a secret of the brokers and bound to their user, so who can write to Redis
/// can make the brokers ask the directory behind it, and can bring back what they have written themselves, at
/// most until that ends: [`RedisSettings::ttl`]. A broker that has heard of a change does not take back what is
/// older than the change.
///
/// [`run`](Self::run) has to be polled all the time. Until it is, there is no cache.
pub struct Cached<D> {
    inner: D,
    settings: RedisSettings,
    channel: Box<str>,
    link: Link,
    seal: Seal,
    fresh: Freshness,
    clock: Clock,
    counts: Counts,
    distrust: Rarely,
    /// Password hashes of users that were read, from Redis or from the directory behind it.
    decoys: Mutex<Decoys<Box<str>>>,
    writes: Sender<Write>,
    waiting: tokio::sync::Mutex<Receiver<Write>>,
}

/// A value that has to be written.
#[derive(Debug)]
struct Write {
    key: Vec<u8>,
    value: Vec<u8>,
    seconds: u64,
    /// Whether the value replaces another one.
    replaces: bool,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    distrusted: AtomicU64,
    bypassed: AtomicU64,
    lost_writes: AtomicU64,
}

/// Counts of a shared cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Look-ups that Redis has answered.
    pub hits: u64,
    /// Look-ups that Redis could not answer, so that the directory behind it was asked.
    pub misses: u64,
    /// Values that were not used because they were not written by a broker with the same secret for this user,
    /// or are older than a change.
    pub distrusted: u64,
    /// Look-ups for which Redis was not asked, or did not answer, because it failed.
    pub bypassed: u64,
    /// Values that were not written because too many waited.
    pub lost_writes: u64,
    /// Whether there is a connection to Redis at the moment.
    pub is_up: bool,
}

/// What Redis has about a user.
struct FromRedis {
    entry: Result<Entry, Unusable>,
    fast: Option<[u8; 32]>,
}

impl<D: Directory> Cached<D> {
    /// Creates the cache in front of `inner`. No connection is opened. `secret`: that of the
    /// [authenticator](crate::Authenticator::secret).
    ///
    /// # Errors
    /// A sentence about what is wrong with the settings, without any part of the URL and of the secret.
    pub fn new(
        inner: D,
        settings: RedisSettings,
        secret: &[u8; 32],
        clock: Clock,
    ) -> Result<Self, String> {
        settings.check()?;
        let channel = format!("{}invalidate", settings.prefix).into_boxed_str();
        let (writes, waiting) = channel_of_writes();
        Ok(Self {
            link: Link::new(inner.name(), settings.target()?, &channel),
            seal: Seal::new(&settings.secret()?),
            fresh: Freshness::new(Duration::from_secs(settings.ttl)),
            channel,
            inner,
            settings,
            clock,
            counts: Counts::default(),
            distrust: Rarely::default(),
            decoys: Mutex::new(Decoys::new(secret)),
            writes,
            waiting: tokio::sync::Mutex::new(waiting),
        })
    }

    /// Returns the directory behind the cache.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the counts since the start.
    pub fn counts(&self) -> CacheCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheCounts {
            hits: read(&self.counts.hits),
            misses: read(&self.counts.misses),
            distrusted: read(&self.counts.distrusted),
            bypassed: read(&self.counts.bypassed),
            lost_writes: read(&self.counts.lost_writes),
            is_up: self.link.is_up(),
        }
    }

    /// Notes that users have changed, as the directory behind has told every broker. The cache of a single user
    /// is removed from Redis; nobody else is told.
    pub fn forget(&self, changed: &Scope) {
        self.fresh.note(changed, self.clock.wall());
        if let Scope::User(user) = changed
            && user.len() <= NAME_MAX
        {
            self.write(self.change_of(user));
        }
    }

    /// Notes that users have changed, and tells all brokers.
    ///
    /// # Errors
    /// Redis was not told: other brokers may use what they have until it ends.
    pub async fn invalidate(&self, changed: &Scope) -> Result<(), Unavailable> {
        self.fresh.note(changed, self.clock.wall());
        let mut commands = redis::pipe();
        if let Scope::User(user) = changed {
            add(&mut commands, &self.change_of(user));
        }
        let message = match changed {
            Scope::User(user) => user.to_string(),
            Scope::Tenant(tenant) => format!("{tenant}/*"),
            Scope::Everybody => "*".to_owned(),
        };
        commands.cmd("PUBLISH").arg(&*self.channel).arg(message);
        let name = self.inner.name();
        let Some(replies) = self.link.ask(&commands).await else {
            return Err(Unavailable(format!("redis cache of back end `{name}`: no answer")));
        };
        let error = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(printable(error.to_string().as_bytes())),
            _ => None,
        });
        error.map_or(Ok(()), |error| {
            Err(Unavailable(format!("redis cache of back end `{name}`: {error}")))
        })
    }

    async fn look_up(&self, user: &str, asker: Asker<'_>) -> Result<Option<Record>, NoAnswer> {
        let (began, began_at) = (self.clock.wall(), Instant::now());
        if user.len() > NAME_MAX {
            return self.inner.find(user, asker).await;
        }
        let Some(FromRedis { entry, fast }) = self.read(user, began).await else {
            count(&self.counts.bypassed);
            return self.inner.find(user, asker).await;
        };
        let replaces = match entry {
            Ok(entry) if self.fresh.trusts(user, entry.created) => {
                count(&self.counts.hits);
                return Ok(entry.record.map(|record| Record { fast, ..record }));
            }
            Ok(_) => {
                count(&self.counts.distrusted);
                true
            }
            Err(Unusable::Absent) => false,
            Err(Unusable::Expired) => true,
            Err(Unusable::Forged) => {
                self.distrusts();
                true
            }
        };
        count(&self.counts.misses);
        let found = self.inner.find(user, asker).await?;
        if began_at.elapsed() <= LOOK_UP_MAX {
            self.keep(user, found.clone(), began, replaces);
        }
        Ok(found.map(|record| Record { fast, ..record }))
    }

    /// Reads both values of a user in one round trip. A value that is too long is read up to the byte that
    /// shows it.
    async fn read(&self, user: &str, now: WallTime) -> Option<FromRedis> {
        let mut commands = redis::pipe();
        let read = |commands: &mut Pipeline, kind, length: usize| {
            commands.cmd("GETRANGE").arg(self.key(kind, user)).arg(0).arg(length);
        };
        read(&mut commands, ENTRY, ENTRY_MAX);
        if self.settings.fast {
            read(&mut commands, FAST, FAST_LEN);
        }
        let mut replies = self.link.ask(&commands).await?.into_iter();
        let entry = match replies.next()? {
            Value::BulkString(value) => self.seal.open_entry(user, &value, now),
            _ => Err(Unusable::Forged),
        };
        let fast = match replies.next() {
            Some(Value::BulkString(value)) => self.seal.open_fast(user, &value, now),
            Some(_) => Err(Unusable::Forged),
            None => Err(Unusable::Absent),
        };
        if fast == Err(Unusable::Forged) {
            self.distrusts();
        }
        Some(FromRedis { entry, fast: fast.ok() })
    }

    fn distrusts(&self) {
        count(&self.counts.distrusted);
        if let Some(events) = self.distrust.pass() {
            warn!(
                backend = self.inner.name(),
                "{events} values in Redis are not used: they were written with another secret, for another user, \
                 or by somebody else"
            );
        }
    }

    /// Has what the directory behind has said about a user written. An entry does not replace another one,
    /// unless that is useless: the other one may be the note of a change since then.
    fn keep(&self, user: &str, record: Option<Record>, created: WallTime, replaces: bool) {
        let seconds = match record {
            Some(_) => self.settings.ttl,
            None => self.settings.unknown_ttl,
        };
        if seconds == 0 {
            return;
        }
        let expires = created.after(Duration::from_secs(seconds));
        if let Some(value) = self.seal.entry(user, &Entry { created, expires, record }) {
            self.write(Write { key: self.key(ENTRY, user), value, seconds, replaces });
        }
    }

    /// The note of a change: an entry without contents.
    fn change_of(&self, user: &str) -> Write {
        let seconds = CHANGE_LASTS.as_secs();
        Write { key: self.key(ENTRY, user), value: Vec::new(), seconds, replaces: true }
    }

    fn key(&self, kind: &str, user: &str) -> Vec<u8> {
        format!("{}{kind}{user}", self.settings.prefix).into_bytes()
    }

    fn write(&self, write: Write) {
        if self.link.is_up() && self.writes.try_send(write).is_err() {
            count(&self.counts.lost_writes);
        }
    }
}

/// Parts of keys.
const ENTRY: &str = "user:";
const FAST: &str = "fast:";

fn channel_of_writes() -> (Sender<Write>, Receiver<Write>) {
    channel(WRITES_MAX)
}

fn count(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn add(commands: &mut Pipeline, write: &Write) {
    commands.cmd("SET").arg(&write.key).arg(&write.value).arg("EX").arg(write.seconds);
    if !write.replaces {
        commands.arg("NX");
    }
}

impl<D: Directory + 'static> Cached<D> {
    /// Keeps the connection to Redis, and calls `on_change` for users that may have changed, as others say over
    /// the channel. Never ends.
    pub async fn run(self: Arc<Self>, on_change: impl Fn(&Scope) + Send + Sync + 'static) {
        let events = Arc::new(Running { cached: Arc::clone(&self), on_change });
        self.link.run(&events).await;
    }
}

/// A cache that runs.
struct Running<D, F> {
    cached: Arc<Cached<D>>,
    on_change: F,
}

impl<D: Directory + 'static, F: Fn(&Scope) + Send + Sync + 'static> Running<D, F> {
    fn changed(&self, changed: &Scope) {
        self.cached.fresh.note(changed, self.cached.clock.wall());
        (self.on_change)(changed);
    }
}

impl<D: Directory + 'static, F: Fn(&Scope) + Send + Sync + 'static> Events for Running<D, F> {
    fn message(&self, message: &[u8]) {
        let Ok(name) = str::from_utf8(message) else { return };
        if name == "*" {
            self.changed(&Scope::Everybody);
        } else if let Some(tenant) = name.strip_suffix("/*").filter(|tenant| !tenant.contains('/'))
        {
            self.changed(&Scope::Tenant(tenant.into()));
        } else if name.len() <= NAME_MAX {
            self.changed(&Scope::User(name.into()));
        }
    }

    /// Entries from before may be of users that have changed since: the note of a change could not be written
    /// while Redis did not run, and Redis may have started with old contents.
    fn again(&self, lost: Instant) {
        let cached = &self.cached;
        cached.fresh.note(&Scope::Everybody, cached.clock.wall().before(lost.elapsed()));
        (self.on_change)(&Scope::Everybody);
    }

    async fn work(&self) {
        let mut waiting = self.cached.waiting.lock().await;
        let mut batch = Vec::new();
        waiting.recv_many(&mut batch, BATCH_MAX).await;
        let mut commands = redis::pipe();
        batch.iter().for_each(|write| add(&mut commands, write));
        let _ = self.cached.link.ask(&commands).await;
    }
}

impl<D: Directory> Directory for Cached<D> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn find<'a>(&'a self, user: &'a str, asker: Asker<'a>) -> Found<'a> {
        Box::pin(async move {
            let found = self.look_up(user, asker).await?;
            self.decoys.lock().note(user, found.as_ref());
            Ok(found)
        })
    }

    fn decoy(&self, user: &str) -> Option<String> {
        let own = self.decoys.lock().of(user).map(|hash| hash.to_string());
        own.or_else(|| self.inner.decoy(user))
    }

    fn fast_hash(&self, user: &str, proof: u64, password: &[u8]) -> Option<[u8; 32]> {
        self.settings.fast.then(|| self.seal.fast_hash(user, proof, password))
    }

    fn remember(&self, user: &str, fast: [u8; 32]) {
        if self.settings.fast && user.len() <= NAME_MAX {
            let seconds = self.settings.fast_ttl;
            let expires = self.clock.wall().after(Duration::from_secs(seconds));
            let value = self.seal.fast(user, &fast, expires);
            self.write(Write { key: self.key(FAST, user), value, seconds, replaces: true });
        }
    }
}

/// Shows no secret.
impl<D: fmt::Debug> fmt::Debug for Cached<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("inner", &self.inner).finish_non_exhaustive()
    }
}
