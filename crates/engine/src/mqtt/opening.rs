//! Opening of a session for a connection: a new session begins, or an existing one is resumed.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use barid_core::holder::Holder;
use mqtt_proto::{ConnAck, PacketType, PropertiesBuf, ReasonCode, Version, topic};

use super::revoking::revoke;
use super::wanted::{Refusal, Wanted, window};
use crate::access::Permissions;
use crate::cluster::{KeptWill, Owner};
use crate::context::Context;
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::session::{Link, SessionRef, Will};
use crate::tenant::Tenant;

/// The parameters for opening a session that are not properties of the session itself.
pub(super) struct Opening<'a> {
    pub(super) version: Version,
    pub(super) clean_start: bool,
    pub(super) client_id: &'a str,
    /// Whether the broker has assigned the client identifier, so that there is no session of it anywhere.
    pub(super) is_assigned: bool,
    /// The user, if there are users.
    pub(super) holder: Option<&'a Arc<Holder>>,
    /// The permissions of the user; `None`: everything is allowed.
    pub(super) permissions: Option<&'a Arc<Permissions>>,
    pub(super) properties: PropertiesBuf,
}

impl Opening<'_> {
    /// Encodes the CONNACK that accepts the connection.
    pub(super) fn connack(&self, session_present: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        let properties = self.properties.as_properties();
        ConnAck { session_present, reason: ReasonCode::Success, properties }
            .encode(self.version, &mut packet)
            .expect("a CONNACK can be encoded");
        packet
    }
}

/// Opens the session of a client: resumes it, or begins a new one (MQTT 5 §3.1.2.4). A previous connection of
/// the client is closed. Returns the session, the epoch of the new connection, and the subscriptions that were revoked.
///
/// # Errors
/// The session belongs to another user, or its shard is not open.
pub(super) fn open_session(
    context: &mut Context,
    tenant: &Arc<Tenant>,
    opening: &Opening<'_>,
    mut link: Link,
    wanted: Wanted,
) -> Result<(SessionRef, u32, Vec<Box<str>>), Refusal> {
    let mut ended = None;
    let mut entry = tenant.sessions.entry(opening.client_id);
    // A session that began while no users were configured belongs to no user, so any user may resume it.
    let another_users = entry.get().is_some_and(|present| {
        let state = present.state();
        let user = opening.holder.map(|holder| holder.name());
        state.user().is_some() && user.is_some() && state.user() != user
    });
    if another_users {
        return Err(Refusal::new(
            ReasonCode::NotAuthorized,
            "the client identifier belongs to another user",
        ));
    }
    let is_transient = opening.clean_start && wanted.expiry == 0;
    // Nobody has had a session with an identifier that was assigned just now.
    let ends_elsewhere = is_transient && !opening.is_assigned;
    let is_moved = match (is_transient, ends_elsewhere) {
        (true, true) => is_held(context, tenant, opening.client_id),
        (true, false) => false,
        (false, _) => is_moved(context, tenant, opening.client_id),
    };
    if is_moved {
        return Err(Refusal::new(
            ReasonCode::ServerUnavailable,
            "the session is moved to another broker: try again",
        ));
    }
    let remote = tenant.remote.as_ref().filter(|_| ends_elsewhere);
    if remote.is_some_and(|it| !it.can_end_old_session(&context.worker, opening.client_id)) {
        return Err(Refusal::new(
            ReasonCode::ServerBusy,
            "too much waits for the broker with the session: try again",
        ));
    }
    let stores = wanted.expiry > 0 && (wanted.persist || tenant.durability().stores_sessions());
    // Checked under the lock of the client identifier, under which sessions leave when their shard is closed.
    // A session with an expiry of 0 ends with its connection, so a new connection cannot resume it. One that
    // has expired may still be there, in particular right after the start of a broker.
    let resumes = !opening.clean_start
        && entry.get().is_some_and(|present| {
            let state = present.state();
            state.expiry > 0 && state.expires_at().is_none_or(|at| at > context.worker.now)
        });
    let is_closed =
        |present: &SessionRef| present.durable().is_some_and(|durable| !durable.shard.is_open());
    let needs_shard = stores && !resumes;
    if entry.get().is_some_and(is_closed)
        || needs_shard && !tenant.shards.of(&tenant.name, opening.client_id).is_open()
    {
        return Err(Refusal::new(
            ReasonCode::ServerBusy,
            "the session's shard is closed: try again",
        ));
    }
    let resumed = if resumes {
        entry.get().cloned()
    } else {
        ended = entry.remove();
        None
    };
    let present = resumed.is_some();
    let old_is_online = ended.as_ref().is_some_and(|old| old.is_online());
    let retired = ended.and_then(|old| {
        context.retire(tenant, &old, ReasonCode::SessionTakenOver).map(|retired| (old, retired))
    });
    let wall = context.engine.clock.wall_micros();
    let cluster = context.engine.cluster.as_ref();
    let connected_at = cluster.map_or(wall, |cluster| cluster.connect_time(wall));
    let mut noted = Commits::default();
    if let Some((_, retired)) = &retired {
        noted.join(&retired.commits);
    }
    if !resumes {
        // A session that is not stored may have been there since the stored one has ended.
        noted.join(&tenant.removals(opening.client_id));
    }
    if let Some(remote) = remote {
        let ended = remote.end_old_session(&context.worker, opening.client_id, connected_at);
        noted.join(&ended.if_holds(Rule::ConnectWhenGoneElsewhere));
    }
    let session = resumed.unwrap_or_else(|| {
        let id = context.engine.next_session_id();
        let durable = stores.then(|| tenant.new_durable(opening.client_id));
        let session = SessionRef::new(id, Arc::clone(&tenant.account), opening.client_id, durable);
        entry.insert(session.clone());
        session
    });
    if wanted.persist {
        session.set_keeps_all(true);
    }
    let kept_will = if session.durable().is_none() { wanted.will.clone() } else { None };
    let (old_will, is_in_store) = {
        let mut state = session.state();
        session.set_owner(&mut state, link.connection);
        session.set_holder(&mut state, opening.holder);
        state.expiry = wanted.expiry;
        state.connected_at = connected_at;
        state.connected_since = context.engine.clock.wall();
        let away_since = state.away_since.take();
        let old_will = std::mem::replace(&mut state.will, wanted.will);
        let stored = session.store(&state);
        if !present {
            state.begins_in = stored.iter().map(|(_, batch)| batch).max().unwrap_or_default();
        }
        noted.join(&stored);
        // A new connection cancels a Will Message with a delay (MQTT-3.1.3-9), but not one that was already
        // due: after a crash, the client may reconnect before that will has been published.
        let is_due = |will: &Will| {
            let delay = Duration::from_secs(will.delay.into());
            let due_at = away_since.map(|since| since.after(delay));
            due_at.map_or(will.delay == 0, |at| at <= context.worker.now)
        };
        let old_will = match old_will {
            Some(will) if !is_due(&will) => {
                context.will_is_over(tenant, &session, &will);
                None
            }
            old_will => old_will,
        };
        (old_will, session.is_in_store(&state))
    };
    let connack = opening.connack(present);
    let counters = tenant.counters(context.worker.id);
    counters.sent.add(PacketType::ConnAck, 1, connack.len() as u64);
    let survives = wanted.expiry > 0;
    // CONNACK tells whether the session existed. With Session Present 0 it waits until the removal of the
    // previous session is durable, here or at the broker that has it; with 1, until the session and its will
    // are durable. Exception: while the store takes nothing new, a client is admitted at once if a crash would
    // not lose its session, so that it can take its messages.
    if is_in_store && session.store_refuses() {
        noted.clear();
    }
    let rule = if present { Rule::ConnectWhenNotedAsPresent } else { Rule::ConnectWhenGone };
    let noted = noted.if_holds(rule);
    let connack = (&connack[..], noted.clone());
    // Before the first message is sent: what has waited was sent through the subscriptions, too.
    let permissions = opening.permissions.filter(|_| present);
    let revoked = permissions.map_or_else(Vec::new, |own| revoke(tenant, &session, own));
    link.rights = permissions.filter(|_| !revoked.is_empty()).cloned();
    let window = window(wanted.receive_maximum, &tenant.limits());
    let (epoch, had_client) = session.attach(link, window, survives, wanted.aliases, connack);
    if !noted.is_empty() {
        session.release_held();
    }
    // As long as the lock is held: the next connection of the client has another will.
    if let (Some(remote), Some(will)) = (&tenant.remote, kept_will) {
        let user = opening.holder.map_or("", |holder| holder.name()).into();
        let (message, expiry) = (will.message, will.expiry);
        remote.keep_will(opening.client_id, KeptWill { connected_at, user, message, expiry });
    }
    drop(entry);

    if let Some(cluster) = &context.engine.cluster {
        cluster.connected(&tenant.name, opening.client_id, connected_at, opening.clean_start);
    }
    if had_client {
        counters.take_overs.add(1);
    }
    // The previous connection has ended without DISCONNECT, so its will is published.
    if let Some(will) = old_will {
        session.begin_giving();
        context.publish_left_will(tenant, &session, will);
    }
    if let Some((old, retired)) = retired {
        if old_is_online {
            counters.take_overs.add(1);
        }
        context.finish_session(tenant, &old, retired);
    }
    Ok((session, epoch, revoked))
}

/// Whether the sessions of a slot are being moved, or were moved, to another broker after the client was let in here.
fn is_moved(context: &Context, tenant: &Tenant, client_id: &str) -> bool {
    let slots = context.engine.cluster.as_ref().and_then(|cluster| cluster.slots());
    slots.is_some_and(|slots| {
        let slot = slots.slot(&tenant.name, client_id);
        match slots.owner(slot) {
            Owner::Here => false,
            Owner::Closed => true,
            Owner::Elsewhere(_) => slots.place(slot).generation > 0,
        }
    })
}

/// Whether the slot of a client is being moved by other brokers: its old session cannot be ended now.
fn is_held(context: &Context, tenant: &Tenant, client_id: &str) -> bool {
    context.engine.cluster.as_ref().is_some_and(|cluster| {
        cluster.slots().is_some_and(|slots| {
            let slot = slots.slot(&tenant.name, client_id);
            cluster.is_held_for(slot, context.worker.now)
        })
    })
}

/// Returns the Topic Filter behind `$share/{name}/`, or the filter itself.
pub(super) fn shared_filter(filter: &str) -> &str {
    topic::parse_shared(filter).ok().flatten().map_or(filter, |shared| shared.filter)
}
