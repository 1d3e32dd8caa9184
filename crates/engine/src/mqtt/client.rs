//! A client that has a session: handling of its packets, and the end of its connection.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::holder::Holder;
use barid_core::session::Acked;
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashSet;
use mqtt_proto::flow::{InboundAliases, KeepAlive};
use mqtt_proto::{
    Ack, Auth, DecodeError, Disconnect, FixedHeader, Packet, PacketId, PacketType, Properties,
    PropertiesBuf, Property, ReasonCode, Version,
};
use tracing::debug;

use super::End;
use super::announced::Announced;
use super::subscribe::Unfinished;
use crate::access::Permissions;
use crate::durability::Durability;
use crate::durable::Commits;
use crate::events::{self, Event};
use crate::faults::{IfHolds as _, Rule};
use crate::ids::ConnectionId;
use crate::limits::{Limits, Quota};
use crate::owner::{Farewell, Owner, is_same};
use crate::quotas::Metered;
use crate::session::{Requests, Session, SessionRef, Stint};
use crate::tapping::{Protocol, Tap};
use crate::tenant::Tenant;
use crate::turn::{ClientAck, Scratch, Turn};
use crate::user_limits::UserLimits;

/// Maximum size of the answers that wait for a client, in bytes. Beyond, the broker stops reading from the
/// client, and resumes when half of it or less is left.
const UNREAD_ANSWERS_MAX: usize = 512 * 1024;

/// Maximum number of requests to the state store that are executed before the broker checks whether the
/// client reads the responses.
const REQUESTS_TOGETHER: usize = 16;

/// Maximum number of notifications that these requests may cause together, if each changes the key that has
/// the most watchers. With many watchers fewer requests are executed together, but at least one.
const NOTIFICATIONS_TOGETHER: usize = 16 * 1024;

/// Maximum number of acknowledgements that are applied under one lock. The packets beyond wait for the next
/// call of [`Client::handle`].
const ACKS_TOGETHER: usize = 1024;

/// A client that has a session, with its connection.
#[derive(Debug)]
pub struct Client {
    pub(super) id: ConnectionId,
    /// The address of the client.
    pub(super) peer: SocketAddr,
    pub(super) tenant: Arc<Tenant>,
    pub(super) session: SessionRef,
    /// The epoch of the outlet that belongs to this connection.
    pub(super) epoch: u32,
    pub(super) version: Version,
    /// See [`Connect::is_bridge`](mqtt_proto::Connect::is_bridge).
    pub(super) is_bridge: bool,
    pub(super) keep_alive: KeepAlive,
    pub(super) aliases: InboundAliases,
    /// The permissions of the user; `None`: everything is allowed.
    pub(super) permissions: Option<Arc<Permissions>>,
    /// The user, if there are users.
    pub(super) holder: Option<Arc<Holder>>,
    /// The enhanced authentication, if CONNECT named a method.
    pub(super) auth: Option<Box<ClientAuth>>,
    /// The tenant's limits, as of the last [`Self::check_quotas`].
    pub(super) limits: Arc<Limits>,
    /// The limits of which CONNACK has told the client.
    pub(super) announced: Announced,
    /// The tenant's durability classes when the client connected.
    pub(super) durability: Arc<Durability>,
    /// Wall time at which the connection began.
    pub(super) since: WallTime,
    /// Whether the Session Expiry Interval of the CONNECT was 0, so that DISCONNECT may not raise it
    /// (MQTT-3.14.2-2).
    pub(super) expires_at_once: bool,
    /// The client's Maximum Packet Size.
    pub(super) max_packet_size: u32,
    /// The client's Receive Maximum.
    pub(super) receive_maximum: u16,
    /// Whether reading from the client is paused: too many answers wait for it, because it does not read them
    /// or because they are not durable yet, or it has lost its session.
    pub(super) reading_paused: bool,
    /// Whether some of the bytes read have not been handled: the kept bytes may contain whole packets.
    pub(super) interrupted: bool,
    /// A packet that has been handled in part.
    pub(super) unfinished: Option<Box<Unfinished>>,
    /// The only session that got the client's last messages, if there was exactly one.
    pub(super) partner: Option<Partner>,
    /// The last messages on the links to other brokers.
    pub(super) sent: Commits,
    /// What the client has published on earlier connections and other brokers may not have yet, so that it is not read from.
    pub(super) awaited: Option<Box<Awaited>>,
    /// The keys of the state store that the connection watches.
    pub(super) watched: Option<Box<HashSet<Box<[u8]>>>>,
    /// The requests to the state store of another broker, if the client has ever sent one.
    pub(super) requests: Option<Arc<Requests>>,
    /// The quotas that the connection is under.
    pub(super) metered: Metered,
    /// Whether a quota limits what is sent to the client.
    pub(super) is_paced: bool,
    /// Until when the client is not read from, because of the cluster. Then it looks again.
    pub(super) cluster_waits_until: Option<MonoTime>,
    /// Receives copies of what passes on the connection.
    pub(super) tap: Option<Arc<dyn Tap>>,
}

/// Messages of earlier connections on their way to other brokers.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) commits: Commits,
    /// A client must not wait for ever for a broker that cannot be reached. Later messages may overtake the earlier ones then.
    pub(super) until: MonoTime,
}

/// A session that a client publishes to. The reference does not keep the session in memory.
#[derive(Debug)]
pub(super) struct Partner {
    pub(super) id: u64,
    pub(super) session: Weak<Session>,
}

/// The enhanced authentication of a client.
#[derive(Debug)]
pub(super) struct ClientAuth {
    /// The Authentication Method of CONNECT.
    pub(super) method: Box<str>,
    /// An AUTH that the caller has not taken yet.
    pub(super) received: Option<AuthReceived>,
}

/// An AUTH of a client.
#[derive(Debug)]
pub struct AuthReceived {
    /// Whether the client begins to authenticate again. Otherwise it answers an AUTH of the broker.
    pub is_again: bool,
    /// The Authentication Data.
    pub data: Box<[u8]>,
}

/// Encodes an AUTH.
pub fn encode_auth(method: &str, reason: ReasonCode, data: Option<&[u8]>) -> Vec<u8> {
    let mut properties = PropertiesBuf::default();
    let mut put = |property| properties.push(property).expect("methods and messages are short");
    put(Property::AuthenticationMethod(method));
    if let Some(data) = data {
        put(Property::AuthenticationData(data));
    }
    let mut packet = Vec::new();
    Auth { reason, properties: properties.as_properties() }
        .encode(Version::V5, &mut packet)
        .expect("an AUTH can be encoded");
    packet
}

impl Client {
    /// The limits that the user has of its own.
    pub(super) fn own_limits(&self) -> &UserLimits {
        self.permissions.as_ref().map_or(&UserLimits::NONE, |permissions| permissions.limits())
    }

    /// Time at which [`Self::on_time`] must be called at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        let keep_alive = self.keep_alive.deadline_ms().map(MonoTime::from_millis);
        let waits = [self.metered.waits_until(), self.cluster_waits_until].into_iter().flatten();
        [keep_alive, waits.max(), self.paced_until()].into_iter().flatten().min()
    }

    /// Checks the Keep Alive, and ends waits for quotas that are over. Returns whether the client may be read
    /// from again.
    ///
    /// # Errors
    /// The client has been silent for too long.
    pub fn on_time(&mut self, now: MonoTime) -> Result<bool, End> {
        let was_held_back = self.is_held_back();
        if self.keep_alive.is_expired(now.as_millis()) {
            let waits = was_held_back || (self.reading_paused && self.paced_until().is_some());
            if !waits {
                return Err(End::Refused(
                    ReasonCode::KeepAliveTimeout,
                    "no packet within one and a half times the Keep Alive",
                ));
            }
            // The client may have sent packets that the broker has not read, because of a quota.
            self.keep_alive.packet_received(now.as_millis());
        }
        Ok(was_held_back && !self.waits_for_cluster(now) && !self.metered.waits(now))
    }

    /// Whether the connection may move to another thread: messages of that thread reach other brokers on links of its
    /// own, and must not overtake those that are under way.
    pub fn may_move(&self) -> bool {
        self.sent.is_empty() || self.tenant.shards.sources().are_done(&self.sent)
    }

    /// Whether reading from the client is paused until its answers have been sent.
    pub fn is_paused(&self) -> bool {
        self.reading_paused
    }

    /// Whether some of the bytes read have not been handled, and must be passed to [`Self::handle`] again.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The connection of the only session that got the client's last messages, if that connection belongs to
    /// the same thread.
    pub fn partner(&self, owner: &Arc<dyn Owner>) -> Option<ConnectionId> {
        let partner = SessionRef::upgrade(&self.partner.as_ref()?.session)?;
        partner.inspect(|_, link| {
            link.filter(|link| is_same(owner, &link.owner)).map(|link| link.connection)
        })
    }

    /// The session, and the epoch of this connection.
    pub fn attachment(&self) -> (SessionRef, u32) {
        (self.session.clone(), self.epoch)
    }

    /// Sends what waits for the client. `writable`: the kernel has reported that the socket has room again.
    pub fn drain(&mut self, turn: &Turn<'_>, out: &mut dyn Write, writable: bool) {
        self.check_quotas(&turn.context.worker);
        self.check_tap();
        let stint = Stint::of_one_among(turn.writers);
        let write = |bytes: &[u8]| out.write(bytes);
        self.session.drain(&turn.context.worker, self.epoch, writable, stint, write);
    }

    /// Resumes reading if few enough answers wait for the client. Returns whether reading is resumed.
    pub fn resume_reading(&mut self) -> bool {
        let resumed = self.reading_paused
            && !self.waits_for_other_broker()
            && self.session.may_read_again(self.epoch, UNREAD_ANSWERS_MAX / 2);
        self.reading_paused &= !resumed;
        resumed
    }

    /// Whether so many requests to the state store of another broker are unanswered that the client is not read from.
    fn waits_for_other_broker(&self) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.are_many())
    }

    /// Returns the name of the client's tenant.
    pub fn tenant_name(&self) -> &str {
        &self.tenant.name
    }

    /// Returns the client identifier.
    pub fn client_id(&self) -> &str {
        &self.session.client_id
    }

    /// The client, as events name it.
    pub(super) fn as_told(&self) -> events::Client<'_> {
        events::Client {
            id: &self.session.client_id,
            user: self.holder.as_ref().map(|holder| holder.name()),
            protocol: Protocol::Mqtt(self.version),
            connection: self.id,
            peer: self.peer,
        }
    }

    /// Handles the whole packets in `bytes`, after the rest of an unfinished packet, and sends the answers.
    /// Returns the number of bytes handled.
    ///
    /// # Errors
    /// The reason why the connection ends.
    pub fn handle(
        &mut self,
        turn: &mut Turn<'_>,
        out: &mut dyn Write,
        bytes: &mut [u8],
    ) -> Result<usize, End> {
        self.check_owner()?;
        self.check_quotas(&turn.context.worker);
        self.check_tap();
        self.interrupted = false;
        let mut handled = 0;
        let mut alone = true;
        let was_unfinished = self.unfinished.is_some();
        let mut result = self.resume(turn);
        while result.is_ok() && self.unfinished.is_none() {
            let rest = &bytes[handled..];
            let header = match FixedHeader::read(rest, self.announced.max_packet_size) {
                Ok(Some(header)) if header.packet_len() <= rest.len() => header,
                Ok(_) => break,
                Err(error) => {
                    if error == DecodeError::TooLarge {
                        let client_id = &self.session.client_id;
                        let worker = &turn.context.worker;
                        self.tenant.refused(worker, Quota::MaxPacketSize, client_id);
                    }
                    result = Err(error.into());
                    break;
                }
            };
            let worker = &turn.context.worker;
            if !self.may_be_answered(worker, turn.scratch, header)
                || (header.packet_type() == PacketType::Publish
                    && (self.is_held(turn.context.worker.now)
                        || !self.may_publish(&turn.context.worker)))
            {
                self.interrupted = true;
                break;
            }
            let frame = handled..handled + header.packet_len();
            handled = frame.end;
            if let Some(tap) = &self.tap {
                tap.received(&bytes[frame.clone()]);
            }
            result = if header.packet_type() == PacketType::Publish {
                self.on_publish(turn, bytes, header, frame, &mut alone)
            } else {
                self.on_packet(turn, bytes, header, frame, &mut alone)
            };
            if turn.scratch.run.is_requests && turn.scratch.run.len() >= self.requests_together() {
                result = result.and_then(|()| self.finish_run(turn, bytes, false));
                alone = false;
                // Other connections have their turn, or the client must read its responses first.
                if turn.scratch.responses.are_much()
                    || self.session.has_unread_messages(self.epoch)
                    || self.waits_for_other_broker()
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
        self.metered.rest();
        // An unfinished packet counts for Keep Alive as well: packets behind it, perhaps a PINGREQ, wait for
        // it.
        if handled > 0 || was_unfinished {
            self.keep_alive.packet_received(turn.context.worker.now.as_millis());
        }
        // Packets before an error take effect, and their answers are sent before the DISCONNECT.
        let finished = self.finish_run(turn, bytes, alone);
        let acked = self.apply_acks(turn, out);
        self.answer(turn, out);
        result.and(finished).and(acked).map(|()| handled)
    }

    /// Notes whether the connection is tapped. Traces begin and end at any time.
    fn check_tap(&mut self) {
        if self.tenant.account.traced.is_used() {
            // The tap of a connection that has lost its session is told of the end.
            self.tap = self.session.tap(self.epoch).or(self.tap.take());
        } else if self.tap.is_some() {
            self.tap = None;
        }
    }

    /// Number of requests to execute together. Any of them may change the key that has the most watchers.
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
            // Other packets may change how messages are published. The messages before them must not be
            // affected.
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
                // PINGRESP shows that the broker is alive, so it does not wait behind other answers.
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
            Packet::Auth(auth) => self.on_auth(&auth),
            _ => Err(End::Refused(
                ReasonCode::ProtocolError,
                "a client must not send this packet now",
            )),
        }
    }

    /// Keeps what an AUTH says for the caller, who authenticates the client again (MQTT 5, section 4.12.1).
    fn on_auth(&mut self, auth: &Auth<'_>) -> Result<(), End> {
        let method = auth.properties.authentication_method();
        let is_again = match auth.reason {
            ReasonCode::ReAuthenticate => true,
            ReasonCode::ContinueAuthentication => false,
            _ => {
                return Err(End::Refused(
                    ReasonCode::ProtocolError,
                    "AUTH of a client with Success",
                ));
            }
        };
        let own = self.auth.as_deref_mut().filter(|own| method == Some(&*own.method));
        let Some(own) = own else {
            let reason = "AUTH without the authentication method of CONNECT";
            return Err(End::Refused(ReasonCode::ProtocolError, reason));
        };
        if own.received.is_some() {
            let reason = "AUTH before the previous one was answered";
            return Err(End::Refused(ReasonCode::ProtocolError, reason));
        }
        let data = auth.properties.authentication_data().unwrap_or_default();
        own.received = Some(AuthReceived { is_again, data: data.into() });
        Ok(())
    }

    /// Returns what the last AUTH said, once.
    pub fn take_auth(&mut self) -> Option<AuthReceived> {
        self.auth.as_mut()?.received.take()
    }

    /// Returns the Authentication Method of the client's CONNECT.
    pub fn auth_method(&self) -> Option<&str> {
        self.auth.as_ref().map(|own| &*own.method)
    }

    /// Sends an AUTH.
    pub fn send_auth(
        &mut self,
        turn: &mut Turn<'_>,
        out: &mut dyn Write,
        reason: ReasonCode,
        data: Option<&[u8]>,
    ) {
        let Some(own) = &self.auth else { return };
        let packet = encode_auth(&own.method, reason, data);
        let counters = self.tenant.counters(turn.context.worker.id);
        counters.sent.add(PacketType::Auth, 1, packet.len() as u64);
        turn.scratch.answers.prompt.extend_from_slice(&packet);
        self.answer(turn, out);
    }

    fn on_pubrel(&mut self, turn: &mut Turn<'_>, ack: &Ack<'_>) -> Result<(), End> {
        let id = ack.packet_id.get();
        let released = {
            let mut state = self.session.state();
            self.check_owner()?;
            if state.received.is_unfinished(id) {
                // Another connection of the client is still publishing the message.
                return Err(End::Refused(
                    ReasonCode::ServerBusy,
                    "PUBREL came while another connection still publishes the message",
                ));
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

    /// Returns an error if this connection does not have the session any more.
    pub(super) fn check_owner(&self) -> Result<(), End> {
        if self.session.is_owned_by(self.id) { Ok(()) } else { Err(End::SessionTaken) }
    }

    fn on_disconnect(&mut self, packet: &Disconnect<'_>) -> End {
        if let Some(expiry) = packet.properties.session_expiry_interval() {
            if self.expires_at_once && expiry != 0 {
                return End::Refused(
                    ReasonCode::ProtocolError,
                    "a Session Expiry Interval of 0 cannot be changed in DISCONNECT",
                );
            }
            let expiry = expiry.min(self.limits.max_session_expiry);
            let mut state = self.session.state();
            if let Err(end) = self.check_owner() {
                return end;
            }
            // The new expiry is noted in the store at the end of the connection.
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

    /// Appends the one packet that `encode` writes to the answers, and counts it.
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

    /// Applies the acknowledgements that the client has sent, all under one lock, and sends messages for
    /// which they made room. Returns an error if an acknowledgement is not the one that its message requires
    /// at this point.
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
                    // A repeated PUBREC waits as well: the receipt of the first one may not be durable yet.
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
                "the acknowledgement does not match the QoS of the message (MQTT 5 4.3)",
            ));
        }
        Ok(())
    }

    /// Sends the answers.
    fn answer(&mut self, turn: &mut Turn<'_>, out: &mut dyn Write) {
        let answers = &mut turn.scratch.answers;
        self.metered.end_answers(turn.context.worker.now, answers.len());
        if answers.is_empty() {
            // The scratch memory is shared: commits that remain from packets without an answer must not delay
            // the answers to the next client.
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
        self.reading_paused = !reads || self.waits_for_other_broker();
        answers.clear();
        if let Some(tap) = &self.tap {
            tap.waits();
        }
    }

    /// Ends the connection: tells the client the reason if possible, and detaches the session. Returns false
    /// if the connection goes on, because another connection has the session and closes this one.
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
                let written = out.write(&told);
                if let (Some(tap), Ok(written)) = (&self.tap, written) {
                    tap.sent(&told[..written]);
                }
            } else if self.session.append(self.epoch, &told) {
                let write = |bytes: &[u8]| out.write(bytes);
                self.session.drain(worker, self.epoch, false, Stint::SHORT, write);
            }
        }
        let _ = out.flush();
        if let Some(tap) = &self.tap {
            tap.ended(&end.to_string());
        }
        let events = &turn.context.engine.events;
        if events.are_heard() {
            let (tenant, client, reason) = (&*self.tenant.name, &self.as_told(), &*end.to_string());
            events.tell(&Event::Disconnected { tenant, client, reason });
        }
        let will = !matches!(end, End::Disconnected { with_will: false });
        if will {
            counters.abnormal_disconnects.add(1);
        }
        // First: it notes the keys that have come to this broker.
        self.end_inquiries(turn);
        if let Some(store) = self.tenant.used_state_store() {
            let keys = self.watched.iter().flat_map(|watched| watched.iter()).map(|key| &**key);
            store.forget_watcher(&self.tenant, self.id.0, keys);
        }
        turn.context.connection_gone(&self.tenant, &self.session, self.id, self.epoch, will);
        true
    }

    /// Returns the DISCONNECT for the client. It is empty for MQTT 3 clients, in answer to a DISCONNECT, and
    /// where no packet may be sent any more.
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

/// Encodes a DISCONNECT for an MQTT 5 client. The Reason String is left out if it does not fit into the
/// client's Maximum Packet Size (MQTT-3.14.2-3).
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
