//! Handling of requests to the state store.

use barid_core::holder::Held;
use barid_core::message::Publication;
use barid_core::queue::Room;
use barid_core::state_store::{Exceeded, Limits, Requesting};
use barid_core::time::MonoTime;
use mqtt_proto::{PacketId, PacketType, Properties, ReasonCode};
use smallvec::SmallVec;
use statestore_proto::{Refusal, Reply, Verb, topics};

use super::End;
use super::client::Client;
use crate::cluster::Home;
use crate::durable::Commits;
use crate::limits::Quota;
use crate::state_requests::{Asking, Whom};
use crate::state_store::{Asker, Envelope, Notices, Requester, Unanswered};
use crate::turn::{Scratch, Turn};
use crate::user_limits::UserLimits;

/// Cost of a SCAN besides the keys found, as the number of bytes that could be copied in that time: it may
/// examine thousands of keys.
const SCAN_COST: usize = 128 * 1024;

/// Steps of a turn for each notification to a watcher.
const NOTIFICATION_STEPS: usize = 2;

/// The queue has no room for the response to a request that was sent before, and may have been carried out then. So it cannot be
/// refused.
pub(super) const NO_ROOM: End = End::Refused(
    ReasonCode::ServerBusy,
    "the queue of the session has no room for the response to a repeated request: send again",
);

impl Client {
    /// Executes the requests of the run, one after the other. They are acknowledged when their changes are
    /// durable.
    pub(super) fn finish_requests(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
    ) -> Result<(), End> {
        let home = self.tenant.home();
        match home {
            Home::Each | Home::Here => {}
            Home::Closed => return self.inquire(turn, bytes, None),
            Home::Elsewhere(home) => return self.inquire(turn, bytes, Some(home)),
        }
        let since = turn.context.engine.clock.instant();
        let session = self.session.clone();
        let permissions = self.permissions.clone();
        let tenant = &self.tenant;
        let permissions = permissions.as_deref();
        let asking = Asking { tenant, whom: Whom::Here { session: &session, permissions } };
        let Scratch { run, responses, .. } = &mut *turn.scratch;
        let context = &mut *turn.context;
        let counters = tenant.counters(context.worker.id);
        counters.received.add(PacketType::Publish, run.len() as u64, run.frame_bytes() as u64);
        session.traffic().add_received(run.len() as u64, run.frame_bytes() as u64);
        let ids = std::mem::take(&mut run.ids);
        let messages = run.in_buffer(bytes, context.worker.now);
        let limits = Limits::from(&*self.limits);
        let user = self.holder.as_ref().map(|holder| Requesting {
            holder,
            keys: holder.limit(Held::StateKeys, self.limits.max_user_state_keys),
            bytes: holder.limit(Held::StateBytes, self.limits.max_user_state_bytes),
        });
        let mut asks = Requester {
            tenant,
            asker: Asker::Here { session: &session, connection: self.id },
            since: self.since,
            max_packet_size: self.max_packet_size as usize,
            survives: !self.expires_at_once,
            now: context.engine.clock.wall(),
            permissions,
            user,
            durability: &self.durability,
            limits: &limits,
            watched: &mut self.watched,
        };
        // A request is not executed if the queue has no room for a response: a change without a response
        // would be worse.
        let mut room = session.room(&tenant.queue_limits(), 1);
        let mut reasons = SmallVec::<[ReasonCode; 16]>::new();
        let mut waits_for = Commits::default();
        let mut ended = Ok(());
        let mut denied = SmallVec::<[usize; 4]>::new();
        for (index, id) in ids.iter().enumerate() {
            let request = messages.publication(index);
            let envelope = match check(&request, context.worker.now) {
                Ok(envelope) => envelope,
                Err(Unfit::Acknowledged(reason)) => {
                    reasons.push(reason);
                    continue;
                }
                Err(Unfit::Ends(end)) => {
                    ended = Err(end);
                    break;
                }
            };
            if !room.is_some() {
                tenant.refused(&context.worker, quota_of_room(&room), &session.client_id);
                if messages.is_repeated(index) {
                    ended = Err(NO_ROOM);
                    break;
                }
                reasons.push(ReasonCode::QuotaExceeded);
                continue;
            }
            let sent = (*id, messages.is_repeated(index));
            let follow = |notices: Notices, alarm| context.follow(tenant, &notices, alarm);
            let store = tenant.state_store();
            let answered = store.execute(&mut asks, request.payload, &envelope, sent, follow);
            let answered = match answered {
                Ok(answered) => answered,
                Err(unanswered) => {
                    ended = Err(match unanswered {
                        Unanswered::SessionTaken => End::SessionTaken,
                        Unanswered::ShardClosed => End::Refused(
                            ReasonCode::ServerBusy,
                            "the shard of a key is closed: send again",
                        ),
                    });
                    break;
                }
            };
            reasons.push(ReasonCode::Success);
            answered.tell(|reply| {
                counters.requests.add(answered.verb, reply);
                if matches!(reply, Reply::Refused(Refusal::NotAuthorized)) {
                    denied.push(index);
                }
                let told = (reply, answered.version, &answered.after);
                let to = (envelope.response_topic, envelope.correlation);
                room.take(responses.push(context, asking, to, told));
            });
            if let Some(exceeded) = answered.exceeded {
                let own = permissions.map_or(&UserLimits::NONE, |own| own.limits());
                let quota = quota_of(exceeded);
                tenant.refused_to(&context.worker, quota, own, &session.client_id);
            }
            if answered.verb == Some(Verb::Scan) {
                responses.charge(SCAN_COST);
            }
            turn.budget.spend(NOTIFICATION_STEPS * answered.told);
            waits_for.join(&answered.after);
        }
        responses.publish(context, asking);
        let denied: SmallVec<[Vec<u8>; 4]> =
            denied.iter().map(|index| messages.publication(*index).payload.to_vec()).collect();
        run.clear();
        context.engine.request_times.time(&waits_for, reasons.len() as u64, since);
        // Before this round ends, after which the state store may move: then another broker tells of changes.
        if home == Home::Here && self.watched.is_some() {
            self.note_inquirer();
        }
        self.acknowledge_requests(turn, ids, &reasons, &waits_for, &denied);
        ended
    }

    /// Acknowledges requests, in the order of `ids`, when `waits_for` is done. `denied` are those of which operators hear that
    /// the rights of the client do not allow them.
    pub(super) fn acknowledge_requests(
        &mut self,
        turn: &mut Turn<'_>,
        mut ids: Vec<u16>,
        reasons: &[ReasonCode],
        waits_for: &Commits,
        denied: &[Vec<u8>],
    ) {
        turn.scratch.answers.commits.join(waits_for);
        turn.scratch.answers.are_of_requests = true;
        for request in denied {
            self.deny_key(turn, request);
        }
        for (id, reason) in ids.iter().zip(reasons) {
            let id = PacketId::new(*id).expect("the decoder refuses 0");
            self.put_ack(turn, PacketType::PubAck, id, *reason);
        }
        ids.clear();
        turn.scratch.run.ids = ids;
    }
}

/// A request that is not carried out.
pub(super) enum Unfit {
    /// It is acknowledged with this Reason Code, and not answered.
    Acknowledged(ReasonCode),
    /// The connection ends.
    Ends(End),
}

/// Returns the properties of a request that is to be carried out.
pub(super) fn check<'a>(request: &Publication<'a>, now: MonoTime) -> Result<Envelope<'a>, Unfit> {
    let Some(envelope) = Envelope::read(Properties::from_validated(request.properties)) else {
        return Err(Unfit::Acknowledged(ReasonCode::ImplementationSpecificError));
    };
    if !may_answer_to(envelope.response_topic) {
        return Err(Unfit::Ends(End::Refused(
            ReasonCode::TopicNameInvalid,
            "the state store does not publish to this response topic",
        )));
    }
    match request.expires_at.is_some_and(|at| at <= now) {
        true => Err(Unfit::Acknowledged(ReasonCode::Success)),
        false => Ok(envelope),
    }
}

/// The quota because of which a queue has no room for a response.
pub(super) fn quota_of_room(room: &Room) -> Quota {
    match room.messages {
        0 => Quota::MaxQueuedMessages,
        _ => Quota::MaxQueuedBytes,
    }
}

fn quota_of(exceeded: Exceeded) -> Quota {
    match exceeded {
        Exceeded::Keys => Quota::MaxStateKeys,
        Exceeded::Bytes => Quota::MaxStateBytes,
        Exceeded::ValueBytes => Quota::MaxStateValue,
        Exceeded::Watchers => Quota::MaxStateWatchers,
        Exceeded::UserKeys => Quota::MaxUserStateKeys,
        Exceeded::UserBytes => Quota::MaxUserStateBytes,
    }
}

/// Whether a response may be published to a topic. The topic of requests and the topics of notifications are
/// not allowed.
fn may_answer_to(response_topic: &str) -> bool {
    response_topic != topics::INVOKE && !response_topic.starts_with(topics::RESERVED)
}
