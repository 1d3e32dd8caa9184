//! A broker on one thread: real partitions over real shards, joined by the [rules](crate::rules).
//!
//! Each call is something that happens at once; whoever calls decides what happens next, and when the
//! process ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::durable::{
    AnsweredIn, EntityRecord, Recovery, SessionRecord, SessionStateRecord, SubscriptionRecord,
    Trace, keys, recover, settle,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, PacketId, QueueNumber, SessionNumber, TenantNumber};
use barid_core::message::Message;
use barid_core::session::EntryRecord;
use barid_core::state_store::{
    Answer, Clock, Effects, Limits, Origin, Outcome, Partition, Scope, Set, Usage, Verdict, Watcher,
};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_core::time::WallTime;
use barid_store::Store;
use barid_store::memory::Disk;
use statestore_proto::{Hlc, Notification, Refusal, Version};
use std::num::NonZeroU64;

use crate::durable::{Durable, TENANT_NUMBER};
use crate::history::History;
use crate::network::{ClientId, LinkId};
use crate::packets::state_store::{
    Command, KEYS, Key, Packet, Request, RequestNumber, Told, VOLATILE, Value,
};
use crate::rules::{IfHolds as _, Rule, Rules};
use crate::world;

/// The broker's process.
pub struct Broker {
    durable: Durable,
    clock: Clock,
    usage: Usage,
    /// One in each shard.
    partitions: Vec<Partition<Watching>>,
    sessions: BTreeMap<ClientId, Session>,
    /// What is noted too late, when a rule is broken.
    late: Vec<Late>,
    now: WallTime,
    /// What has left the broker since somebody looked.
    pub effects: Vec<(ClientId, LinkId, Packet)>,
}

/// A client's session. All of them are stored, and never expire.
struct Session {
    number: SessionNumber,
    link: Option<Link>,
}

/// A session's connection: what it is sent waits for something to be durable, in order.
struct Link {
    id: LinkId,
    lane: VecDeque<(Commits, Packet)>,
    watched: BTreeSet<Key>,
}

/// A connection that watches keys.
#[derive(Clone, Copy, Debug)]
struct Watching {
    client: ClientId,
    link: LinkId,
}

impl Watcher for Watching {
    fn id(&self) -> u64 {
        self.link.into()
    }
}

/// What should have been in a batch that is gone.
enum Late {
    Clock(u16, u64, Version),
    Answered(u16, u64, (SessionNumber, PacketId), AnsweredRecord),
}

/// All that a broker stores, as it has it in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    sessions: Vec<(ClientId, SessionNumber)>,
    keys: Vec<String>,
    /// What would be answered if the request came again.
    answered: Vec<(ClientId, RequestNumber, Told)>,
}

impl world::Broker<Packet> for Broker {
    fn set_time(&mut self, now: u64) {
        self.now = WallTime::from_millis(now);
    }

    fn receive(&mut self, client: ClientId, link: LinkId, packet: Packet) -> bool {
        if let Packet::Connect { clean } = packet {
            self.connect(client, link, clean);
            return true;
        }
        let owned = self
            .sessions
            .get_mut(&client)
            .filter(|session| session.link.as_ref().is_some_and(|present| present.id == link));
        let Some(session) = owned else { return true };
        match packet {
            Packet::Request(request) => {
                let number = session.number;
                let (told, awaited) = self.execute(number, &request);
                let mut answers =
                    [Packet::Response(request.number, told), Packet::PubAck(request.id)];
                // Either may be lost when the other is not.
                if request.number.is_multiple_of(2) {
                    answers.reverse();
                }
                for packet in answers {
                    self.send(client, link, awaited.clone(), packet);
                }
            }
            Packet::Watch(key) => {
                session.link.as_mut().expect("it was just looked at").watched.insert(key);
                let (limits, now) = (Limits::UNBOUNDED, self.now);
                let scope = Scope { clock: &self.clock, usage: &self.usage, limits: &limits, now };
                let partition = &mut self.partitions[usize::from(self.durable.shard_of(key))];
                partition.watch(&scope, KEYS[key].as_bytes(), Watching { client, link });
            }
            _ => unreachable!("a client sends no such packet"),
        }
        true
    }

    fn lose(&mut self, client: ClientId, link: LinkId) {
        let session = self.sessions.get(&client);
        let present = session.and_then(|session| session.link.as_ref());
        if present.is_some_and(|present| present.id == link) {
            self.end_connection(client);
        }
    }

    fn commit(&mut self, shard: u16, history: &mut History) {
        if self.durable.advance(shard, history) {
            self.release();
        }
        for late in std::mem::take(&mut self.late) {
            let (Late::Clock(of, batch, _) | Late::Answered(of, batch, ..)) = late;
            if self.durable.shard(of).batch() == batch {
                self.late.push(late);
                continue;
            }
            let (shard, _) = self.durable.change(of);
            match late {
                Late::Clock(_, _, version) => shard.put_state_clock(TENANT_NUMBER, version),
                Late::Answered(_, _, (session, packet_id), record) => {
                    shard.put_answered(TENANT_NUMBER, session, packet_id, record);
                }
            }
        }
    }

    fn is_written(&self) -> bool {
        self.durable.is_written()
    }
}

impl Broker {
    /// Starts a broker from what is on its disks, one for each shard.
    pub fn start(disks: &[Disk], rules: Rules, now: u64) -> Self {
        let stores: Vec<_> = disks.iter().map(|disk| disk.open(keys::NAMES.len())).collect();
        let mut reader = Reader::new(rules, disks.len());
        let shards = stores.iter().zip(0_u16..).map(|(store, shard)| {
            reader.shard = shard;
            recover(shard, store, &mut reader).expect("what was written can be read")
        });
        let shards = settle(shards.collect(), |trace| {
            let Trace::Answered(answered) = trace else { unreachable!("there is no other") };
            if rules.hold(Rule::RestoreAnswers) {
                let partition = &mut reader.partitions[usize::from(answered.shard)];
                let AnsweredIn { session, packet_id, record, .. } = answered;
                partition.insert_answered(&reader.usage, session, packet_id, record);
            }
        });
        Self {
            durable: Durable::new(shards.into_iter().zip(stores).collect(), rules),
            clock: reader.clock,
            usage: reader.usage,
            partitions: reader.partitions,
            sessions: reader.sessions,
            late: Vec::new(),
            now: WallTime::from_millis(now),
            effects: Vec::new(),
        }
    }

    /// Resumes the session of a client, or begins a new one.
    fn connect(&mut self, client: ClientId, link: LinkId, clean: bool) {
        self.end_connection(client);
        if clean {
            self.end_session(client);
        }
        let home = self.durable.shard_of(client);
        if !self.sessions.contains_key(&client) {
            let (shard, _) = self.durable.change(home);
            let number = shard.new_session_number();
            let record = SessionRecord {
                number,
                user: None,
                expiry: u32::MAX,
                away_since: None,
                will: None,
                replays: Vec::new(),
            };
            shard.put_session(TENANT_NUMBER, &client.to_string(), record);
            self.sessions.insert(client, Session { number, link: None });
        }
        let awaited = Commits::one(home, self.durable.last_change(home));
        let session = self.sessions.get_mut(&client).expect("it was just found or put");
        let (lane, watched) = (VecDeque::new(), BTreeSet::new());
        session.link = Some(Link { id: link, lane, watched });
        self.send(client, link, awaited, Packet::ConnAck);
    }

    fn end_session(&mut self, client: ClientId) {
        let Some(session) = self.sessions.remove(&client) else { return };
        let home = self.durable.shard_of(client);
        self.durable.change(home).0.remove_session(TENANT_NUMBER, &client.to_string());
        if !self.durable.rules().hold(Rule::ForgetAnswersWithSession) {
            return;
        }
        for shard in (0_u16..).take(self.durable.len()) {
            let mut notes = Notes::new(&mut self.durable, &mut self.late, shard);
            self.partitions[usize::from(shard)].forget_session(
                &self.usage,
                session.number,
                &mut notes,
            );
        }
    }

    fn end_connection(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let Some(link) = session.link.take() else { return };
        for key in link.watched {
            let partition = &mut self.partitions[usize::from(self.durable.shard_of(key))];
            partition.forget_watcher(&self.usage, link.id.into(), [KEYS[key].as_bytes()]);
        }
    }

    /// Does what a request asks for, unless it was done before. What it is answered, and when.
    fn execute(&mut self, session: SessionNumber, request: &Request) -> (Told, Commits) {
        let shard = self.durable.shard_of(request.key);
        let rules = self.durable.rules();
        let origin = origin(session, request);
        let partition = &mut self.partitions[usize::from(shard)];
        let known = partition.answered(&origin).filter(|_| request.dup);
        let answer = match known.if_holds(rules, Rule::AnswerAgain) {
            Some(answer) => answer,
            None => self.apply(shard, origin, request),
        };
        let told = told(&answer);
        let rule = match told {
            _ if request.key == VOLATILE => Rule::TellVersionsWhenNoted,
            Told::Set(_) | Told::Deleted(_) => Rule::TellChangesWhenDurable,
            Told::Value(..) => Rule::TellValuesWhenDurable,
            Told::Absent | Told::Nothing => Rule::TellAbsenceWhenDurable,
            Told::NotApplied(_) | Told::Refused(_) => Rule::TellRefusalsWhenDurable,
        };
        let after = answer.after.if_holds(rules, rule);
        (told, after.map(|batch| Commits::one(shard, batch)).unwrap_or_default())
    }

    fn apply(&mut self, shard: u16, origin: Origin, request: &Request) -> Answer {
        let (limits, now) = (Limits::UNBOUNDED, self.now);
        let scope = Scope { clock: &self.clock, usage: &self.usage, limits: &limits, now };
        let timestamp = Hlc { wall: request.timestamp, counter: 0, node: "c" }.to_string();
        let token = request.token.map(|token| token.to_string());
        let with = barid_core::state_store::Request {
            timestamp: Some(&timestamp),
            fencing_token: token.as_deref(),
            stored: request.key != VOLATILE,
            refuses: self.durable.refuses(shard),
            origin: Some(origin),
        };
        let key = KEYS[request.key].as_bytes();
        let mut notes = Notes::new(&mut self.durable, &mut self.late, shard);
        let partition = &mut self.partitions[usize::from(shard)];
        let answer = match request.command {
            Command::Set(value, condition, ttl) => {
                let (value, ttl) = (value.to_be_bytes(), ttl.and_then(NonZeroU64::new));
                let set = Set { key, value: &value, condition, ttl };
                partition.set(&scope, &with, &set, &mut notes)
            }
            Command::Get => partition.get(&scope, key, &mut notes),
            Command::Del => partition.delete(&scope, &with, key, None, &mut notes),
            Command::VDel(value) => {
                partition.delete(&scope, &with, key, Some(&value.to_be_bytes()), &mut notes)
            }
        };
        let notices = notes.notices;
        self.notify(shard, notices);
        answer
    }

    /// Keys whose time has come go.
    pub fn expire(&mut self) {
        let (limits, now) = (Limits::UNBOUNDED, self.now);
        for shard in (0_u16..).take(self.durable.len()) {
            let scope = Scope { clock: &self.clock, usage: &self.usage, limits: &limits, now };
            let mut notes = Notes::new(&mut self.durable, &mut self.late, shard);
            self.partitions[usize::from(shard)].expire(&scope, &mut notes);
            let notices = notes.notices;
            self.notify(shard, notices);
        }
    }

    fn notify(&mut self, shard: u16, notices: Vec<Notice>) {
        let rules = self.durable.rules();
        for Notice { watching, packet, after } in notices {
            let after = after.if_holds(rules, Rule::NotifyWhenDurable);
            let awaited = after.map(|batch| Commits::one(shard, batch)).unwrap_or_default();
            self.send(watching.client, watching.link, awaited, packet);
        }
    }

    /// Sends a packet when what is awaited is durable.
    fn send(&mut self, client: ClientId, link: LinkId, awaited: Commits, packet: Packet) {
        let session = self.sessions.get_mut(&client);
        let present = session.and_then(|session| session.link.as_mut());
        if let Some(present) = present.filter(|present| present.id == link) {
            present.lane.push_back((awaited, packet));
        }
        self.release();
    }

    /// Lets those packets go for which all is durable.
    fn release(&mut self) {
        for (client, session) in &mut self.sessions {
            let Some(link) = &mut session.link else { continue };
            while link.lane.front().is_some_and(|(awaited, _)| self.durable.has(awaited)) {
                let (_, packet) = link.lane.pop_front().expect("it was just looked at");
                self.effects.push((*client, link.id, packet));
            }
        }
    }

    /// What is in memory and stored, and what is known of some requests.
    pub fn picture(&self, requests: &[Request]) -> Picture {
        let sessions = self.sessions.iter().map(|(client, session)| (*client, session.number));
        let stored = self.partitions.iter().flat_map(|partition| {
            // Also what has expired, if nobody has noticed.
            let views = partition.entries(WallTime::default(), b"", b"");
            views.filter(|view| view.stored).map(|view| {
                let (key, value) = (&view.key, &view.value);
                format!(
                    "{key:?}={value:?} {} {:?} {:?}",
                    view.version, view.fencing_token, view.expires_at
                )
            })
        });
        let mut answered = Vec::new();
        for (client, session) in &self.sessions {
            let of_stored = requests.iter().filter(|request| request.key != VOLATILE);
            let known = of_stored.filter_map(|request| {
                let partition = &self.partitions[usize::from(self.durable.shard_of(request.key))];
                let told = told(&partition.answered(&origin(session.number, request))?);
                // Who is turned away by a full disk is told at once, and nothing is stored of it.
                let is_stored = told != Told::Refused(Refusal::QuotaExceeded);
                is_stored.then_some((*client, request.number, told))
            });
            answered.extend(known);
        }
        Picture { sessions: sessions.collect(), keys: stored.collect(), answered }
    }
}

/// How many answers are on some disks to sessions that are gone.
pub fn orphans(disks: &[Disk]) -> usize {
    let stores: Vec<_> = disks.iter().map(|disk| disk.open(keys::NAMES.len())).collect();
    let mut sessions = BTreeSet::new();
    let mut answered = Vec::new();
    for store in &stores {
        let scanned = store.scan(keys::SESSIONS, &[], &[], &mut |_, value| {
            let record = SessionRecord::decode(value).expect("what was written can be read");
            sessions.insert(record.number);
            std::ops::ControlFlow::Continue(())
        });
        scanned.expect("reading does not fail here");
        let scanned = store.scan(keys::STATE_ANSWERS, &[], &[], &mut |key, _| {
            let key = keys::AnsweredKey::decode(key).expect("what was written can be read");
            answered.push(key.session);
            std::ops::ControlFlow::Continue(())
        });
        scanned.expect("reading does not fail here");
    }
    answered.iter().filter(|session| !sessions.contains(session)).count()
}

/// A change that somebody is to be told of.
struct Notice {
    watching: Watching,
    packet: Packet,
    after: Option<u64>,
}

/// Hears what follows from a command.
struct Notes<'a> {
    durable: &'a mut Durable,
    late: &'a mut Vec<Late>,
    shard: u16,
    notices: Vec<Notice>,
}

impl<'a> Notes<'a> {
    fn new(durable: &'a mut Durable, late: &'a mut Vec<Late>, shard: u16) -> Self {
        Self { durable, late, shard, notices: Vec::new() }
    }
}

impl Effects<Watching> for Notes<'_> {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        let (shard, batch) = self.durable.change(self.shard);
        shard.put_state(TENANT_NUMBER, key, record);
        batch
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        let (shard, batch) = self.durable.change(self.shard);
        shard.remove_state(TENANT_NUMBER, key);
        batch
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        let in_time = self.durable.rules().hold(Rule::NoteVersionWithChange);
        let (shard, batch) = self.durable.change(self.shard);
        if in_time {
            shard.put_state_clock(TENANT_NUMBER, version);
        } else {
            self.late.push(Late::Clock(self.shard, batch, version));
        }
        batch
    }

    fn put_answered(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) -> u64 {
        let in_time = self.durable.rules().hold(Rule::NoteAnswerWithChange);
        let (shard, batch) = self.durable.change(self.shard);
        if in_time {
            shard.put_answered(TENANT_NUMBER, session, packet_id, record);
        } else {
            self.late.push(Late::Answered(self.shard, batch, (session, packet_id), record));
        }
        batch
    }

    fn remove_answered(&mut self, session: SessionNumber, packet_id: PacketId) {
        self.durable.change(self.shard).0.remove_answered(TENANT_NUMBER, session, packet_id);
    }

    fn notify(
        &mut self,
        watchers: &[Watching],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
    ) {
        let key = KEYS.iter().position(|known| known.as_bytes() == key).expect("one of ours");
        let value = match notification {
            Notification::Set(value) => Some(number(value)),
            Notification::Delete => None,
        };
        let packet = Packet::Notification(key, value, version);
        let notice = |watching: &Watching| Notice { watching: *watching, packet, after };
        self.notices.extend(watchers.iter().map(notice));
    }
}

/// By what a request is known when it comes again.
fn origin(session: SessionNumber, request: &Request) -> Origin {
    let (packet_id, correlation) = (request.id, request.number.into());
    Origin { session, packet_id, correlation, stored: true, settled: WallTime::default() }
}

/// What a client is told.
fn told(answer: &Answer) -> Told {
    let version = || answer.version.expect("what has a value or was changed has a version");
    match &answer.outcome {
        Outcome::Value(value) => Told::Value(number(value), version()),
        Outcome::Absent => Told::Absent,
        Outcome::Verdict(Verdict::Ok) => Told::Set(version()),
        Outcome::Verdict(Verdict::NotApplied) => Told::NotApplied(version()),
        Outcome::Verdict(Verdict::Deleted) => Told::Deleted(version()),
        Outcome::Verdict(Verdict::Nothing) => Told::Nothing,
        Outcome::Verdict(Verdict::Refused(refusal)) => Told::Refused(*refusal),
    }
}

fn number(value: &[u8]) -> Value {
    Value::from_be_bytes(value.try_into().expect("values were made of numbers"))
}

/// Hears what the stores have.
struct Reader {
    rules: Rules,
    shard: u16,
    clock: Clock,
    usage: Usage,
    partitions: Vec<Partition<Watching>>,
    sessions: BTreeMap<ClientId, Session>,
}

impl Reader {
    fn new(rules: Rules, shards: usize) -> Self {
        Self {
            rules,
            shard: 0,
            clock: Clock::default(),
            usage: Usage::default(),
            partitions: (0..shards).map(|_| Partition::default()).collect(),
            sessions: BTreeMap::new(),
        }
    }
}

impl Recovery for Reader {
    fn tenant(&mut self, _: &str) -> TenantNumber {
        TENANT_NUMBER
    }

    fn session(&mut self, _: TenantNumber, client_id: &str, record: SessionRecord) {
        let client = client_id.parse().expect("it was written as a number");
        self.sessions.insert(client, Session { number: record.number, link: None });
    }

    fn state_clock(&mut self, _: TenantNumber, latest: Version) {
        let is_seen = self.shard == 0 || self.rules.hold(Rule::RestoreClockFromAllShards);
        if is_seen && self.rules.hold(Rule::RestoreClock) {
            self.clock.raise(latest);
        }
    }

    fn state(&mut self, _: TenantNumber, key: &[u8], record: StateRecord) {
        let record = StateRecord {
            fencing_token: record.fencing_token.if_holds(self.rules, Rule::RestoreFencingTokens),
            expires_at: record.expires_at.if_holds(self.rules, Rule::RestoreExpiries),
            ..record
        };
        self.partitions[usize::from(self.shard)].insert(&self.usage, key, record);
    }

    // These histories have no messages and no entities.
    fn subscription(&mut self, _: TenantNumber, _: SessionNumber, _: &str, _: SubscriptionRecord) {}
    fn entry(&mut self, _: TenantNumber, _: SessionNumber, _: EntryNumber, _: EntryRecord) {}
    fn retained(&mut self, _: TenantNumber, _: Message) {}
    fn entity(&mut self, _: TenantNumber, _: &str, _: EntityRecord) {}
    fn queue_numbers(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: SequenceNumber) {}
    fn queue_state(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: SessionStateRecord) {
    }
    fn queue_entry(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: Entry) {}
    fn queue_seen(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: WallTime) {}
}
