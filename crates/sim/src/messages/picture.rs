//! All that a broker stores of messages, as it has it in memory; and what is left on disks of what is gone.

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

/// All that a broker stores.
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
    /// Entry and message; a released one has no message.
    entries: Vec<(EntryNumber, Option<MessageId>)>,
}

/// How many records there are of what is gone when nothing is on its way any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Entries of queues.
    pub entries: usize,
    /// Messages.
    pub messages: usize,
    /// Packet identifiers received.
    pub received: usize,
}

/// The sessions, queues and retained messages of a broker, as they are in memory.
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

/// The retained message of a topic.
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
    // Retained messages for a new subscription go ahead of the queue only as long as the process lives.
    entries.sort_unstable();
    // Those that only sessions got which are not stored, as a shard was being closed, are noted nowhere.
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

/// Counts the records on some disks that come and go with messages.
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
