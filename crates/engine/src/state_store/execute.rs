//! Execution of requests.

use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_core::ids::SessionNumber;
use barid_core::state_store::{
    Answer, Exceeded, Limits, Origin, Outcome, Partition, Request, Requesting, ScanLimits, Set,
    Verdict, Watcher as _,
};
use barid_core::time::WallTime;
use statestore_proto::{Command, Glob, Refusal, Reply, Verb, Version, topics};
use xxhash_rust::xxh3::xxh3_128;

use super::following::Following;
use super::{Envelope, Guest, Notices, StateStore, TOPIC_LEN_MAX, Watched, Watching};
use crate::access::Permissions;
use crate::account::Account;
use crate::durability::Durability;
use crate::faults::{CAN_BREAK, Rule, holds};
use crate::ids::ConnectionId;
use crate::session::SessionRef;

/// Time after which an answer counts as received, if the client has been connected throughout. Its request
/// does not come again, so the answer can be forgotten.
const SETTLED: Duration = Duration::from_secs(30);

/// Maximum number of keys on one page of a SCAN.
const PAGE_KEYS: usize = 1_000;

/// Maximum size of the keys on one page of a SCAN, in bytes. A page with a single key may be larger.
const PAGE_BYTES: usize = 256 * 1024;

/// Approximate number of bytes that a page needs for each key besides the key itself.
const KEY_AROUND: usize = 8;

/// Maximum number of bytes that one SCAN compares in each partition: some 10,000 short keys, which take about
/// a millisecond. Beyond, the page ends and the client continues with a token.
const STEPS: usize = 1_000_000;

/// The client that sent a request.
#[derive(Debug)]
pub struct Requester<'a> {
    /// The tenant.
    pub tenant: &'a Account,
    /// The connection on which the request came.
    pub asker: Asker<'a>,
    /// Time at which the connection began.
    pub since: WallTime,
    /// Whether the session outlives the connection, so that requests may be sent again.
    pub survives: bool,
    /// The permissions of the user; `None`: everything is allowed.
    pub permissions: Option<&'a Permissions>,
    /// The user to whom keys that are set belong, with its limits, if there are users.
    pub user: Option<Requesting<'a>>,
    /// The wall time.
    pub now: WallTime,
    /// The client's Maximum Packet Size, in bytes.
    pub max_packet_size: usize,
    /// The durability classes of the tenant.
    pub durability: &'a Durability,
    /// The quotas of the tenant.
    pub limits: &'a Limits,
    /// The keys that the connection watches.
    pub watched: &'a mut Watched,
}

/// The connection on which a request came.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    /// A connection of this broker.
    Here {
        /// The session of the client.
        session: &'a SessionRef,
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection of another broker.
    Elsewhere(&'a Arc<Guest>),
}

impl Asker<'_> {
    fn client_id(&self) -> &str {
        match self {
            Self::Here { session, .. } => &session.client_id,
            Self::Elsewhere(guest) => &guest.client_id,
        }
    }

    fn watching(&self) -> Watching {
        match *self {
            Self::Here { session, connection } => {
                Watching::Here { session: session.downgrade(), connection }
            }
            Self::Elsewhere(guest) => Watching::Elsewhere(Arc::clone(guest)),
        }
    }

    /// The number under which answers are noted, and whether they are stored.
    fn answered_as(&self) -> (SessionNumber, bool) {
        match self {
            Self::Here { session, .. } => (session.answered_as(), session.durable().is_some()),
            Self::Elsewhere(guest) => (guest.session, guest.is_stored),
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answered {
    /// The verb of the request; `None`: the request cannot be parsed.
    pub verb: Option<Verb>,
    answer: Told,
    /// The version in `__ts`, if the response has one.
    pub version: Option<Version>,
    /// The commits that must be durable before the answer is sent.
    pub after: Commits,
    /// Number of notifications to watchers.
    pub told: usize,
    /// The limit because of which the request was refused.
    pub exceeded: Option<Exceeded>,
}

#[derive(Debug)]
enum Told {
    Answer(Answer),
    Page { keys: Vec<Arc<[u8]>>, next: Option<Vec<u8>> },
}

impl Answered {
    /// Calls `tell` with the reply for the payload of the response.
    pub fn tell<R>(&self, tell: impl FnOnce(&Reply<'_>) -> R) -> R {
        match &self.answer {
            Told::Answer(answer) => tell(&answer.outcome.reply()),
            Told::Page { keys, next } => tell(&Reply::Page {
                keys: keys.iter().map(|key| &**key).collect(),
                next: next.as_deref(),
            }),
        }
    }

    fn refused(verb: Option<Verb>, refusal: Refusal) -> Self {
        Self {
            verb,
            answer: Told::Answer(refusal.into()),
            version: None,
            after: Commits::default(),
            told: 0,
            exceeded: None,
        }
    }
}

/// Why a request was not executed and is not answered either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Another connection has taken the session over, and may have sent the request again already.
    SessionTaken,
    /// The shard of the key is closed, and the request was sent before: it may have been executed then.
    ShardClosed,
}

impl StateStore {
    /// Executes a request. `packet_id` and `repeated` (DUP) are those of the PUBLISH that contains the
    /// request. `follow` is called while the keys are still locked, with the notifications to watchers and
    /// the time of the next expiry. It returns the number of notifications.
    ///
    /// # Errors
    /// The request was not executed, and must not be answered.
    pub fn execute(
        &self,
        requester: &mut Requester<'_>,
        payload: &[u8],
        envelope: &Envelope<'_>,
        (packet_id, repeated): (u16, bool),
        follow: impl FnOnce(Notices, Option<WallTime>) -> usize,
    ) -> Result<Answered, Unanswered> {
        let command = match Command::decode(payload) {
            Ok(command) => command,
            Err(refusal) => return Ok(Answered::refused(None, refusal)),
        };
        let verb = command.verb();
        let Some(key) = command.key() else {
            let Command::Scan { pattern, token } = command else {
                unreachable!("others have a key")
            };
            let after = match token.map(|token| self.cursors.open(token)) {
                None => Vec::new(),
                Some(Some(after)) => after,
                Some(None) => return Ok(Answered::refused(Some(verb), Refusal::Syntax)),
            };
            return Ok(self.scan(requester, pattern, &after));
        };
        if requester.permissions.is_some_and(|own| !own.may_touch(verb, key)) {
            return Ok(Answered::refused(Some(verb), Refusal::NotAuthorized));
        }
        let tenant = requester.tenant;
        let index = tenant.shards.of_key(&tenant.name, key);
        let mut partition = self.partition(index);
        // Checked under the lock of the partition, under which the shard is also closed.
        let shard = tenant.shards.get(index);
        if !shard.is_open() {
            return match repeated {
                true => Err(Unanswered::ShardClosed),
                false => Ok(Answered::refused(Some(verb), Refusal::QuotaExceeded)),
            };
        }
        let mut following = Following::new(&shard, tenant.stored_number());
        // Checked under the lock of the partition: the new connection would execute the repeated request
        // under the same lock.
        let has_session = match requester.asker {
            Asker::Here { session, connection } => session.is_owned_by(connection),
            Asker::Elsewhere(guest) => self.guests.is_last(guest),
        };
        if !has_session {
            return Err(Unanswered::SessionTaken);
        }
        let origin = requester.survives.then(|| requester.origin(packet_id, envelope.correlation));
        let before = origin
            .as_ref()
            .filter(|_| repeated && holds(Rule::AnswerAgain))
            .and_then(|origin| partition.answered(origin));
        let durability = requester.durability;
        let is_stored = || envelope.persist || durability.of_key(key).is_stored();
        let answer = before.unwrap_or_else(|| {
            let request = Request {
                timestamp: envelope.timestamp,
                fencing_token: envelope.fencing_token,
                stored: verb != Verb::Get && is_stored(),
                refuses: shard.refuses(),
                origin,
                user: requester.user,
            };
            self.apply(requester, &mut partition, &command, &request, &mut following)
        });
        let exceeded = partition.take_exceeded();
        let told = follow(following.into_notices(), partition.take_alarm());
        drop(partition);
        let after = answer.after.filter(|_| !CAN_BREAK || holds(rule_of(&answer, is_stored())));
        let after = after.filter(|batch| !shard.is_durable(*batch));
        let after = after.map(|batch| Commits::one(shard.index(), batch)).unwrap_or_default();
        let version = answer.version;
        let answer = Told::Answer(answer);
        Ok(Answered { verb: Some(verb), answer, version, after, told, exceeded })
    }

    fn apply(
        &self,
        requester: &mut Requester<'_>,
        partition: &mut Partition<Watching>,
        command: &Command<'_>,
        request: &Request<'_>,
        following: &mut Following<'_>,
    ) -> Answer {
        let scope = self.scope(requester.limits, requester.now);
        match *command {
            Command::Set { key, value, condition, ttl } => {
                let set = Set { key, value, condition, ttl };
                partition.set(&scope, request, &set, following)
            }
            Command::Get { key } => partition.get(&scope, key, following),
            Command::Del { key } => partition.delete(&scope, request, key, None, following),
            Command::VDel { key, value } => {
                partition.delete(&scope, request, key, Some(value), following)
            }
            Command::KeyNotify { key, stop: false } => {
                let topic = topics::notify_topic(requester.asker.client_id(), key);
                if topic.len() > TOPIC_LEN_MAX {
                    return Refusal::QuotaExceeded.into();
                }
                let answer = partition.watch(&scope, key, requester.asker.watching());
                if answer.outcome.reply() == Reply::Ok {
                    requester.watched.get_or_insert_default().insert(key.into());
                }
                answer
            }
            Command::KeyNotify { key, stop: true } => {
                if let Some(watched) = requester.watched {
                    watched.remove(key);
                }
                partition.unwatch(&self.usage, key, requester.asker.watching().id())
            }
            Command::Scan { .. } => unreachable!("it is about no single key"),
        }
    }

    /// Executes SCAN: returns the keys that the requester may read, in ascending order. Each partition is
    /// read at one moment, but not all partitions at the same moment.
    fn scan(&self, requester: &Requester<'_>, pattern: &[u8], after: &[u8]) -> Answered {
        let pattern = Glob::parse(pattern);
        // Half of the packet is left for lengths and for everything besides the keys.
        let page_bytes = PAGE_BYTES.min(requester.max_packet_size / 2);
        let limits = ScanLimits { steps: STEPS, bytes: page_bytes };
        let shards = &requester.tenant.shards;
        let may_read =
            |key: &[u8]| requester.permissions.is_none_or(|own| own.may_touch(Verb::Scan, key));
        let mut keys = Vec::new();
        let mut commits = Commits::default();
        // Up to this key, all partitions have been searched.
        let mut known_up_to: Option<Arc<[u8]>> = None;
        for index in (0..).take(shards.count()) {
            let partition = self.partition(index);
            let shard = shards.get(index);
            if !shard.is_open() {
                return Answered::refused(Some(Verb::Scan), Refusal::QuotaExceeded);
            }
            let scanned = partition.scan(requester.now, after, &pattern, limits, |key| {
                if may_read(key) {
                    keys.push(Arc::clone(key));
                }
            });
            let scanned = match scanned {
                Ok(scanned) => scanned,
                Err(refusal) => return Answered::refused(Some(Verb::Scan), refusal),
            };
            if let Some(batch) = scanned.after.filter(|batch| !shard.is_durable(*batch)) {
                commits.add(shard.index(), batch);
            }
            if let Some(next) = scanned.next {
                known_up_to = Some(known_up_to.map_or(next.clone(), |known| known.min(next)));
            }
        }
        keys.sort_unstable();
        if let Some(known) = &known_up_to {
            keys.truncate(keys.partition_point(|key| key <= known));
        }
        let mut bytes = 0;
        let fits = |key: &&Arc<[u8]>| {
            bytes += key.len() + KEY_AROUND;
            bytes <= page_bytes
        };
        let page = keys.iter().take(PAGE_KEYS).take_while(fits).count().max(1);
        let next = match keys.get(page) {
            Some(_) => keys.get(page - 1).cloned(),
            None => known_up_to,
        };
        keys.truncate(page);
        let next = next.map(|key| self.cursors.seal(&key));
        let answer = Told::Page { keys, next };
        Answered {
            verb: Some(Verb::Scan),
            answer,
            version: None,
            after: commits,
            told: 0,
            exceeded: None,
        }
    }
}

/// The rule by which an answer waits for its commit.
fn rule_of(answer: &Answer, is_stored: bool) -> Rule {
    match &answer.outcome {
        _ if !is_stored => Rule::TellVersionsWhenNoted,
        Outcome::Value(_) => Rule::TellValuesWhenDurable,
        Outcome::Absent | Outcome::Verdict(Verdict::Nothing) => Rule::TellAbsenceWhenDurable,
        Outcome::Verdict(Verdict::Ok | Verdict::Deleted) => Rule::TellChangesWhenDurable,
        Outcome::Verdict(Verdict::NotApplied | Verdict::Refused(_)) => {
            Rule::TellRefusalsWhenDurable
        }
    }
}

impl Requester<'_> {
    /// Returns what identifies the request if it comes again.
    fn origin(&self, packet_id: u16, correlation: &[u8]) -> Origin {
        let settled = match self.now.before(SETTLED) {
            before if self.since < before => before,
            _ => WallTime::default(),
        };
        let (session, stored) = self.asker.answered_as();
        Origin { session, packet_id, correlation: xxh3_128(correlation), stored, settled }
    }
}
