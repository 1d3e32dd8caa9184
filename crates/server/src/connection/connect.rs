//! CONNECT: from a stranger to a session.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barid_core::message::{Message, Publication};
use barid_core::time::Timestamp;
use mqtt_proto::flow::{InboundAliases, KeepAlive, OutboundAliases};
use mqtt_proto::{
    ConnAck, Connect, MAX_PACKET_LEN, PacketType, Properties, PropertiesBuf, Property, PropertyId,
    QoS, ReasonCode, Version, topic,
};
use tracing::debug;

use super::active::Active;
use super::{Connection, End, Stage, Turn};
use crate::auth::{Login, Permissions, Verdict, may_publish};
use crate::housekeeping::Task;
use crate::lifecycle::{Context, unsubscribe};
use crate::session::{Link, SessionRef, Will};
use crate::settings::Limits;
use crate::tenant::{DEFAULT_TENANT, Tenant, tenant_of};

/// A CONNECT whose login is being verified.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The packet, to be read again.
    body: Box<[u8]>,
    /// The client identifier that the client gets if it has none.
    assigned: Option<String>,
    /// Whoever verifies the login sees by it that it still matters.
    _waits: Arc<()>,
    pub(super) until: Timestamp,
}

/// Why a client does not get in.
#[derive(Debug)]
struct Refusal(ReasonCode, &'static str);

/// A CONNECT that has passed all checks: what the session will be like.
struct Wanted {
    expiry: u32,
    keep_alive: u16,
    receive_maximum: u16,
    max_packet_size: usize,
    aliases: Option<Box<OutboundAliases>>,
    will: Option<Box<Will>>,
}

impl Connection {
    /// The first packet, without its fixed header.
    pub(super) fn on_connect(&mut self, turn: &mut Turn<'_>, body: &[u8]) -> Result<(), End> {
        let connect = match Connect::decode(body) {
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
        let shared = Arc::clone(&turn.context.worker.shared);
        let users = shared.users();
        if users.allow_anybody() {
            return self.admit(turn, &connect, body.len(), Verdict::Allowed(None), None);
        }
        // The rules of the user may name the client, so its identifier must stand before.
        let assigned = match assigned_client_id(&connect) {
            Ok(assigned) => assigned,
            Err(refusal) => return Err(self.refuse(turn, &connect, &refusal)),
        };
        let waits = Arc::new(());
        let login = Login {
            waits: Arc::downgrade(&waits),
            users,
            name: connect.username.unwrap_or_default().to_owned(),
            password: connect.password.unwrap_or_default().to_vec(),
            client_id: assigned.clone().unwrap_or_else(|| connect.client_id.to_owned()),
            reply_to: (turn.mailbox.clone(), self.id),
        };
        if !shared.verifier.submit(login) {
            let refusal = Refusal(ReasonCode::ServerBusy, "too many logins at once");
            return Err(self.refuse(turn, &connect, &refusal));
        }
        let timeout = shared.settings().limits.connect_timeout;
        let until = turn.context.worker.now.after(Duration::from_secs(u64::from(timeout)));
        self.stage = Stage::Authenticating(Box::new(Waiting {
            body: body.into(),
            assigned,
            _waits: waits,
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
        let connect = Connect::decode(&waiting.body)?;
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
        let shared = Arc::clone(&context.worker.shared);
        let Verdict::Allowed(permissions) = verdict else {
            return Err(Refusal(
                ReasonCode::BadUserNameOrPassword,
                "user name or password is wrong",
            ));
        };
        let tenant = tenant_of(connect.username).ok_or(Refusal(
            ReasonCode::BadUserNameOrPassword,
            "the user name must be {tenant}/{client}, or have no slash",
        ))?;
        let assigned = assigned.map(Ok).or_else(|| assigned_client_id(connect).transpose());
        let assigned = assigned.transpose()?;
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let mut is_new = false;
        let tenant = shared
            .tenants
            .get_or_create(tenant, || {
                is_new = true;
                shared.settings().limits_of(tenant)
            })
            .ok_or(Refusal(ReasonCode::QuotaExceeded, "there are too many tenants"))?;
        if is_new {
            let task = Task::PublishSys(Arc::clone(&tenant));
            shared.housekeeping.schedule(context.worker.now, task);
        }
        let limits = tenant.limits();
        if client_id.len() > limits.max_client_id_bytes {
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
        if permissions.is_some() && !is_own(&tenant, client_id, connect.username) {
            return Err(Refusal(
                ReasonCode::NotAuthorized,
                "the client identifier is another user's",
            ));
        }
        let wanted = want(connect, &limits)?;
        if let Some(will) = &connect.will
            && !may_publish(permissions.as_deref(), will.topic)
        {
            return Err(Refusal(ReasonCode::NotAuthorized, "the will's topic is not allowed"));
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
            user: connect.username.filter(|_| permissions.is_some()),
            properties: connack_properties(connect, &limits, &wanted, assigned.as_deref()),
        };
        let link = Link {
            version: connect.version,
            max_packet_size: wanted.max_packet_size,
            socket: self.transport.direct_socket(),
            owner: turn.mailbox.clone(),
            connection: self.id,
        };
        if opening.connack(true).len() > wanted.max_packet_size {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal(ReasonCode::PacketTooLarge, "CONNACK is larger than you accept"));
        }
        let keep_alive = wanted.keep_alive;
        let max_packet_size = wanted.max_packet_size;
        let expires_at_once = wanted.expiry == 0;
        let counters = tenant.counters(context.worker.id);
        counters.received.add(PacketType::Connect, 1, len as u64 + 2);
        counters.connects.add(1);
        let (session, epoch) = context.open_session(&tenant, &opening, link, wanted);
        if let Some(permissions) = &permissions {
            revoke(&session, permissions);
        }
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
            session,
            epoch,
            version: connect.version,
            keep_alive: KeepAlive::new(keep_alive, context.worker.now.as_millis()),
            aliases: InboundAliases::new(limits.topic_alias_maximum),
            permissions,
            limits,
            expires_at_once,
            max_packet_size,
            reading_paused: false,
            partner: None,
        };
        self.transport.set_frame_max(2 * active.limits.max_packet_size);
        let transport = &mut self.transport;
        active.session.drain(&context.worker, epoch, false, |bytes| transport.write(bytes));
        self.stage = Stage::Active(Box::new(active));
        Ok(())
    }

    fn refuse(&mut self, turn: &Turn<'_>, connect: &Connect<'_>, refusal: &Refusal) -> End {
        let tenants = &turn.context.worker.shared.tenants;
        let tenant = tenant_of(connect.username).and_then(|tenant| tenants.get(tenant));
        if let Some(tenant) = tenant.or_else(|| tenants.get(DEFAULT_TENANT)) {
            tenant.counters(turn.context.worker.id).refused_connects.add(1);
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

/// What is needed to open a session, besides what it will be like.
struct Opening<'a> {
    version: Version,
    clean_start: bool,
    client_id: &'a str,
    /// The user, if there are users.
    user: Option<&'a str>,
    properties: PropertiesBuf,
}

impl Opening<'_> {
    fn connack(&self, session_present: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        let properties = self.properties.as_properties();
        ConnAck { session_present, reason: ReasonCode::Success, properties }
            .encode(self.version, &mut packet)
            .expect("a CONNACK can be encoded");
        packet
    }
}

impl Context {
    /// Opens the session of a client: resumes it, or begins a new one (MQTT 5 §3.1.2.4). A connection
    /// that the client had before is closed.
    fn open_session(
        &mut self,
        tenant: &Arc<Tenant>,
        opening: &Opening<'_>,
        link: Link,
        wanted: Wanted,
    ) -> (SessionRef, u32) {
        let mut ended = None;
        let mut entry = tenant.sessions.entry(opening.client_id);
        let resumed = match entry.get().cloned() {
            // A session that expires with its connection is over when another connection comes.
            Some(old) if opening.clean_start || old.state().expiry == 0 => {
                entry.remove();
                ended = Some(old);
                None
            }
            other => other,
        };
        let present = resumed.is_some();
        let session = resumed.unwrap_or_else(|| {
            let id = self.worker.shared.next_session_id();
            let session = SessionRef::new(id, Arc::clone(tenant), opening.client_id);
            entry.insert(session.clone());
            session
        });
        let old_will = {
            let mut state = session.state();
            session.set_owner(&mut state, link.connection);
            state.user = opening.user.map(Box::from);
            state.expiry = wanted.expiry;
            std::mem::replace(&mut state.will, wanted.will)
        };
        let connack = opening.connack(present);
        let counters = tenant.counters(self.worker.id);
        counters.sent.add(PacketType::ConnAck, 1, connack.len() as u64);
        let survives = wanted.expiry > 0;
        let (epoch, had_client) =
            session.attach(link, wanted.receive_maximum, survives, wanted.aliases, &connack);
        drop(entry);

        if had_client {
            counters.take_overs.add(1);
            // The old connection has ended without DISCONNECT. A will with a delay is cancelled by
            // the new one (MQTT-3.1.3-9).
            if let Some(will) = old_will.filter(|will| will.delay == 0) {
                self.publish_will_message(&session, &will);
            }
        }
        if let Some(old) = ended {
            if old.is_online() {
                counters.take_overs.add(1);
            }
            self.end_session(&old);
        }
        (session, epoch)
    }
}

/// Takes away the subscriptions of a resumed session that its user may not have any more.
fn revoke(session: &SessionRef, permissions: &Permissions) {
    let mut state = session.state();
    let revoked: Vec<_> = state
        .subscriptions
        .iter()
        .map(|subscription| subscription.filter.clone())
        .filter(|filter| !permissions.may_subscribe(shared_filter(filter)))
        .collect();
    for filter in revoked {
        state.subscriptions.remove(&filter);
        unsubscribe(&session.tenant, &filter, session.id);
    }
}

/// The Topic Filter behind `$share/{name}/`, or the filter itself.
fn shared_filter(filter: &str) -> &str {
    topic::parse_shared(filter).ok().flatten().map_or(filter, |shared| shared.filter)
}

/// Whether no other user has a session with this client identifier.
fn is_own(tenant: &Tenant, client_id: &str, user: Option<&str>) -> bool {
    let entry = tenant.sessions.entry(client_id);
    entry.get().is_none_or(|session| session.state().user.as_deref() == user)
}

/// What the client wants and gets.
fn want(connect: &Connect<'_>, limits: &Limits) -> Result<Wanted, Refusal> {
    let properties = &connect.properties;
    if properties.authentication_method().is_some() {
        return Err(Refusal(
            ReasonCode::BadAuthenticationMethod,
            "this authentication method is not known here",
        ));
    }
    let v5 = connect.version == Version::V5;
    let expiry = if v5 {
        properties.session_expiry_interval().unwrap_or(0)
    } else if connect.clean_start {
        0
    } else {
        u32::MAX
    };
    let keep_alive = match limits.max_keep_alive {
        0 => connect.keep_alive,
        // A 3.x client cannot be told another Keep Alive, so its own holds.
        most if v5 && (connect.keep_alive == 0 || connect.keep_alive > most) => most,
        _ => connect.keep_alive,
    };
    let aliases = properties.topic_alias_maximum().unwrap_or(0);
    let aliases = aliases.min(limits.max_outbound_topic_aliases);
    Ok(Wanted {
        expiry: expiry.min(limits.max_session_expiry),
        keep_alive,
        receive_maximum: properties
            .receive_maximum()
            .map_or(limits.max_inflight, |most| most.min(limits.max_inflight)),
        max_packet_size: properties
            .maximum_packet_size()
            .map_or(MAX_PACKET_LEN, |size| size as usize),
        aliases: (aliases > 0).then(|| Box::new(OutboundAliases::new(aliases))),
        will: will(connect, limits)?,
    })
}

fn will(connect: &Connect<'_>, limits: &Limits) -> Result<Option<Box<Will>>, Refusal> {
    let Some(will) = &connect.will else { return Ok(None) };
    if will.qos as u8 > limits.max_qos {
        return Err(Refusal(ReasonCode::QoSNotSupported, "the will is above the Maximum QoS"));
    }
    if will.retain && !limits.retain_available {
        return Err(Refusal(ReasonCode::RetainNotSupported, "the will cannot be retained"));
    }
    let mut kept = PropertiesBuf::default();
    for property in will.properties.raw() {
        if !matches!(property.id, PropertyId::WillDelayInterval | PropertyId::MessageExpiryInterval)
        {
            kept.push_raw(property);
        }
    }
    let publication = Publication {
        topic: will.topic,
        payload: will.payload,
        properties: kept.as_properties().as_bytes(),
        qos: will.qos,
        retain: will.retain,
        expires_at: None,
    };
    Ok(Some(Box::new(Will {
        message: Arc::new(Message::new(&publication)),
        expiry: will.properties.message_expiry_interval(),
        delay: will.properties.will_delay_interval().unwrap_or(0),
    })))
}

/// The client identifier that the broker makes up for a client without one.
fn assigned_client_id(connect: &Connect<'_>) -> Result<Option<String>, Refusal> {
    if !connect.client_id.is_empty() {
        return Ok(None);
    }
    match connect.version {
        Version::V3_1 => {
            Err(Refusal(ReasonCode::ClientIdentifierNotValid, "the client identifier is missing"))
        }
        // MQTT-3.1.3-8 of 3.1.1
        Version::V3_1_1 if !connect.clean_start => Err(Refusal(
            ReasonCode::ClientIdentifierNotValid,
            "a session to be kept needs a client identifier",
        )),
        _ => Ok(Some(format!("auto-{}", uuid::Uuid::new_v4().simple()))),
    }
}

fn connack_properties(
    connect: &Connect<'_>,
    limits: &Limits,
    wanted: &Wanted,
    assigned: Option<&str>,
) -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    if connect.version != Version::V5 {
        return properties;
    }
    let mut put = |property| properties.push(property).expect("the broker's own values are valid");
    if connect.properties.session_expiry_interval().unwrap_or(0) != wanted.expiry {
        put(Property::SessionExpiryInterval(wanted.expiry));
    }
    if limits.receive_maximum != u16::MAX {
        put(Property::ReceiveMaximum(limits.receive_maximum));
    }
    match limits.max_qos {
        0 => put(Property::MaximumQoS(QoS::AtMostOnce)),
        1 => put(Property::MaximumQoS(QoS::AtLeastOnce)),
        _ => {}
    }
    if !limits.retain_available {
        put(Property::RetainAvailable(false));
    }
    put(Property::MaximumPacketSize(u32::try_from(limits.max_packet_size).unwrap_or(u32::MAX)));
    if let Some(client_id) = assigned {
        put(Property::AssignedClientIdentifier(client_id));
    }
    if limits.topic_alias_maximum > 0 {
        put(Property::TopicAliasMaximum(limits.topic_alias_maximum));
    }
    if wanted.keep_alive != connect.keep_alive {
        put(Property::ServerKeepAlive(wanted.keep_alive));
    }
    if !limits.wildcard_subscriptions {
        put(Property::WildcardSubscriptionAvailable(false));
    }
    if !limits.shared_subscriptions {
        put(Property::SharedSubscriptionAvailable(false));
    }
    let client_id = assigned.unwrap_or(connect.client_id);
    if connect.properties.request_response_information() == Some(true)
        && !client_id.contains(['+', '#'])
    {
        let topic = format!("response/{client_id}");
        if topic.len() <= usize::from(u16::MAX) {
            put(Property::ResponseInformation(&topic));
        }
    }
    properties
}
