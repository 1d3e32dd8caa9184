//! CONNECT: from a stranger to a session.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barid_core::ids;
use barid_core::time::MonoTime;
use barid_engine::access::may_publish;
use barid_engine::names::{full_name, tenant_of};
use barid_engine::session::{Link, Stint};
use mqtt_proto::flow::{InboundAliases, KeepAlive};
use mqtt_proto::{
    ConnAck, Connect, FixedHeader, MAX_PACKET_LEN, PacketType, Properties, PropertiesBuf, Property,
    ReasonCode, Version,
};
use statestore_proto::topics;
use tracing::debug;

use super::active::Active;
use super::denied::WILL_REFUSED;
use super::opening::{Opening, open_session, revoke};
use super::wanted::{Refusal, assigned_client_id, connack_properties, want};
use super::{Connection, End, Stage};
use crate::auth::{PASSWORD_MAX, Verdict};
use crate::strangers::Collected;
use crate::turn::Turn;
use crate::verifier::Login;

/// The logins of an address that has most waiting are not looked at.
const TOO_MANY_LOGINS: Refusal = Refusal(ReasonCode::ServerBusy, "too many logins at once");

/// A CONNECT whose login is being verified.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The packet, to be read again.
    header: FixedHeader,
    body: Box<[u8]>,
    /// The client identifier that the client gets if it has none.
    assigned: Option<String>,
    /// Whoever verifies the login sees by it that it still matters.
    _waits: Arc<()>,
    /// Counts `body`, the login, which has copies of parts of it, and what the client has sent behind.
    collected: Collected,
    pub(super) until: MonoTime,
}

impl Waiting {
    /// Counts so many bytes that the client has sent behind its CONNECT.
    pub(super) fn count_unread(&mut self, bytes: usize) -> std::io::Result<()> {
        self.collected.set(2 * self.body.len() + bytes)
    }
}

impl Connection {
    /// The first packet.
    pub(super) fn on_connect(
        &mut self,
        turn: &mut Turn<'_>,
        header: FixedHeader,
        body: &[u8],
    ) -> Result<(), End> {
        let connect = match Connect::decode(header, body) {
            Ok(connect) => connect,
            Err(error) => {
                let version = Connect::refusal_version(body);
                // A 3.x client is answered only when a return code fits (MQTT-3.1.4-1 of 3.1.1).
                if version == Version::V5 || error == mqtt_proto::DecodeError::UnsupportedVersion {
                    let refusal = Refusal(error.reason_code(), "");
                    self.say_refusal(version, &refusal, MAX_PACKET_LEN);
                }
                return Err(error.into());
            }
        };
        let shared = turn.shared;
        let users = shared.users();
        if users.allow_anybody() {
            return self.admit(turn, &connect, body.len(), Verdict::Allowed(None), None);
        }
        // The rules of the user may name the client, so its identifier must stand before.
        let assigned = match assigned_client_id(&connect, turn.context.engine.random) {
            Ok(assigned) => assigned,
            Err(refusal) => return Err(self.refuse(turn, &connect, &refusal)),
        };
        let mut collected = Collected::new(&self.listener.strangers);
        if collected.set(2 * body.len()).is_err() {
            let refusal = Refusal(ReasonCode::ServerBusy, "too much is to be verified at once");
            return Err(self.refuse(turn, &connect, &refusal));
        }
        let waits = Arc::new(());
        // Of one that is too long so much is kept that this is known.
        let password = connect.password.unwrap_or_default();
        let password = &password[..password.len().min(PASSWORD_MAX + 1)];
        let login = Login {
            waits: Arc::downgrade(&waits),
            users,
            address: self.peer.ip(),
            name: connect.username.unwrap_or_default().to_owned(),
            password: password.to_vec(),
            client_id: assigned.clone().unwrap_or_else(|| connect.client_id.to_owned()),
            connection: self.id,
            reply: {
                let (owner, id) = (Arc::clone(turn.owner), self.id);
                Box::new(move |verdict| owner.authenticated(id, verdict))
            },
        };
        if !shared.verifier.submit(login) {
            return Err(self.refuse(turn, &connect, &TOO_MANY_LOGINS));
        }
        let timeout = shared.settings().limits.connect_timeout;
        let until = turn.context.worker.now.after(Duration::from_secs(u64::from(timeout)));
        self.stage = Stage::Authenticating(Box::new(Waiting {
            header,
            body: body.into(),
            assigned,
            _waits: waits,
            collected,
            until,
        }));
        Ok(())
    }

    /// The verdict on a login is here.
    pub(super) fn accept(
        &mut self,
        turn: &mut Turn<'_>,
        waiting: &Waiting,
        verdict: Verdict,
    ) -> Result<(), End> {
        let connect = Connect::decode(waiting.header, &waiting.body)?;
        self.admit(turn, &connect, waiting.body.len(), verdict, waiting.assigned.clone())
    }

    fn admit(
        &mut self,
        turn: &mut Turn<'_>,
        connect: &Connect<'_>,
        len: usize,
        verdict: Verdict,
        assigned: Option<String>,
    ) -> Result<(), End> {
        match self.try_admit(turn, connect, len, verdict, assigned) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.refuse(turn, connect, &refusal)),
        }
    }

    fn try_admit(
        &mut self,
        turn: &mut Turn<'_>,
        connect: &Connect<'_>,
        len: usize,
        verdict: Verdict,
        assigned: Option<String>,
    ) -> Result<(), Refusal> {
        let context = &mut *turn.context;
        let shared = Arc::clone(turn.shared);
        let permissions = match verdict {
            Verdict::Allowed(permissions) => permissions,
            Verdict::Denied => {
                return Err(Refusal(
                    ReasonCode::BadUserNameOrPassword,
                    "user name or password is wrong",
                ));
            }
            Verdict::Busy => return Err(TOO_MANY_LOGINS),
        };
        let tenant = tenant_of(connect.username).ok_or(Refusal(
            ReasonCode::BadUserNameOrPassword,
            "the user name must be {tenant}/{client}, or have no slash",
        ))?;
        let random = context.engine.random;
        let assigned = assigned.map(Ok).or_else(|| assigned_client_id(connect, random).transpose());
        let assigned = assigned.transpose()?;
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let tenant = context
            .tenant(tenant)
            .ok_or(Refusal(ReasonCode::QuotaExceeded, "there are too many tenants"))?;
        let limits = tenant.limits();
        let durability = tenant.durability();
        if client_id.len() > limits.max_client_id_bytes.min(ids::TEXT_LEN_MAX) {
            return Err(Refusal(
                ReasonCode::ClientIdentifierNotValid,
                "the client identifier is too long",
            ));
        }
        if tenant.sessions.len() >= limits.max_sessions
            && tenant.sessions.entry(client_id).get().is_none()
        {
            return Err(Refusal(ReasonCode::QuotaExceeded, "the tenant has too many sessions"));
        }
        let wanted = want(connect, &limits)?;
        if let Some(will) = &connect.will
            && (will.topic == topics::INVOKE
                || !may_publish(permissions.as_deref(), client_id, will.topic, will.payload))
        {
            return Err(Refusal(ReasonCode::NotAuthorized, WILL_REFUSED));
        }
        if wanted.expiry > 0
            && (wanted.persist || durability.stores_sessions())
            && tenant.shards.of(&tenant.name, client_id).refuses()
            && tenant.sessions.entry(client_id).get().is_none()
        {
            return Err(Refusal(
                ReasonCode::QuotaExceeded,
                "the broker's disk takes no new session that is to be kept",
            ));
        }
        // A client that comes back while its old connection is still there takes no room.
        let comes_back =
            tenant.sessions.entry(client_id).get().is_some_and(|session| session.is_online());
        if tenant.connections.fetch_add(1, Ordering::Relaxed) >= limits.max_connections
            && !comes_back
        {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal(ReasonCode::QuotaExceeded, "the tenant has too many connections"));
        }
        let opening = Opening {
            version: connect.version,
            clean_start: connect.clean_start,
            client_id,
            user: permissions
                .is_some()
                .then(|| full_name(connect.username.unwrap_or_default()).into()),
            properties: connack_properties(
                connect,
                &limits,
                &durability,
                &wanted,
                assigned.as_deref(),
            ),
        };
        let link = Link {
            version: connect.version,
            max_packet_size: wanted.max_packet_size,
            wire: self.transport.wire(),
            owner: turn.owner.clone(),
            connection: self.id,
        };
        if opening.connack(true).len() > wanted.max_packet_size as usize {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal(ReasonCode::PacketTooLarge, "CONNACK is larger than you accept"));
        }
        let keep_alive = wanted.keep_alive;
        let max_packet_size = wanted.max_packet_size;
        let expires_at_once = wanted.expiry == 0;
        let Some((session, epoch)) = open_session(context, &tenant, &opening, link, wanted) else {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal(
                ReasonCode::NotAuthorized,
                "the client identifier is another user's",
            ));
        };
        let counters = tenant.counters(context.worker.id);
        counters.received.add(PacketType::Connect, 1, len as u64 + 2);
        counters.connects.add(1);
        let revoked =
            permissions.as_ref().map(|permissions| revoke(&tenant, &session, permissions));
        debug!(
            peer = %self.peer,
            listener = self.listener.name,
            tenant = &*tenant.name,
            client = client_id,
            version = ?connect.version,
            "connected"
        );
        let active = Active {
            id: self.id,
            peer: self.peer,
            tenant,
            session,
            epoch,
            version: connect.version,
            is_bridge: connect.is_bridge,
            keep_alive: KeepAlive::new(keep_alive, context.worker.now.as_millis()),
            aliases: InboundAliases::new(limits.topic_alias_maximum),
            permissions,
            limits,
            durability,
            since: shared.engine.clock.wall(),
            expires_at_once,
            max_packet_size,
            reading_paused: false,
            interrupted: false,
            unfinished: None,
            partner: None,
            watched: Default::default(),
        };
        for filter in revoked.iter().flatten() {
            active.deny_subscribed(turn, filter);
        }
        let context = &mut *turn.context;
        let transport = &mut self.transport;
        let write = |bytes: &[u8]| transport.write(bytes);
        active.session.drain(&context.worker, epoch, false, Stint::SHORT, write);
        self.stage = Stage::Active(Box::new(active));
        Ok(())
    }

    fn refuse(&mut self, turn: &Turn<'_>, connect: &Connect<'_>, refusal: &Refusal) -> End {
        let context = &turn.context;
        let is_configured = |tenant: &str| turn.shared.users().are_in(tenant);
        if let Some(tenant) = context.tenant_of_stranger(connect.username, is_configured) {
            tenant.counters(context.worker.id).refused_connects.add(1);
            self.deny(turn, &tenant, connect, refusal);
        }
        let most = connect.properties.maximum_packet_size().map_or(MAX_PACKET_LEN, |n| n as usize);
        self.say_refusal(connect.version, refusal, most);
        End::Refused(refusal.0, refusal.1)
    }

    /// Sends the CONNACK that refuses, as long as the client's Maximum Packet Size allows.
    fn say_refusal(&mut self, version: Version, Refusal(reason, text): &Refusal, most: usize) {
        let mut properties = PropertiesBuf::default();
        if version == Version::V5 && !text.is_empty() {
            properties.push(Property::ReasonString(text)).expect("reasons are short");
        }
        let mut packet = Vec::new();
        for properties in [properties.as_properties(), Properties::default()] {
            packet.clear();
            ConnAck { session_present: false, reason: *reason, properties }
                .encode(version, &mut packet)
                .expect("a CONNACK can be encoded");
            if packet.len() <= most {
                // A client that cannot even take these few bytes will see the connection close.
                let _ = self.transport.write(&packet);
                return;
            }
        }
    }
}
