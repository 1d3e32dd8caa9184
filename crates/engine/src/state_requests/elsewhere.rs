//! Requests that pass between brokers: one has the client, the other the state store of its tenant.
//!
//! The broker of the client knows what the client may do. It asks only for what is allowed, and it publishes the responses.
//! The broker of the state store carries requests out, and tells the other one the responses and the notifications when the
//! changes that they report are durable.

use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::state_store::{Limits, Requesting};
use barid_core::time::WallTime;
use barid_peers::{Inquiry, InquiryKind, Run as RemoteRun, Told, ToldKind};
use mqtt_proto::{Properties, ReasonCode};
use statestore_proto::{Refusal, Reply, Verb, topics};

use super::responses::{Asking, Responses, Whom, respond};
use crate::access::Permissions;
use crate::budget::Budget;
use crate::cluster::{Home, MemberRef};
use crate::context::Context;
use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::ids::ConnectionId;
use crate::run::{Messages, Run};
use crate::session::SessionRef;
use crate::state_store::{Asker, Envelope, Guest, Inquirer, Notices, Requester, Unanswered};
use crate::tenant::Tenant;

/// Steps of a turn for a request, for each notification to a watcher, and for a SCAN, which may examine thousands of keys.
const REQUEST_STEPS: usize = 2;
const NOTIFICATION_STEPS: usize = 2;
const SCAN_STEPS: usize = 64;

/// Bytes of a request that count as a further step.
const BYTES_OF_STEP: usize = 4 * 1024;

impl Context {
    /// Carries out what a client of another broker asks the state store for. The request is in `run`, in `packets`. Returns
    /// what must be durable before it counts as carried out.
    pub(crate) fn on_inquiry(
        &mut self,
        (member, remote): (MemberRef, &RemoteRun<'_>),
        inquiry: &Inquiry<'_>,
        (run, packets): (&mut Run, &mut [u8]),
        budget: &mut Budget,
    ) -> Commits {
        let engine = Arc::clone(&self.engine);
        let tenant = engine.tenants.recover(remote.tenant);
        let Some(name) = engine.cluster.as_ref().and_then(|cluster| cluster.name_of(member)) else {
            return Commits::default();
        };
        let guest = Arc::new(Guest::of(member, &name, remote.publisher, inquiry));
        let used = tenant.used_state_store();
        match inquiry.kind {
            InquiryKind::ConnectionEnded => {
                used.iter().for_each(|it| it.forget_guest(&tenant, &guest, self.worker.now));
                return Commits::default();
            }
            InquiryKind::SessionEnded => {
                used.iter().for_each(|it| it.forget_session(&tenant, guest.session));
                return Commits::default();
            }
            InquiryKind::Request if run.is_empty() => return Commits::default(),
            InquiryKind::Request if !matches!(tenant.home(), Home::Here | Home::Each) => {
                // The state store is moving, or was moved. The request may have been carried out before.
                self.tell(&tenant, &guest, ToldKind::Busy, Commits::default(), (true, &[]));
                return Commits::default();
            }
            InquiryKind::Request => {}
        }
        let since = engine.clock.instant();
        let messages = run.in_buffer(packets, self.worker.now);
        let request = messages.publication(0);
        let Some(envelope) = Envelope::read(Properties::from_validated(request.properties)) else {
            return Commits::default();
        };
        if !tenant.remote.as_ref().is_some_and(|it| it.has_room_for_told(member, guest.connection))
        {
            self.refuse_inquiry(&tenant, &guest, inquiry, &envelope);
            return Commits::default();
        }
        let (limits, durability) = (tenant.limits(), tenant.durability());
        let limits = Limits::from(&*limits);
        let holder = (!inquiry.user.is_empty()).then(|| tenant.quotas.holder(inquiry.user));
        let user = holder.as_ref().map(|holder| Requesting {
            holder,
            keys: inquiry.user_limits.0,
            bytes: inquiry.user_limits.1,
        });
        let store = tenant.state_store();
        let follow = |notices: Notices, alarm| self.follow(&tenant, &notices, alarm);
        let sent = (inquiry.packet_id, inquiry.is_repeated);
        let answered = store.with_watched(&tenant, &guest, |watched| {
            let mut asks = Requester {
                tenant: &tenant,
                asker: Asker::Elsewhere(&guest),
                since: WallTime::from_millis(inquiry.since),
                max_packet_size: inquiry.max_packet_size as usize,
                survives: inquiry.survives,
                now: engine.clock.wall(),
                // The other broker has checked them, and keeps the names of keys from the client that it may not read.
                permissions: None,
                user,
                durability: &durability,
                limits: &limits,
                watched,
            };
            store.execute(&mut asks, request.payload, &envelope, sent, follow)
        });
        let answered = match answered {
            Ok(answered) => answered,
            // If the session was taken, a later connection may have sent the request again already. Then nobody hears this.
            Err(Unanswered::ShardClosed | Unanswered::SessionTaken) => {
                self.tell(&tenant, &guest, ToldKind::Busy, Commits::default(), (true, &[]));
                return Commits::default();
            }
        };
        let kind = match answered.verb {
            Some(Verb::Scan) => ToldKind::Keys,
            _ => ToldKind::Response,
        };
        let asking = Asking { tenant: &tenant, whom: Whom::Elsewhere(&guest, kind) };
        let mut responses = Responses::default();
        answered.tell(|reply| {
            let counters = tenant.counters(self.worker.id);
            counters.requests.add(answered.verb, reply);
            let told = (reply, answered.version, &answered.after);
            let to = (envelope.response_topic, envelope.correlation);
            responses.push(self, asking, to, told);
        });
        responses.publish(self, asking);
        let steps = NOTIFICATION_STEPS * answered.told + packets.len() / BYTES_OF_STEP;
        budget.spend(REQUEST_STEPS + steps + if kind == ToldKind::Keys { SCAN_STEPS } else { 0 });
        engine.request_times.time(&answered.after, 1, since);
        answered.after
    }

    /// Does not carry out a request, because too much waits for the broker of its client already.
    fn refuse_inquiry(
        &mut self,
        tenant: &Arc<Tenant>,
        guest: &Guest,
        inquiry: &Inquiry<'_>,
        envelope: &Envelope<'_>,
    ) {
        if inquiry.is_repeated {
            // It may have been carried out before.
            return self.tell(tenant, guest, ToldKind::Busy, Commits::default(), (true, &[]));
        }
        let asking = Asking { tenant, whom: Whom::Elsewhere(guest, ToldKind::Response) };
        let mut responses = Responses::default();
        let told = (&Reply::Refused(Refusal::QuotaExceeded), None, &Commits::default());
        responses.push(self, asking, (envelope.response_topic, envelope.correlation), told);
        responses.publish(self, asking);
    }

    /// Tells a client of another broker messages about the state store, when `after` is durable.
    pub(super) fn tell_guest(
        &self,
        tenant: &Tenant,
        guest: &Guest,
        kind: ToldKind,
        after: Commits,
        messages: &mut Messages<'_>,
    ) {
        let all = 0..messages.len();
        self.tell(tenant, guest, kind, after, messages.as_published(all));
    }

    fn tell(
        &self,
        tenant: &Tenant,
        guest: &Guest,
        kind: ToldKind,
        after: Commits,
        packets: (bool, &[u8]),
    ) {
        let Some(remote) = &tenant.remote else { return };
        let is_notification = kind == ToldKind::Notification;
        if is_notification && !remote.has_room_for_told(guest.member, guest.connection) {
            let reason = DropReason::LinkFull;
            return tenant.dropped(&self.worker, reason, None, &guest.client_id);
        }
        let sources = self.engine.shards.sources();
        let to = (&*guest.client_id, guest.told(kind));
        remote.tell_inquirer(sources, guest.member, to, after, packets);
    }

    /// Tells the broker with the state store that a session has ended.
    pub(crate) fn forget_inquiries(&self, tenant: &Tenant, session: &SessionRef) {
        let inquiring = Inquiring {
            connection: ConnectionId(0),
            since: WallTime::default(),
            session,
            survives: false,
            max_packet_size: 0,
        };
        self.end_inquiries(tenant, &inquiring, InquiryKind::SessionEnded);
    }

    /// Tells the broker with the state store, if it can be reached, that a client of this one has ended something.
    pub(crate) fn end_inquiries(
        &self,
        tenant: &Tenant,
        inquiring: &Inquiring<'_>,
        kind: InquiryKind,
    ) {
        if let (Home::Elsewhere(home), Some(remote)) = (tenant.home(), &tenant.remote)
            && remote.takes_requests(&self.worker, home)
        {
            let client_id = &inquiring.session.client_id;
            remote.inquire(
                &self.worker,
                home,
                client_id,
                inquiring.inquiry(kind, (0, false), None),
                &[],
            );
        }
    }

    /// Tells a broker that a connection has ended that watches keys there: it has ended while the state store moved.
    fn end_stray_watches(&self, tenant: &Tenant, from: MemberRef, client_id: &str, told: Told) {
        let Some(remote) =
            tenant.remote.as_ref().filter(|it| it.takes_requests(&self.worker, from))
        else {
            return;
        };
        let inquiry = Inquiry {
            kind: InquiryKind::ConnectionEnded,
            connection: told.connection,
            since: 0,
            session: told.session,
            packet_id: 0,
            is_repeated: false,
            survives: false,
            is_stored: false,
            max_packet_size: 0,
            user: "",
            user_limits: (0, 0),
        };
        remote.inquire(&self.worker, from, client_id, inquiry, &[]);
    }

    /// Hands a client of this broker what the state store of another one tells it. The messages are in `run`, in `packets`.
    pub(crate) fn on_told(
        &mut self,
        (from, tenant): (MemberRef, &Arc<Tenant>),
        (client_id, told): (&str, Told),
        run: &mut Run,
        packets: &mut [u8],
    ) {
        let found = tenant.inquirers.find(ConnectionId(told.connection));
        // A broker that was started again gives the same numbers again.
        let found = found.filter(|(session, _)| *session.client_id == *client_id);
        let Some((session, Inquirer { permissions, requests, .. })) = found else {
            if matches!(told.kind, ToldKind::Notification | ToldKind::Check) {
                self.end_stray_watches(tenant, from, client_id, told);
            }
            return;
        };
        if told.kind == ToldKind::Busy {
            return session.close_connection(ReasonCode::ServerBusy);
        }
        if run.is_empty() {
            return;
        }
        let permissions = permissions.as_deref();
        run.class = DurabilityClass::Memory;
        match told.kind {
            ToldKind::Busy | ToldKind::Check => {}
            ToldKind::Response => respond(self, tenant, (&session, permissions), run, packets),
            ToldKind::Keys => {
                let now = self.worker.now;
                let messages = run.in_buffer(packets, now);
                let mut publication = messages.publication(0);
                let payload = readable(publication.payload, permissions);
                publication.payload = &payload;
                let (mut run, mut buffer) = Run::of(&publication, DurabilityClass::Memory, now);
                respond(self, tenant, (&session, permissions), &mut run, &mut buffer);
            }
            ToldKind::Notification => {
                let may_know = |permissions: &Permissions| {
                    topics::key_of(run.topic())
                        .is_some_and(|key| permissions.may_touch(Verb::KeyNotify, &key))
                };
                if permissions.is_none_or(may_know) {
                    let Self { worker, router, .. } = self;
                    router.notify(worker, &session, &mut run.in_buffer(packets, worker.now));
                    router.take_full();
                }
            }
        }
        if told.kind != ToldKind::Notification {
            // The session has the response, so PUBACK may leave.
            let may_be_read = requests.answer();
            session.release_held();
            if may_be_read {
                session.wake_owner();
            }
        }
    }
}

/// Returns the response to SCAN without the names of keys that the client may not read.
fn readable(payload: &[u8], permissions: Option<&Permissions>) -> Vec<u8> {
    let (Some(permissions), Some(Reply::Page { mut keys, next })) =
        (permissions, Reply::decode(payload))
    else {
        return payload.to_vec();
    };
    keys.retain(|key| permissions.may_touch(Verb::Scan, key));
    let mut readable = Vec::new();
    Reply::Page { keys, next }.encode(&mut readable);
    readable
}

/// What a client of this broker asks the state store of another one for, apart from the request itself.
pub(crate) struct Inquiring<'a> {
    /// The connection of the client.
    pub connection: ConnectionId,
    /// When it began.
    pub since: WallTime,
    /// The session of the client.
    pub session: &'a SessionRef,
    /// Whether the session outlives the connection.
    pub survives: bool,
    /// The client's Maximum Packet Size, in bytes.
    pub max_packet_size: u32,
}

impl Inquiring<'_> {
    /// Returns the inquiry. `user`: the user to whom keys belong, and how many keys and bytes it may have.
    pub(crate) fn inquiry<'u>(
        &self,
        kind: InquiryKind,
        (packet_id, is_repeated): (u16, bool),
        user: Option<(&'u str, (u64, u64))>,
    ) -> Inquiry<'u> {
        let (user, user_limits) = user.unwrap_or_default();
        Inquiry {
            kind,
            connection: self.connection.0,
            since: self.since.as_millis(),
            session: self.session.answered_as(),
            packet_id,
            is_repeated,
            survives: self.survives,
            is_stored: self.session.durable().is_some(),
            max_packet_size: self.max_packet_size,
            user,
            user_limits,
        }
    }
}
