//! The state store: requests that clients publish, and what follows from them.
//!
//! A PUBLISH to [`topics::INVOKE`] reaches no subscriber. It is executed at once, by the thread that has
//! read it, under the lock of the keys that its key belongs to ([`StateStore`]); what has to survive is
//! noted in the shard of the data directory (`following.rs`). What clients are told of it is for
//! [`state_requests`](crate::state_requests).
//!
//! | file | what is there |
//! | --- | --- |
//! | `envelope.rs` | what a request says besides its command |
//! | `cursor.rs` | where a SCAN goes on |
//! | `execute.rs` | from a command to its answer |
//! | `following.rs` | what follows from a change: what is stored, and who is to be told |
//! | `timings.rs`, `request_times.rs` | how long requests take |

mod cursor;
mod envelope;
mod execute;
mod following;
mod request_times;
mod timings;

pub use envelope::Envelope;
pub use execute::{Requester, Unanswered};
pub use following::{Notice, Notices, Watching};
pub use request_times::RequestTimes;
pub use timings::Timings;

use barid_core::durable::{AnsweredIn, shard_of};
use barid_core::ids::{SessionNumber, ShardIndex};
use barid_core::state_store::{Clock, Limits, Partition, Scope, StateRecord, Usage};
use barid_core::time::WallTime;
use statestore_proto::{Version, topics};

use crate::account::Account;
use crate::limits;
use crate::random::Random;
use crate::sync::{Mutex, MutexGuard};
use cursor::Cursors;
use following::Following;

/// The longest topic (MQTT 5 §1.5.4).
const TOPIC_LEN_MAX: usize = 65_535;

/// The state store of one tenant.
#[derive(Debug)]
pub struct StateStore {
    clock: Clock,
    usage: Usage,
    cursors: Cursors,
    /// One for each shard of the data directory: the keys that belong to it.
    partitions: Box<[Mutex<Partition<Watching>>]>,
}

impl StateStore {
    /// An empty one, over so many shards.
    pub fn new(shards: usize, random: Random) -> Self {
        Self {
            clock: Clock::default(),
            usage: Usage::default(),
            cursors: Cursors::new(random),
            partitions: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// How much of its quota the tenant uses.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The keys that belong to one shard. No session may be locked before.
    pub fn partition(&self, shard: u16) -> MutexGuard<'_, Partition<Watching>> {
        self.partitions[usize::from(shard)].lock()
    }

    fn scope<'a>(&'a self, limits: &'a Limits, now: WallTime) -> Scope<'a> {
        Scope { clock: &self.clock, usage: &self.usage, limits, now }
    }

    /// Puts a key that was found in a store into what is read of its shard.
    pub fn recover(&self, found: &mut Partition<Watching>, key: &[u8], record: StateRecord) {
        self.clock.raise(record.version);
        found.insert(&self.usage, key, record);
    }

    /// A shard is opened, in whose store this was found.
    pub fn open(&self, shard: ShardIndex, found: Partition<Watching>) {
        self.partition(shard).open(&self.usage, found);
    }

    /// A shard is closed: its keys are in its store only, if they are stored. Who watches them goes on.
    pub fn close(&self, shard: ShardIndex) {
        self.partition(shard).close(&self.usage);
    }

    /// What was found in a store is not opened.
    pub fn discard(&self, mut found: Partition<Watching>) {
        found.close(&self.usage);
    }

    /// Whether nothing would be lost with it: it has no keys, and its clock is not ahead of the one on the
    /// wall, so that another one would go on from there.
    pub fn is_void(&self, now: WallTime) -> bool {
        self.usage.keys() == 0 && self.clock.latest().wall < now.as_millis()
    }

    /// No version up to one that was found is given any more.
    pub fn recover_clock(&self, latest: Version) {
        self.clock.raise(latest);
    }

    /// Puts what a request was answered that was found.
    pub fn recover_answered(&self, answered: &AnsweredIn) {
        let AnsweredIn { shard, session, packet_id, record, .. } = *answered;
        self.partition(shard).insert_answered(&self.usage, session, packet_id, record);
    }

    /// A connection has ended, and with it all that it watched.
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

    /// Removes the keys of one partition whose time has come. `follow`: see [`Self::execute`].
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

    /// A shard is opened: whose session belongs to it, and is not among these, has ended while its answers were here.
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

    /// A session has ended: nothing of it can come again.
    pub fn forget_session(&self, tenant: &Account, session: SessionNumber) {
        for shard in tenant.shards.iter() {
            let mut following = Following::new(&shard, tenant.stored_number());
            self.partition(shard.index()).forget_session(&self.usage, session, &mut following);
        }
    }
}

/// Whether a client may subscribe to `filter`, as far as the state store is concerned: requests are for
/// nobody, notifications for whom they are for. Wider filters match none of them, as they are not routed.
pub fn may_subscribe(client_id: &str, filter: &str) -> bool {
    let Some(rest) = filter.strip_prefix(topics::RESERVED) else { return filter != topics::INVOKE };
    let Some(rest) = rest.strip_prefix('/') else { return !rest.is_empty() };
    let own = topics::notify_filter(client_id);
    let own = own.strip_suffix("command/notify/+").expect("that is how it ends");
    // Some SDKs subscribe to this, which matches nothing, and rely on being told nevertheless.
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
