//! The stored state of a broker, as it is in memory, and the records that remain on disks.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use barid_core::durable::keys;
use barid_core::ids::{EntryNumber, MessageId, PacketId};
use barid_core::session::ShardSet;
use barid_engine::session::SessionRef;
use barid_store::Store;
use barid_store::memory::Disk;
use mqtt_proto::{Properties, QoS};

use super::codec::message_number;
use crate::network::{ClientId, client_of};
use crate::packets::messages::MessageNumber;
use crate::process::Process;

/// Everything that a broker stores.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    sessions: BTreeMap<ClientId, SessionPicture>,
    retained: Vec<MessageNumber>,
}

#[derive(Debug, PartialEq, Eq)]
struct SessionPicture {
    number: u64,
    expiry: u32,
    subscriptions: BTreeMap<Box<str>, QoS>,
    received: BTreeMap<PacketId, ShardSet>,
    /// Entry and message. A released entry has no message.
    entries: Vec<(EntryNumber, Option<MessageId>)>,
}

/// Numbers of the records on disks that must be gone when no message is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Entries of sessions.
    pub entries: usize,
    /// Messages.
    pub messages: usize,
    /// Received packet identifiers.
    pub received: usize,
}

/// Returns the sessions, queues and retained messages of a broker, as they are in memory.
pub fn picture(process: &Process) -> Picture {
    let tenant = process.tenant();
    let mut sessions = BTreeMap::new();
    tenant.sessions.for_each(|session| {
        if let Some(picture) = picture_of(session) {
            sessions.insert(client_of(&session.client_id), picture);
        }
    });
    let mut retained = Vec::new();
    for topic in crate::packets::messages::TOPICS {
        retained.extend(retained_of(process, topic));
    }
    Picture { sessions, retained }
}

/// Returns the retained message of a topic.
pub fn retained_of(process: &Process, topic: &str) -> Option<MessageNumber> {
    let tenant = process.tenant();
    let retained = tenant.retained.read();
    let message = retained.get(topic)?;
    Some(message_number(Properties::from_validated(message.publication().properties)))
}

fn picture_of(session: &SessionRef) -> Option<SessionPicture> {
    let number = session.durable()?.number;
    let state = session.state();
    let subscriptions = state.subscriptions.iter();
    let subscriptions = subscriptions.map(|own| (own.filter.clone(), own.qos));
    let mut entries: Vec<_> = session.inspect(|outbound, _| {
        let stored = outbound.stored();
        let entry = |(stored, released): (barid_core::ids::StoredAs, bool)| {
            (stored.entry.get(), (!released).then_some(stored.message))
        };
        stored.map(entry).collect()
    });
    // Retained messages for a new subscription are ahead of the queue only until the process ends, so the order
    // of entries does not matter here.
    entries.sort_unstable();
    // A received identifier is noted in no shard if only sessions that are not stored got its message, because
    // a shard was being closed.
    let is_noted = |(_, shards): &(u16, &ShardSet)| shards.iter().next().is_some();
    let received = state.received.iter().filter(is_noted);
    Some(SessionPicture {
        number,
        expiry: state.expiry,
        subscriptions: subscriptions.collect(),
        received: received.map(|(id, shards)| (id, shards.clone())).collect(),
        entries,
    })
}

/// Counts the records on disks that exist only while messages are in flight.
pub fn remains(disks: &[Disk]) -> Remains {
    let mut remains = Remains::default();
    for disk in disks {
        let store = disk.open(keys::NAMES.len());
        let kinds = [
            (keys::ENTRIES, &mut remains.entries),
            (keys::MESSAGES, &mut remains.messages),
            (keys::RECEIVED, &mut remains.received),
        ];
        for (keyspace, count) in kinds {
            let scanned = store.scan(keyspace, &[], &[], &mut |_, _| {
                *count += 1;
                ControlFlow::Continue(())
            });
            scanned.expect("reading does not fail here");
        }
    }
    remains
}
