//! `barid doctor --quarantine`: removes the damaged parts of a data directory, and keeps copies of them.
//!
//! Two steps. First the files: the damaged ones are copied, and the store is opened with the rest
//! ([`barid_store::salvage`]). Then the records: those that are unreadable, or whose counterpart is lost, are written
//! to a file and removed, so that a broker starts with a consistent directory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barid_core::durable::keys::{
    self, EntityKey, EntryKey, MessageKey, QueueBodyKey, QueueEntryKey, QueueNumbersKey,
    QueueSeenKey, QueueSessionKey, SessionKey, SubscriptionKey,
};
use barid_core::durable::records::{self, decode_queue_entry};
use barid_core::durable::{EntityRecord, SessionRecord};
use barid_core::ids::{MessageId, QueueNumber, SessionNumber};
use barid_core::session::EntryRecord;
use barid_store::{Batch, Keyspace, Loss, Store, salvage};
use data_encoding::BASE64;
use serde_json::json;

use super::describe::describe;
use crate::stored;
use crate::timestamp::Timestamp;

/// Bytes of removals after which they are committed.
const BATCH_BYTES: usize = 1 << 20;

/// Result of a quarantine: the parts removed from the data directory, and the place of the copies.
pub struct Quarantined {
    /// Directory with the copies, the list and the records.
    pub directory: PathBuf,
    /// Copies of damaged files.
    pub files: Vec<PathBuf>,
    /// A sentence for each record that was lost with damaged bytes, or removed.
    pub lost: Vec<String>,
    /// Number of records removed because they were unreadable or made no sense without a counterpart.
    pub records: u64,
}

/// Quarantines the damaged parts. `losses` are the known losses in damaged files.
pub fn quarantine(data_dir: &Path, losses: &[Loss]) -> anyhow::Result<Quarantined> {
    let directory = data_dir.join("quarantine").join(Timestamp::now().compact());
    let (data, files) = salvage(data_dir, &stored::options(), &directory)?;
    let mut lost = Vec::new();
    for loss in losses {
        lost.extend(outcome(&*data.shards()[loss.shard], loss)?);
    }
    let path = directory.join("records.jsonl");
    let mut out = BufWriter::new(File::create(&path).with_context(|| writing(&path))?);
    let mut records = 0;
    for (shard, store) in data.shards().iter().enumerate() {
        let Taken { removed, said } = take_out(shard, &**store, &mut out, &path)?;
        records += removed.len() as u64;
        lost.extend(said);
        // The copies must be on disk before the records are removed.
        out.flush().and_then(|()| out.get_ref().sync_all()).with_context(|| writing(&path))?;
        remove(&**store, &removed)?;
    }
    let list = directory.join("lost.txt");
    let text: String = lost.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&list, text).with_context(|| writing(&list))?;
    File::open(&directory)
        .and_then(|directory| directory.sync_all())
        .with_context(|| format!("making the files in {} durable", directory.display()))?;
    Ok(Quarantined { directory, files, lost, records })
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}

/// Returns a sentence for each record of one damaged range: it is lost, has another value, or is back although it was
/// removed.
fn outcome(store: &dyn Store, loss: &Loss) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for record in &loss.records {
        if usize::from(record.keyspace.0) >= keys::NAMES.len() {
            continue;
        }
        let what = describe(record.keyspace, &record.key);
        let now = store.get(record.keyspace, &record.key)?;
        let is_sure = if loss.is_all { "" } else { "perhaps " };
        lines.push(match (record.value_len, now) {
            (Some(len), None) => format!("{is_sure}lost: {what}, {len} bytes"),
            (Some(_), Some(_)) => format!("another value is there: {what}"),
            (None, Some(_)) => format!("{is_sure}back, although it was removed: {what}"),
            (None, None) => continue,
        });
    }
    if !loss.is_all {
        let shard = loss.shard;
        let what = match &loss.file {
            Some(file) => {
                format!("bytes {} to {} of {}", loss.bytes.start, loss.bytes.end, file.display())
            }
            None => format!("shard {shard}"),
        };
        lines.push(format!(
            "perhaps more: the records in {what} cannot be identified. New records there are lost; records that \
             were changed or removed there may have their earlier values"
        ));
    }
    Ok(lines)
}

/// Records that were copied to the file.
#[derive(Default)]
struct Taken {
    /// Keys to remove.
    removed: Vec<(Keyspace, Vec<u8>)>,
    /// A sentence for each record: what it is, and why it is removed.
    said: Vec<String>,
}

/// Copies the records that are unreadable, or make no sense without a counterpart.
fn take_out(
    shard: usize,
    store: &dyn Store,
    out: &mut impl Write,
    path: &Path,
) -> anyhow::Result<Taken> {
    let mut sense = Sense::default();
    let mut taken = Taken::default();
    let mut put = |keyspace: Keyspace, key: &[u8], value: &[u8], why: &str, of: Option<&str>| {
        let mut what = describe(keyspace, key);
        if let Some(of) = of {
            what += &format!(", of {of}");
        }
        let line = json!({
            "shard": shard,
            "keyspace": keys::NAMES[usize::from(keyspace.0)],
            "what": what,
            "why": why,
            "key_base64": BASE64.encode(key),
            "value_base64": BASE64.encode(value),
        });
        taken.removed.push((keyspace, key.to_vec()));
        taken.said.push(format!("moved to quarantine, as {why}: {what}"));
        writeln!(out, "{line}").with_context(|| writing(path))
    };
    for keyspace in (0..keys::NAMES.len() as u8).map(Keyspace) {
        let mut failed = None;
        store.scan(keyspace, b"", b"", &mut |key, value| {
            let why = match records::verify(keyspace, key, value) {
                Err(error) => Some(error.to_string()),
                Ok(()) => sense.look(keyspace, key, value).map(str::to_owned),
            };
            let put = why.map_or(Ok(()), |why| put(keyspace, key, value, &why, None));
            failed = put.err();
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed.map_or(Ok(()), Err)?;
    }
    // Entries are read before the messages and bodies that they refer to.
    for Incomplete { keyspace, key, of } in sense.without_content() {
        let value = store.get(keyspace, &key)?.unwrap_or_default();
        put(keyspace, &key, &value, "the message itself is lost", Some(&of))?;
    }
    Ok(taken)
}

fn remove(store: &dyn Store, keys: &[(Keyspace, Vec<u8>)]) -> anyhow::Result<()> {
    let mut batch = Batch::new();
    for (keyspace, key) in keys {
        batch.remove(*keyspace, key);
        if batch.bytes() >= BATCH_BYTES {
            store.commit(&batch)?;
            batch.clear();
        }
    }
    Ok(store.commit(&batch)?)
}

/// Relations between records. Keyspaces are read in the order of their numbers: sessions before what belongs to them,
/// entries before messages and bodies.
#[derive(Default)]
struct Sense {
    /// Client identifiers of the sessions.
    sessions: HashMap<(String, SessionNumber), String>,
    /// Paths of the queues.
    queues: HashMap<(String, QueueNumber), String>,
    /// Messages that entries refer to and that have not been read, with these entries.
    messages: HashMap<MessageId, Vec<Incomplete>>,
    bodies: HashMap<(QueueNumber, u64), Incomplete>,
}

/// An entry whose message has not been read.
struct Incomplete {
    keyspace: Keyspace,
    key: Vec<u8>,
    /// Owner of the entry, in words.
    of: String,
}

const NO_SESSION: &str = "its session is lost";
const NO_QUEUE: &str = "the definition of its queue is lost";
const NO_ENTRY: &str = "no entry refers to it";

impl Sense {
    /// Returns the reason why a readable record is useless; `None` if it is of use.
    fn look(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) -> Option<&'static str> {
        const {
            assert!(keys::SESSIONS.0 < keys::SUBSCRIPTIONS.0 && keys::SESSIONS.0 < keys::ENTRIES.0);
            assert!(keys::ENTRIES.0 < keys::MESSAGES.0);
            assert!(keys::ENTITIES.0 < keys::QUEUE_ENTRIES.0);
            assert!(keys::QUEUE_ENTRIES.0 < keys::QUEUE_BODIES.0);
        }
        let tenant = keys::tenant_of(key)?.to_owned();
        match keyspace {
            keys::SESSIONS => {
                let client = SessionKey::decode(key).ok()?.client_id.to_owned();
                let number = SessionRecord::decode(value).ok()?.number;
                self.sessions.insert((tenant, number), client);
                None
            }
            keys::SUBSCRIPTIONS => {
                let session = SubscriptionKey::decode(key).ok()?.session;
                (!self.sessions.contains_key(&(tenant, session))).then_some(NO_SESSION)
            }
            keys::ENTRIES => {
                let session = EntryKey::decode(key).ok()?.session;
                let Some(client) = self.sessions.get(&(tenant, session)) else {
                    return Some(NO_SESSION);
                };
                let message = EntryRecord::decode(value).ok()?.refers_to();
                if let Some(message) = message {
                    let of = format!("client {client:?}");
                    let entry = Incomplete { keyspace, key: key.to_vec(), of };
                    self.messages.entry(message).or_default().push(entry);
                }
                None
            }
            keys::MESSAGES => {
                let message = MessageKey::decode(key).ok()?.message;
                self.messages.remove(&message).is_none().then_some(NO_ENTRY)
            }
            keys::ENTITIES => {
                let path = EntityKey::decode(key).ok()?.path.to_owned();
                self.queues.insert((tenant, EntityRecord::decode(value).ok()?.queue), path);
                None
            }
            keys::QUEUE_ENTRIES => {
                let QueueEntryKey { queue, number, .. } = QueueEntryKey::decode(key).ok()?;
                let Some(path) = self.queues.get(&(tenant, queue)) else { return Some(NO_QUEUE) };
                let entry = decode_queue_entry(number, value).ok()?;
                let of = format!("{path:?}");
                let incomplete = Incomplete { keyspace, key: key.to_vec(), of };
                self.bodies.insert((queue, entry.body.id), incomplete);
                None
            }
            keys::QUEUE_BODIES => {
                let QueueBodyKey { queue, id, .. } = QueueBodyKey::decode(key).ok()?;
                self.bodies.remove(&(queue, id)).is_none().then_some(NO_ENTRY)
            }
            keys::QUEUE_SESSIONS => {
                let queue = QueueSessionKey::decode(key).ok()?.queue;
                (!self.queues.contains_key(&(tenant, queue))).then_some(NO_QUEUE)
            }
            keys::QUEUE_SEEN => {
                let queue = QueueSeenKey::decode(key).ok()?.queue;
                (!self.queues.contains_key(&(tenant, queue))).then_some(NO_QUEUE)
            }
            keys::QUEUE_NUMBERS => {
                let queue = QueueNumbersKey::decode(key).ok()?.queue;
                (!self.queues.contains_key(&(tenant, queue))).then_some(NO_QUEUE)
            }
            _ => None,
        }
    }

    /// Returns the entries whose message or body is missing.
    fn without_content(self) -> Vec<Incomplete> {
        let entries = self.messages.into_values().flatten().chain(self.bodies.into_values());
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        entries
    }
}
