//! Requests to the state store of a tenant whose state store is at another broker.

use std::sync::Arc;

use barid_core::holder::Held;
use barid_peers::InquiryKind;
use mqtt_proto::{PacketType, Properties, ReasonCode};
use smallvec::SmallVec;
use statestore_proto::{Command, Refusal, Reply};

use super::End;
use super::client::Client;
use super::requests::{NO_ROOM, Unfit, check, quota_of_room};
use crate::cluster::MemberRef;
use crate::durable::Commits;
use crate::session::{Requests, SessionRef};
use crate::state_requests::{Asking, Inquiring, Whom};
use crate::state_store::{Envelope, Inquirer};
use crate::turn::{Scratch, Turn};

impl Client {
    /// Has another broker carry out the requests of the run. They are acknowledged when it has answered them: behind PUBACK a
    /// client does not send a request again, so the response must have reached its session. `None`: the state store is being
    /// moved, and takes none.
    pub(super) fn inquire(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
        home: Option<MemberRef>,
    ) -> Result<(), End> {
        let (session, tenant) = (self.session.clone(), Arc::clone(&self.tenant));
        let permissions = self.permissions.clone();
        let permissions = permissions.as_deref();
        let requests = self.note_inquirer();
        let asking =
            Asking { tenant: &tenant, whom: Whom::Here { session: &session, permissions } };
        let remote = tenant.remote.as_ref().expect("there is another broker");
        let Scratch { run, responses, .. } = &mut *turn.scratch;
        let context = &mut *turn.context;
        let counters = tenant.counters(context.worker.id);
        counters.received.add(PacketType::Publish, run.len() as u64, run.frame_bytes() as u64);
        session.traffic().add_received(run.len() as u64, run.frame_bytes() as u64);
        let ids = std::mem::take(&mut run.ids);
        let mut messages = run.in_buffer(bytes, context.worker.now);
        let holder = self.holder.clone();
        let user = holder.as_ref().map(|holder| {
            let keys = holder.limit(Held::StateKeys, self.limits.max_user_state_keys);
            let bytes = holder.limit(Held::StateBytes, self.limits.max_user_state_bytes);
            (holder.name(), (keys, bytes))
        });
        let inquiring = self.inquiring(&session);
        // Packets for the other broker are made in the buffer of the messages, and lose their DUP flag there.
        let repeated: SmallVec<[bool; 16]> =
            (0..messages.len()).map(|index| messages.is_repeated(index)).collect();
        let mut reasons = SmallVec::<[ReasonCode; 16]>::new();
        let mut over = Commits::default();
        let mut ended = Ok(());
        let mut denied = SmallVec::<[usize; 4]>::new();
        for (index, id) in ids.iter().enumerate() {
            let request = messages.publication(index);
            match check(&request, context.worker.now) {
                Ok(_) => {}
                Err(Unfit::Acknowledged(reason)) => {
                    reasons.push(reason);
                    continue;
                }
                Err(Unfit::Ends(end)) => {
                    ended = Err(end);
                    break;
                }
            }
            let mut room = session.room(&tenant.queue_limits(), 1);
            // The responses that are still to come need some of it.
            let unanswered = usize::try_from(requests.unanswered()).unwrap_or(usize::MAX);
            room.messages = room.messages.saturating_sub(unanswered);
            let is_repeated = repeated[index];
            if !room.is_some() {
                tenant.refused(&context.worker, quota_of_room(&room), &session.client_id);
                if is_repeated {
                    ended = Err(NO_ROOM);
                    break;
                }
                reasons.push(ReasonCode::QuotaExceeded);
                continue;
            }
            let refused = match Command::decode(request.payload) {
                Err(refusal) => Some((None, refusal)),
                Ok(command) => {
                    let (verb, key) = (command.verb(), command.key());
                    let may_touch = key
                        .is_none_or(|key| permissions.is_none_or(|own| own.may_touch(verb, key)));
                    let mut send_to = |home: MemberRef| {
                        let sent = (*id, is_repeated);
                        let inquiry = inquiring.inquiry(InquiryKind::Request, sent, user);
                        let (client_id, worker) = (&session.client_id, &context.worker);
                        let (_, packet) = messages.as_published(index..index + 1);
                        // Before: the answer may come at once, on another thread.
                        if !requests.send(home.place()) {
                            return None;
                        }
                        let sent = remote.inquire(worker, home, client_id, inquiry, packet);
                        if sent.is_none() {
                            requests.take_back();
                        }
                        sent
                    };
                    let takes = |home: &MemberRef| remote.takes_requests(&context.worker, *home);
                    if !may_touch {
                        Some((Some(verb), Refusal::NotAuthorized))
                    } else if let Some(sent) = home.filter(takes).and_then(&mut send_to) {
                        over.join(&sent);
                        None
                    } else if is_repeated {
                        // It may have been carried out before.
                        ended = Err(End::Refused(
                            ReasonCode::ServerBusy,
                            "the broker with the state store cannot be reached: send again",
                        ));
                        break;
                    } else {
                        Some((Some(verb), Refusal::QuotaExceeded))
                    }
                }
            };
            reasons.push(ReasonCode::Success);
            let Some((verb, refusal)) = refused else { continue };
            if refusal == Refusal::NotAuthorized {
                denied.push(index);
            }
            let reply = Reply::Refused(refusal);
            counters.requests.add(verb, &reply);
            let request = messages.publication(index);
            let envelope = Envelope::read(Properties::from_validated(request.properties))
                .expect("it was read before");
            let to = (envelope.response_topic, envelope.correlation);
            responses.push(context, asking, to, (&reply, None, &Commits::default()));
        }
        responses.publish(context, asking);
        let denied: SmallVec<[Vec<u8>; 4]> =
            denied.iter().map(|index| messages.publication(*index).payload.to_vec()).collect();
        run.clear();
        self.sent.join(&over);
        turn.scratch.answers.requested = Some(requests.until_now(over));
        self.acknowledge_requests(turn, ids, &reasons, &Commits::default(), &denied);
        ended
    }

    fn inquiring<'a>(&self, session: &'a SessionRef) -> Inquiring<'a> {
        Inquiring {
            connection: self.id,
            since: self.since,
            session,
            survives: !self.expires_at_once,
            max_packet_size: self.max_packet_size,
        }
    }

    /// Notes the client for what the other broker tells it, now or when the state store has moved there.
    pub(super) fn note_inquirer(&mut self) -> Arc<Requests> {
        if let Some(requests) = &self.requests {
            return Arc::clone(requests);
        }
        let requests = Arc::clone(self.requests.insert(Arc::default()));
        self.renew_inquirer();
        requests
    }

    /// Notes the present permissions of the client for what the other broker tells it.
    pub(super) fn renew_inquirer(&self) {
        if let Some(requests) = self.requests.clone() {
            let (session, permissions) = (self.session.downgrade(), self.permissions.clone());
            let inquirer = Inquirer { session, permissions, requests };
            self.tenant.inquirers.put(self.id, inquirer);
        }
    }

    /// Notes keys that the client watches and that have come to this broker.
    pub(super) fn take_adopted(&mut self) {
        if self.requests.is_some() {
            let adopted = self.tenant.inquirers.take_adopted(self.id);
            if !adopted.is_empty() {
                self.watched.get_or_insert_default().extend(adopted);
            }
        }
    }

    /// Tells the other broker that the connection has ended, so that it watches nothing any more.
    pub(super) fn end_inquiries(&mut self, turn: &Turn<'_>) {
        if self.requests.is_none() {
            return;
        }
        self.tenant.inquirers.remove(self.id);
        self.take_adopted();
        let inquiring = self.inquiring(&self.session);
        turn.context.end_inquiries(&self.tenant, &inquiring, InquiryKind::ConnectionEnded);
    }
}
