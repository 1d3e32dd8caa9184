//! The broker of the state store: the engine, and the content of its keys.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use barid_core::durable::{SessionRecord, keys};
use barid_core::state_store::{Answer, Origin, Outcome, Verdict};
use barid_core::time::WallTime;
use barid_engine::limits::Limits;
use barid_store::Store;
use barid_store::memory::Disk;
use statestore_proto::Refusal;
use xxhash_rust::xxh3::xxh3_128;

use super::codec;
use crate::network::{ClientId, LinkId, client_of};
use crate::packets::state_store::{KEYS, Packet, Request, RequestNumber, Told, VOLATILE};
use crate::process::{OverEngine, Process, Settings, TENANT};
use crate::rules::Rules;

/// The broker's process.
pub struct Broker {
    pub process: Process,
}

/// Everything that a broker stores, as it is in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    sessions: BTreeSet<(ClientId, u64)>,
    keys: Vec<String>,
    /// Responses that repeated requests would get.
    answered: BTreeSet<(ClientId, RequestNumber, String)>,
}

impl OverEngine for Broker {
    type Packet = Packet;

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn encode(&mut self, client: ClientId, _: LinkId, packet: Packet, out: &mut Vec<u8>) -> bool {
        codec::encode(client, None, packet, out);
        matches!(packet, Packet::Connect { .. })
    }
}

impl Broker {
    /// Starts a broker from its disks, one for each shard. At most `window` batches may be in flight to each
    /// log.
    pub fn start(disks: &[Disk], window: usize, rules: Rules) -> Self {
        let (limits, volatile) = (Limits::default(), Some(KEYS[VOLATILE]));
        let settings = Settings { limits, volatile, in_memory_max: usize::MAX, window };
        Self { process: Process::start(disks, &settings, rules) }
    }

    /// Returns the packets that the broker has sent since the last call.
    pub fn take_packets(
        &mut self,
        of: impl Fn(LinkId) -> Option<ClientId>,
    ) -> Vec<(ClientId, LinkId, Packet)> {
        self.process.take_packets(of, Packet::Disconnect, |_, bytes| codec::decode(bytes))
    }

    /// Returns everything that is stored, as it is in memory, and the responses to these requests.
    pub fn picture(&self, requests: &[Request]) -> Picture {
        let tenant = self.process.tenant();
        let (store, shards) = (tenant.state_store(), &tenant.shards);
        let mut sessions = BTreeSet::new();
        tenant.sessions.for_each(|session| {
            let number = session.durable().map(|durable| durable.number);
            sessions.extend(number.map(|number| (client_of(&session.client_id), number)));
        });
        let mut stored = Vec::new();
        for shard in shards.iter() {
            let partition = store.partition(shard.index());
            // With the time 0, keys are included that have expired and were not removed yet.
            let views = partition.entries(WallTime::default(), b"", b"");
            stored.extend(views.filter(|view| view.stored).map(|view| {
                let (key, value) = (&view.key, &view.value);
                format!(
                    "{key:?}={value:?} {} {:?} {:?}",
                    view.version, view.fencing_token, view.expires_at
                )
            }));
        }
        let mut answered = BTreeSet::new();
        for (client, number) in &sessions {
            let of_stored = requests.iter().filter(|request| request.key != VOLATILE);
            answered.extend(of_stored.filter_map(|request| {
                let shard = shards.of_key(TENANT, KEYS[request.key].as_bytes());
                let origin = origin(*number, request);
                let told = told(&store.partition(shard).answered(&origin)?);
                // A refusal because of a full disk is sent at once, and is not stored.
                let is_stored = told != Told::Refused(Refusal::QuotaExceeded);
                is_stored.then(|| (*client, request.number, told.to_string()))
            }));
        }
        Picture { sessions, keys: stored, answered }
    }
}

/// Returns the number of responses on disks whose sessions do not exist any more.
pub fn orphans(disks: &[Disk]) -> usize {
    let stores: Vec<_> = disks.iter().map(|disk| disk.open(keys::NAMES.len())).collect();
    let mut sessions = BTreeSet::new();
    let mut answered = Vec::new();
    for store in &stores {
        let scanned = store.scan(keys::SESSIONS, &[], &[], &mut |_, value| {
            let record = SessionRecord::decode(value).expect("what was written can be read");
            sessions.insert(record.number);
            ControlFlow::Continue(())
        });
        scanned.expect("reading does not fail here");
        let scanned = store.scan(keys::STATE_ANSWERS, &[], &[], &mut |key, _| {
            let key = keys::AnsweredKey::decode(key).expect("what was written can be read");
            answered.push(key.session);
            ControlFlow::Continue(())
        });
        scanned.expect("reading does not fail here");
    }
    answered.iter().filter(|session| !sessions.contains(session)).count()
}

/// Returns the origin by which the store recognizes a repeated request.
fn origin(session: u64, request: &Request) -> Origin {
    let (packet_id, correlation) = (request.id, xxh3_128(&request.number.to_be_bytes()));
    Origin { session, packet_id, correlation, stored: true, settled: WallTime::default() }
}

/// Returns the response that a client would get.
fn told(answer: &Answer) -> Told {
    let version = || answer.version.expect("what has a value or was changed has a version");
    match &answer.outcome {
        Outcome::Value(value) => Told::Value(codec::value_of(value), version()),
        Outcome::Absent => Told::Absent,
        Outcome::Verdict(Verdict::Ok) => Told::Set(version()),
        Outcome::Verdict(Verdict::NotApplied) => Told::NotApplied(version()),
        Outcome::Verdict(Verdict::Deleted) => Told::Deleted(version()),
        Outcome::Verdict(Verdict::Nothing) => Told::Nothing,
        Outcome::Verdict(Verdict::Refused(refusal)) => Told::Refused(*refusal),
    }
}
