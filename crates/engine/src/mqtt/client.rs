//! A client that has a session: what it sends, and how it ends.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::session::Acked;
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashSet;
use mqtt_proto::flow::{InboundAliases, KeepAlive};
use mqtt_proto::{
    Ack, Disconnect, FixedHeader, Packet, PacketId, PacketType, Properties, PropertiesBuf,
    Property, ReasonCode, Version,
};
use tracing::debug;

use super::End;
use super::subscribe::Unfinished;
use crate::access::Permissions;
use crate::durability::Durability;
use crate::faults::{IfHolds as _, Rule};
use crate::ids::ConnectionId;
use crate::limits::Limits;
use crate::owner::{Farewell, Owner, is_same};
use crate::session::{Session, SessionRef, Stint};
use crate::tenant::Tenant;
use crate::turn::{ClientAck, Scratch, Turn};

/// Bytes of answers that a client may leave unread before it is not read from either.
const UNREAD_ANSWERS_MAX: usize = 512 * 1024;

/// Requests to the state store that are executed before it is looked whether their client reads the
/// responses …
const REQUESTS_TOGETHER: usize = 16;

/// … if they tell no more watchers than this.
const NOTIFICATIONS_TOGETHER: usize = 16 * 1024;

/// Acknowledgements that are applied together at most, under one lock.
const ACKS_TOGETHER: usize = 1024;

/// A client that has a session, and its connection.
#[derive(Debug)]
pub struct Client {
    pub(super) id: ConnectionId,
    /// Where the client is.
    pub(super) peer: SocketAddr,
    pub(super) tenant: Arc<Tenant>,
    pub(super) session: SessionRef,
    /// Which of the session's connections it is.
    pub(super) epoch: u32,
    pub(super) version: Version,
    /// See [`Connect::is_bridge`](mqtt_proto::Connect::is_bridge).
    pub(super) is_bridge: bool,
    pub(super) keep_alive: KeepAlive,
    pub(super) aliases: InboundAliases,
    /// What the user may do; `None`: everything.
    pub(super) permissions: Option<Arc<Permissions>>,
    /// The tenant's limits when the client connected.
    pub(super) limits: Arc<Limits>,
    /// The tenant's durability classes when the client connected.
    pub(super) durability: Arc<Durability>,
    /// When it began, by the clock on the wall.
    pub(super) since: WallTime,
    /// The Session Expiry Interval of the CONNECT was zero, and may not be raised (MQTT-3.14.2-2).
    pub(super) expires_at_once: bool,
    /// The client's Maximum Packet Size.
    pub(super) max_packet_size: u32,
    /// The client does not read its answers, so it is not read from.
    pub(super) reading_paused: bool,
    /// What was read has not all been handled: something is kept, and there may be whole packets in it.
    pub(super) interrupted: bool,
    /// A packet of which only a part has been handled.
    pub(super) unfinished: Option<Box<Unfinished>>,
    /// The only session that got what the client published last.
    pub(super) partner: Option<Partner>,
    /// Keys of the state store that the client watches.
    pub(super) watched: Option<Box<HashSet<Box<[u8]>>>>,
}

/// A session that a client publishes to; not kept in memory by that.
#[derive(Debug)]
pub(super) struct Partner {
    pub(super) id: u64,
    pub(super) session: Weak<Session>,
}

impl Client {
    /// When it must have sent a packet, by its Keep Alive.
    pub fn deadline(&self) -> Option<MonoTime> {
        self.keep_alive.deadline_ms().map(MonoTime::from_millis)
    }

    /// Whether it is not read from, as it does not read its answers.
    pub fn is_paused(&self) -> bool {
        self.reading_paused
    }

    /// Whether something has come that was not handled, and is to be given to it again.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The connection of the only subscriber that gets what this client publishes, if it is of the same
    /// thread.
    pub fn partner(&self, owner: &Arc<dyn Owner>) -> Option<ConnectionId> {
        let partner = SessionRef::upgrade(&self.partner.as_ref()?.session)?;
        partner.inspect(|_, link| {
            link.filter(|link| is_same(owner, &link.owner)).map(|link| link.connection)
        })
    }

    /// Its session, and which of the session's connections it has.
    pub fn attachment(&self) -> (SessionRef, u32) {
        (self.session.clone(), self.epoch)
    }

    /// Sends what waits for it. `writable`: there is room again.
    pub fn drain(&self, turn: &Turn<'_>, out: &mut dyn Write, writable: bool) {
        let stint = Stint::of_one_among(turn.writers);
        let write = |bytes: &[u8]| out.write(bytes);
        self.session.drain(&turn.context.worker, self.epoch, writable, stint, write);
    }

    /// Reads again from a client that did not read its answers and now does. True: it is time to.
    pub fn resume_reading(&mut self) -> bool {
        let resumed =
            self.reading_paused && self.session.may_read_again(self.epoch, UNREAD_ANSWERS_MAX / 2);
        self.reading_paused &= !resumed;
        resumed
    }

    /// Handles the whole packets in `bytes`, and what was left of one before; sends what answers them, and returns how many
    /// bytes they had.
    ///
    /// # Errors
    /// The connection ends.
    pub fn handle(
        &mut self,
        turn: &mut Turn<'_>,
        out: &mut dyn Write,
        bytes: &mut [u8],
    ) -> Result<usize, End> {
        self.check_owner()?;
        self.interrupted = false;
        let mut handled = 0;
        let mut alone = true;
        let was_unfinished = self.unfinished.is_some();
        let mut result = self.resume(turn);
        while result.is_ok() && self.unfinished.is_none() {
            let rest = &bytes[handled..];
            let header = match FixedHeader::read(rest, self.limits.max_packet_size) {
                Ok(Some(header)) if header.packet_len() <= rest.len() => header,
                Ok(_) => break,
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            };
            let frame = handled..handled + header.packet_len();
            handled = frame.end;
            result = if header.packet_type() == PacketType::Publish {
                self.on_publish(turn, bytes, header, frame, &mut alone)
            } else {
                self.on_packet(turn, bytes, header, frame, &mut alone)
            };
            if turn.scratch.run.is_requests && turn.scratch.run.len() >= self.requests_together() {
                result = result.and_then(|()| self.finish_run(turn, bytes, false));
                alone = false;
                // Others have their turn, or the client has to read first.
                if turn.scratch.responses.are_much() || self.session.has_unread_messages(self.epoch)
                {
                    self.interrupted = handled < bytes.len();
                    break;
                }
            }
            if turn.budget.spend(1) || turn.scratch.acks.len() >= ACKS_TOGETHER {
                self.interrupted = handled < bytes.len();
                break;
            }
        }
        self.interrupted |= self.unfinished.is_some();
        // A packet that takes several turns keeps those behind it waiting, perhaps a PINGREQ.
        if handled > 0 || was_unfinished {
            self.keep_alive.packet_received(turn.context.worker.now.as_millis());
        }
        // What came before an error counts, and its answers come before the farewell.
        let finished = self.finish_run(turn, bytes, alone);
        let acked = self.apply_acks(turn, out);
        self.answer(turn, out);
        result.and(finished).and(acked).map(|()| handled)
    }

    /// How many requests are executed in one piece. Each may change the key that most watch.
    fn requests_together(&self) -> usize {
        let store = self.tenant.used_state_store();
        let watchers = store.map_or(0, |store| store.usage().most_watchers());
        let watchers = usize::try_from(watchers).unwrap_or(usize::MAX);
        (NOTIFICATIONS_TOGETHER / watchers.max(1)).clamp(1, REQUESTS_TOGETHER)
    }

    fn on_packet(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
        header: FixedHeader,
        frame: Range<usize>,
        alone: &mut bool,
    ) -> Result<(), End> {
        let kind = header.packet_type();
        let counters = self.tenant.counters(turn.context.worker.id);
        counters.received.add(kind, 1, frame.len() as u64);
        let body = frame.start + header.header_len..frame.end;
        if !matches!(
            kind,
            PacketType::PubAck | PacketType::PubRec | PacketType::PubComp | PacketType::PingReq
        ) {
            // The others have an effect that what was published before must not see.
            self.finish_run(turn, bytes, false)?;
            *alone = false;
        }
        match Packet::decode(self.version, header, &bytes[body])? {
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubComp(ack) => {
                let accepted = !ack.reason.is_error();
                turn.scratch.acks.push(ClientAck { kind, id: ack.packet_id, accepted });
                Ok(())
            }
            Packet::PingReq => {
                // Says that the broker is there, whatever else the client waits for.
                let packet = [PacketType::PingResp.first_byte(), 0];
                turn.scratch.answers.prompt.extend_from_slice(&packet);
                let counters = self.tenant.counters(turn.context.worker.id);
                counters.sent.add(PacketType::PingResp, 1, packet.len() as u64);
                Ok(())
            }
            Packet::PubRel(ack) => self.on_pubrel(turn, &ack),
            Packet::Subscribe(subscribe) => self.on_subscribe(turn, &subscribe),
            Packet::Unsubscribe(unsubscribe) => self.on_unsubscribe(turn, &unsubscribe),
            Packet::Disconnect(disconnect) => Err(self.on_disconnect(&disconnect)),
            // No authentication method was agreed on, so there is none to go on with.
            Packet::Auth(_) => Err(End::Refused(
                ReasonCode::ProtocolError,
                "AUTH without an authentication method",
            )),
            _ => Err(End::Refused(
                ReasonCode::ProtocolError,
                "a client must not send this packet now",
            )),
        }
    }

    fn on_pubrel(&mut self, turn: &mut Turn<'_>, ack: &Ack<'_>) -> Result<(), End> {
        let id = ack.packet_id.get();
        let released = {
            let mut state = self.session.state();
            self.check_owner()?;
            if state.received.is_unfinished(id) {
                // Another connection of the client is just handing it on.
                return Err(End::Refused(ReasonCode::ServerBusy, "released too early"));
            }
            state.received.release(id)
        };
        let (commits, was_noted) = self.session.forget_received(id, released.as_ref());
        turn.scratch.answers.commits.join(&commits.if_holds(Rule::CompleteWhenForgotten));
        let is_known = released.is_some() || was_noted;
        let reason =
            if is_known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        self.put_ack(turn, PacketType::PubComp, ack.packet_id, reason);
        Ok(())
    }

    /// An error if the session is not this connection's any more.
    pub(super) fn check_owner(&self) -> Result<(), End> {
        if self.session.is_owned_by(self.id) { Ok(()) } else { Err(End::SessionTaken) }
    }

    fn on_disconnect(&mut self, packet: &Disconnect<'_>) -> End {
        if let Some(expiry) = packet.properties.session_expiry_interval() {
            if self.expires_at_once && expiry != 0 {
                return End::Refused(
                    ReasonCode::ProtocolError,
                    "a session that expires with its connection cannot be prolonged at its end",
                );
            }
            let expiry = expiry.min(self.limits.max_session_expiry);
            let mut state = self.session.state();
            if let Err(end) = self.check_owner() {
                return end;
            }
            // Noted with the end of the connection.
            state.expiry = expiry;
            self.session.set_survives(expiry > 0);
        }
        // Only a normal disconnection discards the will (MQTT-3.14.4-3).
        End::Disconnected { with_will: packet.reason != ReasonCode::NORMAL_DISCONNECTION }
    }

    /// Appends an acknowledgement to the answers.
    pub(super) fn put_ack(
        &self,
        turn: &mut Turn<'_>,
        kind: PacketType,
        id: PacketId,
        reason: ReasonCode,
    ) {
        self.put_answer(turn, kind, |answers| self.encode_ack(answers, kind, id, reason));
    }

    fn encode_ack(
        &self,
        packets: &mut Vec<u8>,
        kind: PacketType,
        id: PacketId,
        reason: ReasonCode,
    ) {
        if reason == ReasonCode::Success || self.version != Version::V5 {
            let [high, low] = id.get().to_be_bytes();
            packets.extend_from_slice(&[kind.first_byte(), 2, high, low]);
        } else {
            Ack { packet_id: id, reason, properties: Properties::default() }
                .encode(kind, self.version, packets)
                .expect("an acknowledgement can be encoded");
        }
    }

    /// Lets `encode` append one packet to the answers, and counts it.
    pub(super) fn put_answer(
        &self,
        turn: &mut Turn<'_>,
        kind: PacketType,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let answers = &mut turn.scratch.answers.ordered;
        let before = answers.len();
        encode(answers);
        let counters = self.tenant.counters(turn.context.worker.id);
        counters.sent.add(kind, 1, (answers.len() - before) as u64);
    }

    /// Applies the acknowledgements that the client has sent, all under one lock, and sends what they
    /// make room for. An error: one of them is not what the message has to be answered with now.
    fn apply_acks(&mut self, turn: &mut Turn<'_>, out: &mut dyn Write) -> Result<(), End> {
        if turn.scratch.acks.is_empty() {
            return Ok(());
        }
        let counters = self.tenant.counters(turn.context.worker.id);
        let Scratch { acks, answers, .. } = &mut *turn.scratch;
        let mut refused = 0;
        let mut out_of_turn = false;
        let (waiting, commits) = self.session.acknowledge(self.epoch, |outbound, journal| {
            for ack in acks.iter() {
                let id = ack.id.get();
                let acked = match ack.kind {
                    PacketType::PubAck => outbound.on_puback(id, journal),
                    PacketType::PubRec => outbound.on_pubrec(id, ack.accepted, journal),
                    _ => outbound.on_pubcomp(id, journal),
                };
                if acked == Acked::Expected && !ack.accepted {
                    refused += 1;
                }
                if acked == Acked::OutOfTurn {
                    out_of_turn = true;
                    break;
                }
                if ack.kind == PacketType::PubRec && ack.accepted {
                    // Also when it is repeated: that it came before may not be durable yet.
                    journal.open();
                    let reason = match acked {
                        Acked::Expected => ReasonCode::Success,
                        Acked::Unknown | Acked::OutOfTurn => ReasonCode::PacketIdentifierNotFound,
                    };
                    let before = answers.releases.len();
                    self.encode_ack(&mut answers.releases, PacketType::PubRel, ack.id, reason);
                    let bytes = answers.releases.len() - before;
                    counters.sent.add(PacketType::PubRel, 1, bytes as u64);
                }
            }
        });
        answers.releases_after.join(&commits.if_holds(Rule::ReleaseWhenDurable));
        for _ in 0..refused {
            self.session.dropped(&turn.context.worker, DropReason::Refused, None);
        }
        acks.clear();
        if waiting {
            let write = |bytes: &[u8]| out.write(bytes);
            let stint = Stint::of_one_among(turn.writers);
            self.session.drain(&turn.context.worker, self.epoch, false, stint, write);
        }
        if out_of_turn {
            return Err(End::Refused(
                ReasonCode::ProtocolError,
                "an acknowledgement of another kind than the message asks for (MQTT 5 4.3)",
            ));
        }
        Ok(())
    }

    /// Sends the answers.
    fn answer(&mut self, turn: &mut Turn<'_>, out: &mut dyn Write) {
        let answers = &mut turn.scratch.answers;
        if answers.is_empty() {
            // What has no answer waits for nothing, and must not make the next client's answers wait.
            answers.clear();
            return;
        }
        let write = |bytes: &[u8]| out.write(bytes);
        let reads = self.session.answer(
            &turn.context.worker,
            self.epoch,
            answers,
            UNREAD_ANSWERS_MAX,
            write,
        );
        self.reading_paused = !reads;
        answers.clear();
    }

    /// The connection ends: the client is told why, if it can be, and the session learns of it. False: it goes on, as the
    /// session is another connection's, which closes this one.
    pub fn end(&mut self, turn: &mut Turn<'_>, out: &mut dyn Write, end: &End) -> bool {
        if let End::SessionTaken = end {
            self.reading_paused = true;
            return false;
        }
        debug!(
            peer = %self.peer,
            tenant = &*self.tenant.name,
            client = &*self.session.client_id,
            "{end}"
        );
        let worker = &turn.context.worker;
        let told = self.farewell(end);
        let counters = self.tenant.counters(worker.id);
        if !told.is_empty() {
            counters.sent.add(PacketType::Disconnect, 1, told.len() as u64);
            if let End::Closed { farewell: Farewell::AtOnce, .. } = end {
                let _ = out.write(&told);
            } else if self.session.append(self.epoch, &told) {
                let write = |bytes: &[u8]| out.write(bytes);
                self.session.drain(worker, self.epoch, false, Stint::SHORT, write);
            }
        }
        let _ = out.flush();
        let will = !matches!(end, End::Disconnected { with_will: false });
        if will {
            counters.abnormal_disconnects.add(1);
        }
        self.tenant.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(store) = self.tenant.used_state_store() {
            let keys = self.watched.iter().flat_map(|watched| watched.iter()).map(|key| &**key);
            store.forget_watcher(&self.tenant, self.id.0, keys);
        }
        turn.context.connection_gone(&self.tenant, &self.session, self.id, self.epoch, will);
        true
    }

    /// What the client is told at the end: nothing but to MQTT 5 clients, and not in answer to
    /// DISCONNECT.
    fn farewell(&self, end: &End) -> Vec<u8> {
        if self.version != Version::V5 {
            return Vec::new();
        }
        let text = end.to_string();
        match end {
            End::Disconnected { .. }
            | End::Lost(_)
            | End::SessionTaken
            | End::Closed { farewell: Farewell::Silent, .. } => Vec::new(),
            End::Malformed(error) => disconnect(error.reason_code(), &text, self.max_packet_size),
            End::Refused(reason, _) | End::Closed { reason, .. } => {
                disconnect(*reason, &text, self.max_packet_size)
            }
        }
    }
}

/// The DISCONNECT that tells an MQTT 5 client why. The Reason String is left out if the client's Maximum
/// Packet Size does not allow it (MQTT-3.14.2-3).
fn disconnect(reason: ReasonCode, text: &str, max_packet_size: u32) -> Vec<u8> {
    let mut properties = PropertiesBuf::default();
    properties.push(Property::ReasonString(text)).expect("reasons are short");
    let mut packet = Vec::new();
    let with_text = Disconnect { reason, properties: properties.as_properties() };
    with_text.encode(Version::V5, &mut packet).expect("a DISCONNECT can be encoded");
    if packet.len() > max_packet_size as usize {
        packet.clear();
        Disconnect::new(reason).encode(Version::V5, &mut packet).expect("as above");
    }
    packet
}
