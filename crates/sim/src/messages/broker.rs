//! The broker of MQTT messages: the engine, and additional facts for the checkers.

use std::collections::{BTreeMap, BTreeSet};

use barid_core::drop_reason::DropReason;
use barid_engine::drops::{self, Wanted};
use barid_engine::session::SessionRef;
use barid_store::memory::Disk;

use super::codec;
use crate::network::{ClientId, LinkId, client_of};
use crate::packets::messages::{MessageNumber, Packet, Verdict};
use crate::process::{OverEngine, Process, Settings};
use crate::rules::Rules;

/// The broker's process.
pub struct Broker {
    pub process: Process,
    /// Number of the process in the history.
    life: u32,
    /// For each connection, the number of its session, unique in the history, and whether the return of the
    /// client is noted.
    births: BTreeMap<LinkId, (u64, bool)>,
    /// Messages that clients have published with QoS 1 or 2, by connection and packet identifier.
    published: BTreeMap<(LinkId, u16), MessageNumber>,
    /// Number of drops that have been reported.
    drops_seen: usize,
    pub remembered: Remembered,
}

/// Facts for the checkers that survive a crash, although no broker stores them.
#[derive(Default)]
pub struct Remembered {
    /// Numbers of the existing sessions, by name. A name that has not survived a crash may be given again.
    births: BTreeMap<Name, u64>,
    /// Number of sessions that ever began.
    count: u64,
}

/// Name of a session, unique in the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Stored(u64),
    Unstored { life: u32, id: u64 },
}

/// Packets that the broker has sent since the last call, with additional facts for the checkers.
#[derive(Default)]
pub struct Effects {
    pub packets: Vec<(ClientId, LinkId, Packet)>,
    /// Messages that were dropped for a client, with their topic. The topic is `None` if the message was in the
    /// store only.
    pub dropped: Vec<(ClientId, Option<usize>, DropReason)>,
    /// Topics of messages that were dropped for a binding.
    pub dropped_for_bindings: Vec<usize>,
    /// Messages that the broker has refused to accept from their publishers.
    pub refused: Vec<MessageNumber>,
}

impl OverEngine for Broker {
    type Packet = Packet;

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn encode(&mut self, client: ClientId, _: LinkId, packet: Packet, out: &mut Vec<u8>) -> bool {
        codec::encode(client, packet, out);
        matches!(packet, Packet::Connect { .. })
    }

    fn received(&mut self, link: LinkId, packet: Packet) {
        match packet {
            Packet::Connect { .. } => {
                if let Some(session) = self.process.session(link) {
                    let birth = self.birth_of(&session);
                    self.births.insert(link, (birth, !session.store_refuses()));
                }
            }
            Packet::Publish { message, id, qos: 1.., .. } => {
                self.published.insert((link, id), message);
            }
            _ => {}
        }
    }
}

impl Broker {
    /// Starts a broker from its disks, one for each shard.
    pub fn start(
        disks: &[Disk],
        settings: &Settings,
        rules: Rules,
        life: u32,
        mut remembered: Remembered,
    ) -> Self {
        let process = Process::start(disks, settings, rules);
        let mut there = BTreeSet::new();
        process.tenant().sessions.for_each(|session| {
            there.extend(session.durable().map(|durable| Name::Stored(durable.number)));
        });
        remembered.births.retain(|name, _| there.contains(name));
        Self {
            process,
            life,
            births: BTreeMap::new(),
            published: BTreeMap::new(),
            drops_seen: 0,
            remembered,
        }
    }

    /// Returns the number of a session in the history. A session without a number gets the next one.
    fn birth_of(&mut self, session: &SessionRef) -> u64 {
        let name = match session.durable() {
            Some(durable) => Name::Stored(durable.number),
            None => Name::Unstored { life: self.life, id: session.id },
        };
        let Remembered { births, count } = &mut self.remembered;
        *births.entry(name).or_insert_with(|| {
            *count += 1;
            *count
        })
    }

    /// Returns the effects since the last call. `of` returns the client of a connection, if the connection has
    /// not broken.
    pub fn take_effects(&mut self, of: impl Fn(LinkId) -> Option<ClientId>) -> Effects {
        let Self { process, births, published, .. } = self;
        let mut refused = Vec::new();
        let packets = process.take_packets(of, Packet::Disconnect, |link, bytes| {
            let birth = births.get(&link).copied().unwrap_or_default();
            let (packet, len) = codec::decode(bytes, birth)?;
            if let Some(
                Packet::PubAck(id, Verdict::Refused) | Packet::PubRec(id, Verdict::Refused),
            ) = packet
            {
                refused.extend(published.get(&(link, id)));
            }
            Some((packet, len))
        });
        let mut effects = Effects { packets, refused, ..Effects::default() };
        self.take_drops(&mut effects);
        effects
    }

    fn take_drops(&mut self, effects: &mut Effects) {
        let tenant = self.process.tenant();
        let recent = drops::merge(tenant.drop_logs(), &Wanted::default(), usize::MAX);
        let new = recent.remembered - std::mem::replace(&mut self.drops_seen, recent.remembered);
        for drop in &recent.drops[..new] {
            let topic = drop.topic.as_deref().map(codec::topic);
            if drop.client.starts_with("$bindings/") {
                effects.dropped_for_bindings.extend(topic);
            } else {
                effects.dropped.push((client_of(&drop.client), topic, drop.reason));
            }
        }
    }
}
