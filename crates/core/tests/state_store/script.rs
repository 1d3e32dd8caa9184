//! Scripts: a command in each line, and after `=>` its answer and its consequences.
//!
//! | line | |
//! | --- | --- |
//! | `at 1000` | sets the wall clock |
//! | `batch` | the shard takes its batch, and the next one begins |
//! | `limit keys=1 bytes=… value=… watchers=…` | sets the quota |
//! | `SET key value [NX] [NEX] [PX=ms] [request]`, `GET key`, `DEL key [request]`, `VDEL key value [request]` | |
//! | `WATCH id key`, `STOP id key`, `GONE id key…` | a watcher begins, stops, or disconnects |
//! | `DUP session/packet/correlation` | shows the kept answer to a request |
//! | `FORGET session` | |
//! | `EXPIRE`, `ALARM` | |
//! | `SCAN pattern [after=key] [steps=n] [bytes=n]` | |
//! | `USED` | keys, bytes beyond those of each key and watcher, watchers |
//!
//! A request is `ts=…` (in the past if it is left out, none if it is `-`), `ft=…`, `memory`, `refuses`
//! and `from=session/packet/correlation`, with `volatile` if the session is not stored.
//!
//! An answer is its outcome, its version, and `^` with the batch that it waits for. The consequences are `put`,
//! `remove`, `clock`, `note`, `unnote` and `tell`.

use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::sync::Arc;

use barid_core::ids::{PacketId, SessionNumber};
use barid_core::state_store::{
    Answer, Clock, ENTRY_BYTES, Effects, Limits, Origin, Outcome, Partition, Request, ScanLimits,
    Scope, Set, Usage, Verdict, Watcher,
};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_core::time::WallTime;
use statestore_proto::{Condition, Glob, Notification, Version};

/// Runs a script and compares its results.
#[track_caller]
pub fn check(script: &str) {
    let mut store = Store::default();
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    let (mut expected, mut found) = (String::new(), String::new());
    for line in lines {
        let (command, answer) = line.split_once("=>").unwrap_or((line, ""));
        let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = command.trim();
        let got = store.run(command);
        writeln!(expected, "{command} => {answer}").unwrap();
        writeln!(found, "{command} => {got}").unwrap();
    }
    assert!(expected == found, "expected:\n{expected}\nfound:\n{found}");
}

/// A watcher with its id.
#[derive(Clone, Debug)]
pub struct Connection(pub u64);

impl Watcher for Connection {
    fn id(&self) -> u64 {
        self.0
    }
}

/// Effects that record the consequences in words.
#[derive(Default)]
struct Followed {
    batch: u64,
    words: Vec<String>,
}

impl Followed {
    fn note(&mut self, words: String) -> u64 {
        self.words.push(words);
        self.batch
    }
}

impl Effects<Connection> for Followed {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        let mut words = format!("put {}={}", text(key), text(&record.value));
        if let Some(token) = &record.fencing_token {
            let token = token.as_hlc();
            write!(words, " ft={}:{}:{}", token.wall, token.counter, token.node).unwrap();
        }
        if let Some(at) = record.expires_at {
            write!(words, " until={}", at.as_millis()).unwrap();
        }
        self.note(words)
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        self.note(format!("remove {}", text(key)))
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        self.note(format!("clock {}", short(version)))
    }

    fn put_answered(&mut self, of: SessionNumber, id: PacketId, record: AnsweredRecord) -> u64 {
        self.note(format!("note {of}/{id}/{}", record.correlation))
    }

    fn remove_answered(&mut self, of: SessionNumber, id: PacketId) {
        self.note(format!("unnote {of}/{id}"));
    }

    fn notify(
        &mut self,
        watchers: &[Connection],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
    ) {
        let ids: Vec<_> = watchers.iter().map(|watcher| watcher.0.to_string()).collect();
        let what = match notification {
            Notification::Set(value) => format!("SET {}", text(value)),
            Notification::Delete => "DELETE".into(),
        };
        let after = after.map_or(String::new(), |batch| format!(" ^{batch}"));
        let (ids, key) = (ids.join(","), text(key));
        self.note(format!("tell {ids} {key} {what} {}{after}", short(version)));
    }
}

struct Store {
    partition: Partition<Connection>,
    clock: Clock,
    usage: Usage,
    limits: Limits,
    now: WallTime,
    followed: Followed,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            partition: Partition::default(),
            clock: Clock::default(),
            usage: Usage::default(),
            limits: Limits::UNBOUNDED,
            now: WallTime::default(),
            followed: Followed { batch: 1, ..Followed::default() },
        }
    }
}

/// The options of a line.
struct Options<'a>(Vec<&'a str>);

impl<'a> Options<'a> {
    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name).map(|value| value.parse().unwrap())
    }

    fn request(&self) -> Request<'a> {
        let origin =
            self.value("from").map(|text| Origin { stored: !self.has("volatile"), ..origin(text) });
        Request {
            timestamp: Some(self.value("ts").unwrap_or("0:0:c")).filter(|text| *text != "-"),
            fencing_token: self.value("ft"),
            stored: !self.has("memory"),
            refuses: self.has("refuses"),
            origin,
            user: None,
        }
    }
}

impl Store {
    /// Executes a line, and returns the result in words.
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let options = Options(words.clone());
        let Self { partition, clock, usage, limits, now, followed } = self;
        let word = |at: usize| words[at];
        let key = |at: usize| words[at].as_bytes();
        let id = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "at" => {
                *now = WallTime::from_millis(id(1));
                return String::new();
            }
            "batch" => {
                followed.batch += 1;
                return String::new();
            }
            "limit" => {
                let unbounded = Limits::UNBOUNDED;
                *limits = Limits {
                    keys: options.number("keys").unwrap_or(unbounded.keys),
                    bytes: options.number("bytes").unwrap_or(unbounded.bytes),
                    value_bytes: options.number("value").unwrap_or(unbounded.value_bytes),
                    watchers: options.number("watchers").unwrap_or(unbounded.watchers),
                };
                return String::new();
            }
            "USED" => {
                let bytes = usage.bytes() - ENTRY_BYTES * (usage.keys() + usage.watchers());
                return format!("{} {bytes} {}", usage.keys(), usage.watchers());
            }
            "ALARM" => {
                return partition.take_alarm().map_or("-".into(), |at| at.as_millis().to_string());
            }
            "SCAN" => {
                let most =
                    |name| options.number(name).map_or(usize::MAX, |n| n.try_into().unwrap());
                let limits = ScanLimits { steps: most("steps"), bytes: most("bytes") };
                let after = options.value("after").unwrap_or("").as_bytes();
                let mut found = Vec::new();
                let scanned = partition.scan(*now, after, &Glob::parse(key(1)), limits, |key| {
                    found.push(text(key).to_owned());
                });
                let scanned = match scanned {
                    Ok(scanned) => scanned,
                    Err(refusal) => return format!("{refusal:?}"),
                };
                if let Some(next) = &scanned.next {
                    found.push(format!("more after {}", text(next)));
                }
                found.extend(scanned.after.map(|batch| format!("^{batch}")));
                return found.join(" ");
            }
            _ => {}
        }
        let scope = Scope { clock, usage, limits, now: *now };
        let request = options.request();
        let answer = match words[0] {
            "SET" => {
                let condition = match (options.has("NX"), options.has("NEX")) {
                    (true, _) => Condition::IfAbsent,
                    (_, true) => Condition::IfAbsentOrEqual,
                    _ => Condition::Always,
                };
                let ttl = options.number("PX").and_then(NonZeroU64::new);
                let set = Set { key: key(1), value: key(2), condition, ttl };
                Some(partition.set(&scope, &request, &set, followed))
            }
            "GET" => Some(partition.get(&scope, key(1), followed)),
            "DEL" => Some(partition.delete(&scope, &request, key(1), None, followed)),
            "VDEL" => Some(partition.delete(&scope, &request, key(1), Some(key(2)), followed)),
            "WATCH" => Some(partition.watch(&scope, key(2), Connection(id(1)))),
            "STOP" => Some(partition.unwatch(usage, key(2), id(1))),
            "DUP" => match partition.answered(&origin(word(1))) {
                None => return "unknown".into(),
                answer => answer,
            },
            "GONE" => {
                partition.forget_watcher(usage, id(1), words[2..].iter().map(|key| key.as_bytes()));
                None
            }
            "FORGET" => {
                partition.forget_session(usage, id(1), followed);
                None
            }
            "EXPIRE" => {
                partition.expire(&scope, followed);
                None
            }
            other => panic!("{other} is no command"),
        };
        let mut all: Vec<String> = answer.iter().map(told).collect();
        all.append(&mut followed.words);
        all.join("; ")
    }
}

fn origin(text: &str) -> Origin {
    let mut numbers = text.split('/').map(|number| number.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (session, packet_id, correlation) = (next(), next().try_into().unwrap(), next().into());
    Origin { session, packet_id, correlation, stored: true, settled: WallTime::default() }
}

/// An answer in words.
fn told(answer: &Answer) -> String {
    let mut words = match &answer.outcome {
        Outcome::Value(value) => format!("={}", text(value)),
        Outcome::Absent => "absent".into(),
        Outcome::Verdict(Verdict::Ok) => "OK".into(),
        Outcome::Verdict(Verdict::NotApplied) => "not applied".into(),
        Outcome::Verdict(Verdict::Deleted) => "deleted".into(),
        Outcome::Verdict(Verdict::Nothing) => "nothing".into(),
        Outcome::Verdict(Verdict::Refused(refusal)) => format!("{refusal:?}"),
    };
    if let Some(version) = answer.version {
        write!(words, " {}", short(version)).unwrap();
    }
    if let Some(batch) = answer.after {
        write!(words, " ^{batch}").unwrap();
    }
    words
}

fn short(Version { wall, counter }: Version) -> String {
    format!("{wall}:{counter}")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
