//! Admission of a CONNECT: checks, limits, and the opening of the session.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barid_core::holder::{Held, Holder};
use barid_core::ids;
use mqtt_proto::flow::{InboundAliases, KeepAlive};
use mqtt_proto::{
    ConnAck, Connect, MAX_PACKET_LEN, PacketType, Properties, PropertiesBuf, Property, ReasonCode,
    Version,
};
use statestore_proto::topics;
use tracing::debug;

use super::End;
use super::announced::Announced;
use super::client::{Awaited, Client, ClientAuth};
use super::denied::{self, WILL_REFUSED};
use super::opening::{Opening, open_session};
use super::wanted::{Enhanced, Refusal, assigned_client_id, connack_properties, want};
use crate::access::{Permissions, may_publish};
use crate::context::Context;
use crate::durable::Commits;
use crate::events::Event;
use crate::faults::{IfHolds as _, Rule};
use crate::ids::ConnectionId;
use crate::limits::{Limits, Quota};
use crate::names::{full_name, tenant_of};
use crate::owner::Owner;
use crate::quotas::Metered;
use crate::session::{Link, Stint};
use crate::tenant::Tenant;
use crate::turn::Turn;
use crate::user_limits::UserLimits;
use crate::wire::Wire;

/// Time for which a client is not read from because other brokers may not have what it has published before.
const AWAITED: Duration = Duration::from_secs(2);

/// A connection that has sent CONNECT and whose login has been verified.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The connection.
    pub id: ConnectionId,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The name of the listener that accepted the connection.
    pub listener: &'static str,
    /// The IO thread of the connection.
    pub owner: Arc<dyn Owner>,
    /// The socket for writes by other threads; `None`: only the owner may write.
    pub wire: Option<Arc<dyn Wire>>,
    /// The full name of the user who has logged in; `None`: any client may connect.
    pub user: Option<&'a str>,
    /// The permissions of the user; `None`: everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// The enhanced authentication of the client, if there was one.
    pub enhanced: Option<Enhanced<'a>>,
    /// The client identifier that the broker assigned before the login was verified, if any.
    pub assigned: Option<String>,
}

/// Admits a client whose login has been verified. `len` is the Remaining Length of its CONNECT, in bytes. The
/// answers are written to `out`.
///
/// # Errors
/// The CONNECT is refused, for now or for good; [`refuse`] sends the refusal.
pub fn admit(
    turn: &mut Turn<'_>,
    out: &mut dyn Write,
    arrival: Arrival<'_>,
    connect: &Connect<'_>,
    len: usize,
) -> Result<Client, Refusal> {
    let context = &mut *turn.context;
    if context.engine.cluster.as_ref().is_some_and(|cluster| !cluster.takes_clients()) {
        return Err(Refusal::new(
            ReasonCode::ServerUnavailable,
            "the broker has not joined its cluster yet, or too few others hear it",
        ));
    }
    let Arrival { id, peer, listener, owner, wire, user, permissions, enhanced, assigned } =
        arrival;
    let tenant = tenant_of(user.or(connect.username)).ok_or(Refusal::new(
        ReasonCode::BadUserNameOrPassword,
        "the user name must be {tenant}/{client}, or have no slash",
    ))?;
    let random = context.engine.random;
    let assigned = assigned.map(Ok).or_else(|| assigned_client_id(connect, random).transpose());
    let assigned = assigned.transpose()?;
    let client_id = assigned.as_deref().unwrap_or(connect.client_id);
    let tenant = context.tenant(tenant).ok_or_else(|| {
        context.refused_tenant(client_id);
        Refusal::new(ReasonCode::QuotaExceeded, "the maximum number of tenants is reached")
    })?;
    let limits = tenant.limits();
    let durability = tenant.durability();
    if client_id.len() > limits.max_client_id_bytes.min(ids::TEXT_LEN_MAX) {
        tenant.refused(&context.worker, Quota::MaxClientIdBytes, client_id);
        return Err(Refusal::new(
            ReasonCode::ClientIdentifierNotValid,
            "the client identifier is too long",
        ));
    }
    let own = user.and(permissions.as_ref()).map(|permissions| *permissions.limits());
    let holder = user.map(|user| tenant.quotas.holder(user));
    if let Some(holder) = &holder {
        tenant.set_own(holder, &own.unwrap_or_default());
    }
    let wanted = want(connect, &limits, enhanced)?;
    if let Some(will) = &connect.will
        && (will.topic == topics::INVOKE
            || !may_publish(
                permissions.as_deref(),
                client_id,
                will.topic,
                (will.qos, will.retain),
                will.payload,
            ))
    {
        return Err(Refusal::new(ReasonCode::NotAuthorized, WILL_REFUSED));
    }
    if wanted.expiry > 0
        && (wanted.persist || durability.stores_sessions())
        && tenant.shards.of(&tenant.name, client_id).is_failing()
        && tenant.sessions.entry(client_id).get().is_none()
    {
        return Err(Refusal::new(
            ReasonCode::QuotaExceeded,
            "the disk is full or broken: no new session can be stored",
        ));
    }
    // A client that reconnects while its old connection still exists does not need another place.
    let comes_back =
        tenant.sessions.entry(client_id).get().is_some_and(|session| session.is_online());
    let metered_user =
        user.map_or_else(|| full_name(connect.username.unwrap_or_default()), Into::into);
    let permit = tenant
        .quotas
        .admit(context.worker.now, &limits, (&metered_user, own.as_ref()), comes_back)
        .and_then(|permit| {
            permit.pay(context.worker.now, len + 2, connect.will.is_some().into())?;
            // Behind the rates, which so limit refusals as well.
            let is_stored = wanted.expiry > 0;
            check_sessions(&tenant, &limits, (client_id, is_stored), holder.as_deref())?;
            Ok(permit)
        })
        .map_err(|quota| {
            if quota == Quota::MaxConnections {
                end_connection_elsewhere(context, &tenant, client_id);
            }
            refused(context, &tenant, quota, &own.unwrap_or_default(), client_id)
        })?;
    let opening = Opening {
        version: connect.version,
        clean_start: connect.clean_start,
        client_id,
        is_assigned: assigned.is_some(),
        holder: holder.as_ref(),
        permissions: permissions.as_ref(),
        properties: connack_properties(
            connect,
            &limits,
            &durability,
            &wanted,
            assigned.as_deref(),
            enhanced,
        ),
    };
    let link = Link {
        version: connect.version,
        max_packet_size: wanted.max_packet_size,
        wire,
        owner,
        connection: id,
        peer,
        listener,
        keep_alive: wanted.keep_alive,
        rights: None,
    };
    if opening.connack(true).len() > wanted.max_packet_size as usize {
        return Err(Refusal::new(
            ReasonCode::PacketTooLarge,
            "CONNACK exceeds your Maximum Packet Size",
        ));
    }
    let keep_alive = wanted.keep_alive;
    let (max_packet_size, receive_maximum) = (wanted.max_packet_size, wanted.receive_maximum);
    let expires_at_once = wanted.expiry == 0;
    let (session, epoch, revoked) = open_session(context, &tenant, &opening, link, wanted)?;
    // After the session can be found: a reload either is seen here, or finds the session.
    let mut metered = Metered::new(&tenant.quotas, permit, &metered_user);
    metered.expect_bytes(len + 2);
    let is_paced = Client::set_pace(&context.worker, &session, epoch, &metered);
    let counters = tenant.counters(context.worker.id);
    counters.received.add(PacketType::Connect, 1, len as u64 + 2);
    counters.connects.add(1);
    debug!(
        peer = %peer,
        listener,
        tenant = &*tenant.name,
        client = client_id,
        version = ?connect.version,
        "connected"
    );
    let owed = session.state().owed.clone().if_holds(Rule::AwaitEarlierMessages);
    let until = context.worker.now.after(AWAITED);
    let awaited = owed.map(|commits| Box::new(Awaited { commits: *commits, until }));
    let mut client = Client {
        id,
        peer,
        tenant,
        session,
        epoch,
        version: connect.version,
        is_bridge: connect.is_bridge,
        keep_alive: KeepAlive::new(keep_alive, context.worker.now.as_millis()),
        aliases: InboundAliases::new(limits.topic_alias_maximum),
        permissions,
        holder,
        auth: enhanced
            .map(|own| Box::new(ClientAuth { method: own.method.into(), received: None })),
        announced: Announced::of(&limits),
        limits,
        durability,
        since: context.wall(),
        expires_at_once,
        max_packet_size,
        receive_maximum,
        reading_paused: false,
        sent: Commits::default(),
        awaited,
        interrupted: false,
        unfinished: None,
        partner: None,
        watched: Default::default(),
        requests: None,
        metered,
        is_paced,
        cluster_waits_until: None,
        tap: None,
    };
    let told = &client.as_told();
    context.engine.events.tell(&Event::Connected { tenant: &client.tenant.name, client: told });
    // They may have changed since the checks above.
    client.follow_limits();
    for filter in &revoked {
        client.deny_subscribed(turn, filter);
    }
    let context = &mut *turn.context;
    let write = |bytes: &[u8]| out.write(bytes);
    client.session.drain(&context.worker, epoch, false, Stint::SHORT, write);
    Ok(client)
}

/// Checks whether a client may have a session.
///
/// # Errors
/// It has none, and tenant or user have as many as they may.
fn check_sessions(
    tenant: &Tenant,
    limits: &Limits,
    (client_id, is_stored): (&str, bool),
    user: Option<&Holder>,
) -> Result<(), Quota> {
    let is_new = || tenant.sessions.entry(client_id).get().is_none();
    let has_room = |user: &Holder| user.room(Held::Sessions, limits.max_user_sessions) > 0;
    // One that ends with its connection takes the place of an old one, which may be at another broker.
    let elsewhere = if is_stored { tenant.quotas.elsewhere().sessions() } else { 0 };
    let sessions = tenant.sessions.len().saturating_add(elsewhere);
    if sessions >= limits.max_sessions && is_new() {
        return Err(Quota::MaxSessions);
    }
    if !user.is_none_or(has_room) && is_new() {
        return Err(Quota::MaxUserSessions);
    }
    Ok(())
}

/// A client is refused because the tenant has too many connections. If one of them is a connection of the client to another
/// broker, that ends, so that there is room when the client tries again.
fn end_connection_elsewhere(context: &Context, tenant: &Tenant, client_id: &str) {
    if let Some(cluster) = &context.engine.cluster
        && tenant.quotas.elsewhere().connections() > 0
    {
        let at = cluster.connect_time(context.engine.clock.wall_micros());
        cluster.connected(&tenant.name, client_id, at, false);
    }
}

/// Counts that a quota refuses a client, whose user has limits of its `own`, and returns the refusal.
fn refused(
    context: &Context,
    tenant: &Tenant,
    quota: Quota,
    own: &UserLimits,
    client_id: &str,
) -> Refusal {
    tenant.refused_to(&context.worker, quota, own, client_id);
    let (reason, text) = match quota {
        Quota::ConnectRate => (
            ReasonCode::ConnectionRateExceeded,
            "too many clients of the tenant connect in a second (connect_rate): try again later",
        ),
        Quota::UserConnectRate => (
            ReasonCode::ConnectionRateExceeded,
            "too many clients of the user connect in a second (user_connect_rate): try again later",
        ),
        Quota::InboundBytesRate => (
            ReasonCode::ConnectionRateExceeded,
            "clients of the tenant have sent too much (inbound_bytes_rate): try again later",
        ),
        Quota::UserInboundBytesRate => (
            ReasonCode::ConnectionRateExceeded,
            "clients of the user have sent too much (user_inbound_bytes_rate): try again later",
        ),
        Quota::PublishRate => (
            ReasonCode::ConnectionRateExceeded,
            "clients of the tenant have sent too many messages (publish_rate), and a will is one: \
             try again later",
        ),
        Quota::UserPublishRate => (
            ReasonCode::ConnectionRateExceeded,
            "clients of the user have sent too many messages (user_publish_rate), and a will is one: \
             try again later",
        ),
        Quota::MaxUserConnections => {
            (ReasonCode::QuotaExceeded, "the user has too many connections (max_user_connections)")
        }
        Quota::MaxUserSessions => {
            (ReasonCode::QuotaExceeded, "the user has too many sessions (max_user_sessions)")
        }
        Quota::MaxSessions => {
            (ReasonCode::QuotaExceeded, "the tenant has too many sessions (max_sessions)")
        }
        _ => (ReasonCode::QuotaExceeded, "the tenant has too many connections (max_connections)"),
    };
    Refusal::new(reason, text)
}

/// Sends the refusal of a CONNECT, counts it, and returns why the connection ends. `is_configured` returns
/// whether the configuration has users of a tenant.
pub fn refuse(
    context: &Context,
    out: &mut dyn Write,
    peer: SocketAddr,
    connect: &Connect<'_>,
    refusal: &Refusal,
    is_configured: impl FnOnce(&str) -> bool,
) -> End {
    let user = refusal.user.as_deref().or(connect.username);
    if let Some(tenant) = context.tenant_of_stranger(user, is_configured) {
        tenant.counters(context.worker.id).refused_connects.add(1);
        denied::connect(context, &tenant, peer, connect, refusal);
    }
    let most = connect.properties.maximum_packet_size().map_or(MAX_PACKET_LEN, |n| n as usize);
    say_refusal(out, connect.version, refusal, most);
    End::Refused(refusal.code, refusal.text)
}

/// Sends the CONNACK that refuses a CONNECT. The Reason String, or the whole CONNACK, is left out if it does
/// not fit into `most` bytes, the client's Maximum Packet Size.
pub fn say_refusal(
    out: &mut dyn Write,
    version: Version,
    Refusal { code, text, .. }: &Refusal,
    most: usize,
) {
    let mut properties = PropertiesBuf::default();
    if version == Version::V5 && !text.is_empty() {
        properties.push(Property::ReasonString(text)).expect("reasons are short");
    }
    let mut packet = Vec::new();
    for properties in [properties.as_properties(), Properties::default()] {
        packet.clear();
        ConnAck { session_present: false, reason: *code, properties }
            .encode(version, &mut packet)
            .expect("a CONNACK can be encoded");
        if packet.len() <= most {
            // A failed write is ignored: the connection closes anyway.
            let _ = out.write(&packet);
            return;
        }
    }
}
