//! Random histories of commands and crashes, compared with plain maps and the rules of the
//! protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use barid_core::holder::{Held, Holder};
use barid_core::ids::{PacketId, SessionNumber};
use barid_core::state_store::{
    Answer, Clock, ENTRY_BYTES, Effects, Limits, Origin, Outcome, Partition, Request, Requesting,
    ScanLimits, Scope, Set, Usage, Verdict,
};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_core::time::WallTime;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_proto::{Condition, Glob, Hlc, Notification, Refusal, Version};

use crate::script::Connection;

const KEYS: [&str; 3] = ["a", "b", "lock"];
const VALUES: [&str; 3] = ["", "v", "longer"];
const NODES: [&str; 2] = ["c", "d"];
const LIMITS: Limits =
    Limits { keys: 2, bytes: 4 * ENTRY_BYTES + 15, value_bytes: 1_000, watchers: 3 };

const USERS: [&str; 2] = ["ada", "bob"];
/// Maximum number of keys of a user, and of their bytes.
const OF_USER: (u64, u64) = (1, ENTRY_BYTES + 9);

/// A request to the store, and its sender.
#[derive(Clone, Debug)]
struct Asked {
    command: Command,
    key: usize,
    /// Offset of the wall clock from the present, counter and node.
    timestamp: Option<(i64, u32, usize)>,
    token: Option<(i64, u32, usize)>,
    stored: bool,
    refuses: bool,
    /// The user.
    by: Option<usize>,
    /// Session, packet identifier, and whether the session is stored. The number of the request is
    /// its correlation.
    from: Option<(u64, u16, bool)>,
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Set(usize, Condition, Option<u64>),
    Get,
    Del,
    VDel(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Asked),
    /// Sends a request again.
    Again(usize),
    Watch(u64, usize),
    Stop(u64, usize),
    Pass(u64),
    Expire,
    Commit,
    Forget(u64),
    Crash,
}

fn reading() -> impl Strategy<Value = (i64, u32, usize)> {
    (select(&[-5_000, -3, 0, 2, 60_000, 60_001][..]), 0..3_u32, 0..NODES.len())
}

fn asked() -> impl Strategy<Value = Asked> {
    let condition =
        select(&[Condition::Always, Condition::IfAbsent, Condition::IfAbsentOrEqual][..]);
    let value = || 0..VALUES.len();
    let command = prop_oneof![
        6 => (value(), condition, option::of(1..20_u64))
            .prop_map(|(value, condition, ttl)| Command::Set(value, condition, ttl)),
        2 => Just(Command::Get),
        1 => Just(Command::Del),
        2 => value().prop_map(Command::VDel),
    ];
    let mostly = |odds: f64| proptest::bool::weighted(odds);
    let from = option::of((1..3_u64, 1..4_u16, mostly(0.8)));
    (
        command,
        0..KEYS.len(),
        option::weighted(0.95, reading()),
        option::weighted(0.2, reading()),
        mostly(0.7),
        mostly(0.05),
        option::of(0..USERS.len()),
        from,
    )
        .prop_map(|(command, key, timestamp, token, stored, refuses, by, from)| Asked {
            command,
            key,
            timestamp,
            token,
            stored,
            refuses,
            by,
            from,
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS.len();
    vec(
        prop_oneof![
            20 => asked().prop_map(Step::Ask),
            3 => any::<usize>().prop_map(Step::Again),
            2 => (7..9_u64, key()).prop_map(|(id, key)| Step::Watch(id, key)),
            1 => (7..9_u64, key()).prop_map(|(id, key)| Step::Stop(id, key)),
            5 => (1..8_u64).prop_map(Step::Pass),
            2 => Just(Step::Expire),
            3 => Just(Step::Commit),
            1 => (1..3_u64).prop_map(Step::Forget),
            1 => Just(Step::Crash),
        ],
        1..80,
    )
}

/// A notification of a watcher: its id, key, value and version.
type Told = (u64, String, Option<String>, Version);

/// Effects that keep the stored records, and the notifications.
#[derive(Default)]
struct Kept {
    batch: u64,
    keys: BTreeMap<Arc<[u8]>, StateRecord>,
    clock: Version,
    answers: BTreeMap<(SessionNumber, PacketId), AnsweredRecord>,
    told: Vec<Told>,
}

impl Effects<Connection> for Kept {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        self.keys.insert(Arc::clone(key), record);
        self.batch
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        assert!(self.keys.remove(key).is_some(), "only what was put is removed");
        self.batch
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        assert!(version > self.clock, "the clock goes forward");
        self.clock = version;
        self.batch
    }

    fn put_answered(&mut self, of: SessionNumber, id: PacketId, record: AnsweredRecord) -> u64 {
        self.answers.insert((of, id), record);
        self.batch
    }

    fn remove_answered(&mut self, of: SessionNumber, id: PacketId) {
        assert!(self.answers.remove(&(of, id)).is_some(), "only what was put is removed");
    }

    fn notify(
        &mut self,
        watchers: &[Connection],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        _: Option<u64>,
    ) {
        let value = match notification {
            Notification::Set(value) => Some(text(value)),
            Notification::Delete => None,
        };
        let told = |watcher: &Connection| (watcher.0, text(key), value.clone(), version);
        self.told.extend(watchers.iter().map(told));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A key in plain types.
#[derive(Clone, Debug)]
struct Plain {
    value: String,
    version: Version,
    token: Option<(u64, u32, String)>,
    until: Option<u64>,
    /// The user to whom the key belongs.
    user: Option<usize>,
    stored: bool,
    /// The batch to wait for; `None` if the key was recovered after a crash.
    batch: Option<u64>,
}

impl Plain {
    fn size(&self, key: &str) -> u64 {
        let token = self.token.as_ref().map_or(0, |(_, _, node)| node.len());
        let user = self.user.map_or(0, |user| USERS[user].len());
        ENTRY_BYTES + (key.len() + self.value.len() + token + user) as u64
    }
}

fn watching_size(key: &str) -> u64 {
    ENTRY_BYTES + key.len() as u64
}

/// An answer in plain types.
type Spoken = (Result<Said, Refusal>, Option<Version>);

#[derive(Clone, Debug, PartialEq)]
enum Said {
    Ok,
    NotApplied,
    Deleted,
    Nothing,
    Absent,
    Value(String),
}

fn spoken(answer: &Answer) -> Spoken {
    let said = match &answer.outcome {
        Outcome::Value(value) => Ok(Said::Value(text(value))),
        Outcome::Absent => Ok(Said::Absent),
        Outcome::Verdict(Verdict::Ok) => Ok(Said::Ok),
        Outcome::Verdict(Verdict::NotApplied) => Ok(Said::NotApplied),
        Outcome::Verdict(Verdict::Deleted) => Ok(Said::Deleted),
        Outcome::Verdict(Verdict::Nothing) => Ok(Said::Nothing),
        Outcome::Verdict(Verdict::Refused(refusal)) => Err(*refusal),
    };
    (said, answer.version)
}

/// A model of the rules, and the store itself.
struct World {
    now: u64,
    keys: BTreeMap<&'static str, Plain>,
    clock: (u64, u32),
    /// Sorted by connection.
    watchers: Vec<(u64, &'static str)>,
    told: Vec<Told>,
    expired: u64,
    /// Answers by session and packet identifier: the number of the request, the answer, and whether
    /// it survives a crash.
    answered: BTreeMap<(u64, u16), (u128, Spoken, bool)>,
    /// All requests that can be sent again.
    asked: Vec<(Origin, Asked)>,

    partition: Partition<Connection>,
    store_clock: Clock,
    usage: Usage,
    users: [Arc<Holder>; USERS.len()],
    kept: Kept,
}

impl World {
    fn new() -> Self {
        Self {
            now: 100_000,
            keys: BTreeMap::new(),
            clock: (0, 0),
            watchers: Vec::new(),
            told: Vec::new(),
            expired: 0,
            answered: BTreeMap::new(),
            asked: Vec::new(),
            partition: Partition::default(),
            store_clock: Clock::default(),
            usage: Usage::default(),
            users: users(),
            kept: Kept { batch: 1, ..Kept::default() },
        }
    }

    /// Advances the clock by the rule by which a hybrid logical clock receives.
    fn tick(&mut self, received: Option<(u64, u32)>) -> Version {
        let (l, c) = self.clock;
        let (rw, rc) = received.unwrap_or((0, 0));
        let m = self.now.max(l).max(rw);
        let counter = match (m == l, received.is_some() && m == rw) {
            (true, true) => c.max(rc) + 1,
            (true, false) => c + 1,
            (false, true) => rc + 1,
            (false, false) => 0,
        };
        self.clock = (m, counter);
        Version { wall: m, counter }
    }

    fn tell(&mut self, key: &'static str, value: Option<&str>, version: Version) {
        for (id, _) in self.watchers.iter().filter(|(_, watched)| *watched == key) {
            self.told.push((*id, key.into(), value.map(str::to_owned), version));
        }
    }

    fn delete(&mut self, key: &'static str) -> Version {
        let version = self.tick(None);
        self.keys.remove(key);
        self.tell(key, None, version);
        version
    }

    fn expire(&mut self, key: &'static str) {
        let expired = |plain: &Plain| plain.until.is_some_and(|until| until <= self.now);
        if self.keys.get(key).is_some_and(expired) {
            self.delete(key);
            self.expired += 1;
        }
    }

    fn at(&self, (offset, counter, node): (i64, u32, usize)) -> (u64, u32, String) {
        (self.now.saturating_add_signed(offset), counter, NODES[node].into())
    }

    /// The bytes that count against the quota.
    fn bytes(&self) -> u64 {
        let keys = self.keys.iter().map(|(key, plain)| plain.size(key));
        let watched = self.watchers.iter().map(|(_, key)| watching_size(key));
        keys.chain(watched).sum()
    }

    /// Number and bytes of the keys that belong to a user.
    fn held(&self, user: usize) -> (u64, u64) {
        let held = self.keys.iter().filter(|(_, plain)| plain.user == Some(user));
        held.fold((0, 0), |(keys, bytes), (key, plain)| (keys + 1, bytes + plain.size(key)))
    }

    /// Checks a fencing token by the rules.
    fn check_token(&self, asked: &Asked) -> Result<(), Refusal> {
        let token = asked.token.map(|token| self.at(token));
        if token.as_ref().is_some_and(|token| token.0 > self.now + 60_000) {
            return Err(Refusal::FencingTokenInFuture);
        }
        let protects = self.keys.get(KEYS[asked.key]).and_then(|plain| plain.token.clone());
        match (token, protects) {
            (None, Some(_)) => Err(Refusal::FencingTokenRequired),
            (Some(token), Some(protects)) if token < protects => Err(Refusal::FencingTokenTooOld),
            _ => Ok(()),
        }
    }

    /// Returns the answer that the rules require.
    fn rules(&mut self, asked: &Asked) -> Spoken {
        let key = KEYS[asked.key];
        self.expire(key);
        let found = self.keys.get(key).cloned();
        let (value, condition, ttl) = match asked.command {
            Command::Get => {
                return match found {
                    Some(plain) => (Ok(Said::Value(plain.value)), Some(plain.version)),
                    None => (Ok(Said::Absent), None),
                };
            }
            Command::Del | Command::VDel(_) => {
                if let Err(refusal) = self.check_token(asked) {
                    return (Err(refusal), None);
                }
                let Some(plain) = found else { return (Ok(Said::Nothing), None) };
                if matches!(asked.command, Command::VDel(value) if VALUES[value] != plain.value) {
                    return (Ok(Said::NotApplied), Some(plain.version));
                }
                return (Ok(Said::Deleted), Some(self.delete(key)));
            }
            Command::Set(value, condition, ttl) => (VALUES[value].to_owned(), condition, ttl),
        };
        let Some(timestamp) = asked.timestamp.map(|timestamp| self.at(timestamp)) else {
            return (Err(Refusal::MissingTimestamp), None);
        };
        if timestamp.0 > self.now + 60_000 {
            return (Err(Refusal::TimestampInFuture), None);
        }
        if let Err(refusal) = self.check_token(asked) {
            return (Err(refusal), None);
        }
        if let Some(plain) = &found {
            let applies = condition == Condition::Always
                || condition == Condition::IfAbsentOrEqual && plain.value == value;
            if !applies {
                return (Ok(Said::NotApplied), Some(plain.version));
            }
        }
        let stored = asked.stored || found.as_ref().is_some_and(|plain| plain.stored);
        let mut plain = Plain {
            value: value.clone(),
            version: Version::default(),
            token: asked.token.map(|token| self.at(token)),
            until: ttl.map(|ttl| self.now + ttl),
            user: asked.by,
            stored,
            batch: Some(self.kept.batch),
        };
        let used = self.bytes();
        let before = found.as_ref().map_or(0, |plain| plain.size(key));
        let grows = plain.size(key) > before;
        if stored && asked.refuses
            || found.is_none() && self.keys.len() as u64 == LIMITS.keys
            || grows && used - before + plain.size(key) > LIMITS.bytes
        {
            return (Err(Refusal::QuotaExceeded), None);
        }
        if let Some(user) = asked.by {
            let (keys, bytes) = self.held(user);
            let (had, before) = match &found {
                Some(plain) if plain.user == asked.by => (1, before),
                _ => (0, 0),
            };
            let grows = plain.size(key) > before;
            if had == 0 && keys == OF_USER.0
                || grows && bytes - before + plain.size(key) > OF_USER.1
            {
                return (Err(Refusal::QuotaExceeded), None);
            }
        }
        plain.version = self.tick(Some((timestamp.0, timestamp.1)));
        let version = plain.version;
        assert!(version > Version { wall: timestamp.0, counter: timestamp.1 });
        self.keys.insert(key, plain);
        self.tell(key, Some(&value), version);
        (Ok(Said::Ok), Some(version))
    }

    /// Returns the answer of the store.
    fn store(&mut self, asked: &Asked, origin: Option<Origin>) -> Answer {
        let written = |reading: (u64, u32, String)| {
            Hlc { wall: reading.0, counter: reading.1, node: &reading.2 }.to_string()
        };
        let timestamp = asked.timestamp.map(|timestamp| written(self.at(timestamp)));
        let token = asked.token.map(|token| written(self.at(token)));
        let user = asked.by.map(|user| Arc::clone(&self.users[user]));
        let request = Request {
            timestamp: timestamp.as_deref(),
            fencing_token: token.as_deref(),
            stored: asked.stored,
            refuses: asked.refuses,
            origin,
            user: user.as_ref().map(|holder| Requesting {
                holder,
                keys: OF_USER.0,
                bytes: OF_USER.1,
            }),
        };
        let Self { partition, kept, store_clock: clock, usage, .. } = self;
        let now = WallTime::from_millis(self.now);
        let scope = Scope { clock, usage, limits: &LIMITS, now };
        let key = KEYS[asked.key].as_bytes();
        match asked.command {
            Command::Set(value, condition, ttl) => {
                let (value, ttl) = (VALUES[value].as_bytes(), ttl.and_then(NonZeroU64::new));
                let set = Set { key, value, condition, ttl };
                partition.set(&scope, &request, &set, kept)
            }
            Command::Get => partition.get(&scope, key, kept),
            Command::Del => partition.delete(&scope, &request, key, None, kept),
            Command::VDel(value) => {
                partition.delete(&scope, &request, key, Some(VALUES[value].as_bytes()), kept)
            }
        }
    }

    fn ask(&mut self, asked: &Asked, origin: Option<Origin>) {
        let key = KEYS[asked.key];
        let by_rules = self.rules(asked);
        let answer = self.store(asked, origin);
        assert_eq!(spoken(&answer), by_rules, "{asked:?}");
        if let (Command::Get, Some(plain)) = (asked.command, self.keys.get(key))
            && plain.stored
        {
            assert_eq!(answer.after, plain.batch, "who is told of a value waits for it");
        }
        let is_final =
            matches!(by_rules.0, Err(Refusal::MissingTimestamp | Refusal::MalformedTimestamp));
        if let (Some(origin), false, false) =
            (origin, matches!(asked.command, Command::Get), is_final)
        {
            let note = self.kept.answers.get(&(origin.session, origin.packet_id));
            let stored = note.is_some_and(|note| note.correlation == origin.correlation);
            assert!(!stored || origin.stored);
            let of_stored = self.keys.get(key).is_some_and(|plain| plain.stored);
            let is_turned_away = asked.refuses && by_rules.0 == Err(Refusal::QuotaExceeded);
            assert!(stored || !origin.stored || !(of_stored || asked.stored) || is_turned_away);
            let known = (origin.correlation, by_rules, stored);
            self.answered.insert((origin.session, origin.packet_id), known);
        }
    }

    fn apply(&mut self, step: &Step) {
        let now = WallTime::from_millis(self.now);
        match step {
            Step::Ask(asked) => {
                let correlation = self.asked.len() as u128;
                let origin = asked.from.map(|(session, packet_id, stored)| Origin {
                    session,
                    packet_id,
                    correlation,
                    stored,
                    settled: WallTime::default(),
                });
                self.ask(asked, origin);
                if let Some(origin) = origin {
                    self.asked.push((origin, asked.clone()));
                }
            }
            Step::Again(which) if !self.asked.is_empty() => {
                let (origin, asked) = self.asked[which % self.asked.len()].clone();
                let known = self.answered.get(&(origin.session, origin.packet_id));
                let known = known.filter(|(number, ..)| *number == origin.correlation);
                let answer = self.partition.answered(&origin);
                assert_eq!(answer.as_ref().map(spoken), known.map(|(_, spoken, _)| spoken.clone()));
                if answer.is_none() {
                    self.ask(&asked, Some(origin));
                }
            }
            Step::Again(_) => {}
            Step::Watch(id, key) => {
                let (clock, usage) = (&self.store_clock, &self.usage);
                let scope = Scope { clock, usage, limits: &LIMITS, now };
                let answer = self.partition.watch(&scope, KEYS[*key].as_bytes(), Connection(*id));
                let watching = (*id, KEYS[*key]);
                let watches = self.watchers.contains(&watching);
                let has_room = (self.watchers.len() as u64) < LIMITS.watchers
                    && self.bytes() + watching_size(KEYS[*key]) <= LIMITS.bytes;
                let may = watches || has_room;
                assert_eq!(spoken(&answer).0.is_ok(), may);
                if may && !watches {
                    self.watchers.push(watching);
                    // Watchers are told in the order of their connections.
                    self.watchers.sort_unstable();
                }
            }
            Step::Stop(id, key) => {
                let answer = self.partition.unwatch(&self.usage, KEYS[*key].as_bytes(), *id);
                let before = self.watchers.len();
                self.watchers.retain(|watching| *watching != (*id, KEYS[*key]));
                let watched = self.watchers.len() < before;
                let said = if watched { Said::Ok } else { Said::Nothing };
                assert_eq!(spoken(&answer), (Ok(said), None));
            }
            Step::Pass(millis) => self.now += millis,
            Step::Expire => {
                let due = |(key, plain): (&&'static str, &Plain)| Some((plain.until?, *key));
                let due: BTreeSet<_> = self.keys.iter().filter_map(due).collect();
                due.iter().for_each(|(_, key)| self.expire(key));
                let (clock, usage) = (&self.store_clock, &self.usage);
                let scope = Scope { clock, usage, limits: &LIMITS, now };
                self.partition.expire(&scope, &mut self.kept);
            }
            Step::Commit => self.kept.batch += 1,
            Step::Forget(session) => {
                self.answered.retain(|(of, _), _| of != session);
                self.partition.forget_session(&self.usage, *session, &mut self.kept);
                assert!(!self.kept.answers.keys().any(|(of, _)| of == session));
            }
            Step::Crash => self.crash(),
        }
        self.compare();
    }

    /// Ends the process when everything is durable, and starts another one from the stored records.
    fn crash(&mut self) {
        self.now += 1;
        self.keys.retain(|_, plain| plain.stored);
        self.keys.values_mut().for_each(|plain| plain.batch = None);
        self.watchers.clear();
        self.expired = 0;
        self.answered.retain(|_, (.., stored)| *stored);
        self.clock = (self.kept.clock.wall, self.kept.clock.counter);
        (self.usage, self.store_clock) = Default::default();
        self.users = users();
        self.partition = Partition::default();
        self.store_clock.raise(self.kept.clock);
        for (key, record) in &self.kept.keys {
            let known = |holder: &Holder| USERS.iter().position(|name| *name == holder.name());
            let user = record.holder.as_deref().and_then(known);
            let holder = user.map(|user| Arc::clone(&self.users[user]));
            self.partition.insert(&self.usage, key, StateRecord { holder, ..record.clone() });
        }
        for ((session, packet_id), record) in &self.kept.answers {
            self.partition.insert_answered(&self.usage, *session, *packet_id, *record);
        }
        self.kept.batch = 1;
    }

    fn compare(&mut self) {
        assert_eq!(std::mem::take(&mut self.kept.told), std::mem::take(&mut self.told));
        assert_eq!(
            self.store_clock.latest(),
            Version { wall: self.clock.0, counter: self.clock.1 }
        );
        assert_eq!(self.usage.keys(), self.keys.len() as u64);
        assert_eq!(self.usage.bytes(), self.bytes());
        for (user, holder) in self.users.iter().enumerate() {
            let held = (holder.held(Held::StateKeys), holder.held(Held::StateBytes));
            assert_eq!(held, self.held(user), "{}", USERS[user]);
        }
        assert_eq!(self.usage.watchers(), self.watchers.len() as u64);
        assert_eq!(self.usage.answers(), self.answered.len() as u64);
        assert_eq!(self.usage.expired(), self.expired);
        let stored = self.keys.iter().filter(|(_, plain)| plain.stored);
        let kept = self.kept.keys.iter().map(|(key, record)| (text(key), record));
        for ((key, plain), (kept_key, record)) in stored.clone().zip(kept) {
            assert_eq!((*key, plain.version), (kept_key.as_str(), record.version));
            assert_eq!((&plain.value, plain.until), (&text(&record.value), millis(record)));
            let user = record.holder.as_deref().map(Holder::name);
            assert_eq!(user, plain.user.map(|user| USERS[user]));
            let token = record.fencing_token.as_ref().map(|token| token.as_hlc());
            let token = token.map(|token| (token.wall, token.counter, token.node.to_owned()));
            assert_eq!(plain.token, token);
        }
        assert_eq!(stored.count(), self.kept.keys.len());
        let now = WallTime::from_millis(self.now);
        let living =
            self.keys.iter().filter(|(_, plain)| plain.until.is_none_or(|at| at > self.now));
        let living: Vec<String> = living.map(|(key, _)| (*key).into()).collect();
        let limits = ScanLimits { steps: usize::MAX, bytes: usize::MAX };
        let mut scanned = Vec::new();
        let visit = |key: &Arc<[u8]>| scanned.push(text(key));
        self.partition.scan(now, b"", &Glob::parse(b"*"), limits, visit).unwrap();
        assert_eq!(scanned, living);
        let seen: Vec<_> =
            self.partition.entries(now, b"", b"").map(|view| text(view.key)).collect();
        assert_eq!(seen, living);
        for key in KEYS {
            let view = self.partition.entry(now, key.as_bytes());
            assert_eq!(view.is_some(), living.iter().any(|living| living == key));
            let version = self.keys.get(key).map(|plain| plain.version);
            assert!(view.is_none_or(|view| Some(view.version) == version));
        }
    }
}

fn users() -> [Arc<Holder>; USERS.len()] {
    USERS.map(|name| Arc::new(Holder::new(name)))
}

fn millis(record: &StateRecord) -> Option<u64> {
    record.expires_at.map(WallTime::as_millis)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn a_partition_does_what_the_rules_say(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
        }
    }
}
