//! The state store: requests that clients publish, and their consequences.
//!
//! A PUBLISH to [`topics::INVOKE`] reaches no subscriber. The thread that has read it executes it at once,
//! while it holds the lock of the partition to which the key belongs ([`StateStore`]). Changes that must
//! survive are noted in the shard of the data directory (`following.rs`). Responses and notifications are
//! sent by [`state_requests`](crate::state_requests).
//!
//! | file | contents |
//! | --- | --- |
//! | `envelope.rs` | the properties of a request |
//! | `cursor.rs` | continuation tokens of SCAN |
//! | `execute.rs` | execution of requests |
//! | `following.rs` | consequences of a change: changes of the store, and notifications |
//! | `guests.rs`, `inquirers.rs` | clients of other brokers; clients of this one that use the state store of another one |
//! | `timings.rs`, `request_times.rs` | latency of requests |

mod cursor;
mod envelope;
mod execute;
mod following;
mod guests;
mod inquirers;
mod request_times;
mod timings;

pub use envelope::Envelope;
pub use execute::{Asker, Requester, Unanswered};
pub use following::{Notice, Notices, Watching};
pub use guests::{Guest, Watched, guest_number};
pub use inquirers::{Inquirer, Inquirers};
pub use request_times::RequestTimes;
pub use timings::Timings;

use barid_core::durable::{AnsweredIn, shard_of};
use barid_core::ids::{SessionNumber, ShardIndex};
use barid_core::state_store::{Clock, Limits, Partition, Scope, StateRecord, Usage};
use barid_core::time::{MonoTime, WallTime};
use statestore_proto::{Version, topics};

use crate::account::Account;
use crate::limits;
use crate::random::Random;
use crate::sync::{Mutex, MutexGuard};
use cursor::Cursors;
use following::Following;
use guests::Guests;

/// Maximum length of a topic, in bytes (MQTT 5 §1.5.4).
const TOPIC_LEN_MAX: usize = 65_535;

/// The state store of one tenant.
#[derive(Debug)]
pub struct StateStore {
    clock: Clock,
    usage: Usage,
    cursors: Cursors,
    /// The keys, in one partition for each shard of the data directory.
    partitions: Box<[Mutex<Partition<Watching>>]>,
    guests: Guests,
}

impl StateStore {
    /// Creates an empty state store over `shards` shards.
    pub fn new(shards: usize, random: Random) -> Self {
        Self {
            clock: Clock::default(),
            usage: Usage::default(),
            cursors: Cursors::new(random),
            partitions: (0..shards).map(|_| Mutex::default()).collect(),
            guests: Guests::default(),
        }
    }

    /// The part of its quota that the tenant uses.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Locks the keys that belong to one shard. The caller must not hold the lock of a session.
    pub fn partition(&self, shard: u16) -> MutexGuard<'_, Partition<Watching>> {
        self.partitions[usize::from(shard)].lock()
    }

    fn scope<'a>(&'a self, limits: &'a Limits, now: WallTime) -> Scope<'a> {
        Scope { clock: &self.clock, usage: &self.usage, limits, now }
    }

    /// Inserts a key that was read from a store into the partition that is being recovered.
    pub fn recover(&self, found: &mut Partition<Watching>, key: &[u8], record: StateRecord) {
        self.clock.raise(record.version);
        found.insert(&self.usage, key, record);
    }

    /// Fills the partition of a shard that is being opened with the keys `found` in its store.
    pub fn open(&self, shard: ShardIndex, found: Partition<Watching>) {
        self.partition(shard).open(&self.usage, found);
    }

    /// Clears the partition of a shard that is being closed: the keys that are stored are in its store only.
    /// Watches go on.
    pub fn close(&self, shard: ShardIndex) {
        self.partition(shard).close(&self.usage);
    }

    /// Gives back the quota of the keys `found` in a store, if they are not to be [opened](Self::open) after
    /// all.
    pub fn discard(&self, mut found: Partition<Watching>) {
        found.close(&self.usage);
    }

    /// Whether the state store can be removed without loss: it has no keys, and its clock is not ahead of the
    /// wall clock, so that the clock of a new state store would not go back. Clients of other brokers, which have no session
    /// here, watch nothing, and have no answer to a request that they may send again.
    pub fn is_void(&self, now: MonoTime, wall: WallTime) -> bool {
        self.usage.keys() == 0
            && self.usage.answers() == 0
            && self.usage.watchers() == 0
            && self.guests.are_gone(now)
            && self.clock.latest().wall < wall.as_millis()
    }

    /// Raises the clock to a version that was read from a store: no version up to `latest` is assigned from
    /// now on.
    pub fn recover_clock(&self, latest: Version) {
        self.clock.raise(latest);
    }

    /// Inserts an answer that was read from a store.
    pub fn recover_answered(&self, answered: &AnsweredIn) {
        let AnsweredIn { shard, session, packet_id, record, .. } = *answered;
        self.partition(shard).insert_answered(&self.usage, session, packet_id, record);
    }

    /// Takes over a watch, together with the key.
    pub(crate) fn adopt_watch(&self, tenant: &Account, watching: Watching, key: &[u8]) {
        let shard = tenant.shards.of_key(&tenant.name, key);
        let scope = self.scope(&Limits::UNBOUNDED, WallTime::default());
        self.partition(shard).watch(&scope, key, watching);
    }

    /// Ends the watches of a connection that has ended. `keys` are the keys that it watched.
    pub fn forget_watcher<'k>(
        &self,
        tenant: &Account,
        connection: u64,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        for key in keys {
            let shard = tenant.shards.of_key(&tenant.name, key);
            self.partition(shard).forget_watcher(&self.usage, connection, [key]);
        }
    }

    /// Removes the expired keys of one partition. For `follow`, see [`Self::execute`].
    pub fn expire(
        &self,
        tenant: &Account,
        shard: u16,
        now: WallTime,
        follow: impl FnOnce(Notices, Option<WallTime>),
    ) {
        let limits = Limits::UNBOUNDED;
        let scope = self.scope(&limits, now);
        let mut partition = self.partition(shard);
        let shard = tenant.shards.get(shard);
        let mut following = Following::new(&shard, tenant.stored_number());
        partition.expire(&scope, &mut following);
        follow(following.into_notices(), partition.take_alarm());
    }

    /// Forgets the answers to sessions that have ended but whose answers are still in a partition. To be
    /// called when the shard `home` is opened; `lives` returns whether one of its sessions exists.
    pub fn forget_ended(
        &self,
        tenant: &Account,
        home: ShardIndex,
        lives: impl Fn(SessionNumber) -> bool,
    ) {
        let mut ended = Vec::new();
        for partition in &self.partitions {
            let partition = partition.lock();
            let of_home =
                partition.answered_sessions().filter(|session| shard_of(*session) == home);
            ended.extend(of_home.filter(|session| !lives(*session)));
        }
        ended.sort_unstable();
        ended.dedup();
        ended.into_iter().for_each(|session| self.forget_session(tenant, session));
    }

    /// Gives the answers of a session the number under which it is known from now on: it is moved to another broker.
    pub fn rename_session(&self, tenant: &Account, from: SessionNumber, to: SessionNumber) {
        for shard in tenant.shards.iter() {
            let mut following = Following::new(&shard, tenant.stored_number());
            self.partition(shard.index()).rename_session(from, to, &mut following);
        }
    }

    /// Forgets the answers to a session that has ended: none of its requests can come again.
    pub fn forget_session(&self, tenant: &Account, session: SessionNumber) {
        for shard in tenant.shards.iter() {
            let mut following = Following::new(&shard, tenant.stored_number());
            self.partition(shard.index()).forget_session(&self.usage, session, &mut following);
        }
    }
}

/// Whether the state store allows a client to subscribe to `filter`. Nobody may subscribe to requests, and a
/// client may subscribe only to its own notifications. Wider filters need no check: requests and
/// notifications are not routed, so such filters do not match them.
pub fn may_subscribe(client_id: &str, filter: &str) -> bool {
    let Some(rest) = filter.strip_prefix(topics::RESERVED) else { return filter != topics::INVOKE };
    let Some(rest) = rest.strip_prefix('/') else { return !rest.is_empty() };
    let own = topics::notify_filter(client_id);
    let own = own.strip_suffix("command/notify/+").expect("that is how it ends");
    // Some SDKs subscribe to `…/command/notify`, which matches nothing, and expect notifications
    // nevertheless.
    filter.starts_with(own) || rest.strip_prefix(client_id) == Some("/command/notify")
}

impl From<&limits::Limits> for Limits {
    fn from(limits: &limits::Limits) -> Self {
        Self {
            keys: limits.max_state_keys as u64,
            bytes: limits.max_state_bytes as u64,
            value_bytes: limits.max_state_value as u64,
            watchers: limits.max_state_watchers as u64,
        }
    }
}
