//! PUBLISH packets from the client.

use std::ops::Range;
use std::sync::Arc;

use barid_core::session::Reception;
use barid_core::topic_index::Route;
use mqtt_proto::flow::InboundAliases;
use mqtt_proto::{DecodeError, FixedHeader, PacketId, PacketType, QoS, ReasonCode, Version};
use statestore_proto::topics;

use super::End;
use super::client::{Client, Partner};
use crate::access::may_publish;
use crate::bindings::Entered;
use crate::budget::Budget;
use crate::faults::{IfHolds as _, Rule, holds};
use crate::lifecycle::Context;
use crate::limits::QueueOverflow;
use crate::names::is_reserved;
use crate::router::{Publisher, ShardClosed};
use crate::run::{Messages, Parsed, Run, RunLimit};
use crate::session::SessionRef;
use crate::turn::Turn;

/// A run of so many messages is handed on in one piece, whoever gets it. Most runs are short, and need not be measured.
const SHORT_RUN: usize = 4;

/// The shard may be open again before the next message. That must not come before this one, which is sent again if it is not
/// answered, and also if its publisher loses the connection before it hears the answer. So the connection ends at once.
const SHARD_CLOSED: End =
    End::Refused(ReasonCode::ServerBusy, "a shard is closed that has to store this: send again");

impl Client {
    /// A PUBLISH that lies at `frame` in `bytes`. It joins the run of those before it, or ends that run
    /// and begins another. `alone` becomes false when there is more than one run.
    pub(super) fn on_publish(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
        header: FixedHeader,
        frame: Range<usize>,
        alone: &mut bool,
    ) -> Result<(), End> {
        let parsed = turn.scratch.run.parse(self.version, header, bytes, &frame)?;
        self.check(&parsed)?;
        let run = &mut turn.scratch.run;
        if run.len() == SHORT_RUN && run.limit == RunLimit::NONE && !run.is_requests {
            let count = turn.context.router.subscribers(&self.tenant, run.topic());
            run.limit = RunLimit::for_subscribers(count);
        }
        let same_topic = if parsed.alias.is_some() || parsed.topic.is_empty() {
            topic_of(&mut self.aliases, &parsed, bytes)? == run.topic()
        } else {
            parsed.same_topic
        };
        if !(same_topic && run.continues(&parsed)) {
            *alone &= run.is_empty();
            self.finish_run(turn, bytes, false)?;
            let topic = topic_of(&mut self.aliases, &parsed, bytes)?;
            if !may_publish(
                self.permissions.as_deref(),
                &self.session.client_id,
                topic,
                &bytes[parsed.payload()],
            ) {
                let topic = topic.to_owned();
                self.deny_publish(turn, &topic);
                self.refuse(turn, &parsed, frame.len(), ReasonCode::NotAuthorized);
                return Ok(());
            }
            let is_request = topic == topics::INVOKE;
            if is_request && (parsed.qos != QoS::AtLeastOnce || self.version != Version::V5) {
                let reason = ReasonCode::ImplementationSpecificError;
                self.refuse(turn, &parsed, frame.len(), reason);
                return Ok(());
            }
            let class = self.durability.of(topic);
            let v5 = self.version == Version::V5;
            turn.scratch.run.begin(topic, parsed.qos, parsed.retain, v5, class);
            turn.scratch.run.is_requests = is_request;
            if is_reserved(topic) {
                // What may be published there depends on the payload.
                turn.scratch.run.limit = RunLimit::ONE;
            }
        }
        let (mut is_resumed, mut was_lost) = (false, false);
        if let (QoS::ExactlyOnce, Some(id)) = (parsed.qos, parsed.id) {
            if self.session.state().received.contains(id.get()) && !turn.scratch.run.is_empty() {
                // It goes to others than those before it, or to nobody, so it is no part of their run.
                let run = &turn.scratch.run;
                let (topic, class) = (run.topic().to_owned(), run.class);
                self.finish_run(turn, bytes, false)?;
                *alone = false;
                let v5 = self.version == Version::V5;
                turn.scratch.run.begin(&topic, parsed.qos, parsed.retain, v5, class);
            }
            match self.receive(id)? {
                Reception::New => {}
                Reception::Resumed => is_resumed = true,
                Reception::Lost => (is_resumed, was_lost) = (true, true),
                Reception::Unfinished => {
                    // Another connection of the client is just handing it on.
                    return Err(End::Refused(ReasonCode::ServerBusy, "repeated too early"));
                }
                Reception::Repeated => {
                    let counters = self.tenant.counters(turn.context.worker.id);
                    counters.received.add(PacketType::Publish, 1, frame.len() as u64);
                    if self.session.durable().is_some() {
                        // The first one may have come a moment ago, on another connection.
                        let noted = self.tenant.shards.last_changes();
                        let noted = noted.if_holds(Rule::AcknowledgeRepetitionWhenDurable);
                        turn.scratch.answers.commits.join(&noted);
                    }
                    self.put_ack(turn, PacketType::PubRec, id, ReasonCode::Success);
                    return Ok(());
                }
            }
        }
        let run = &mut turn.scratch.run;
        run.ids.extend(parsed.id.map(PacketId::get));
        if parsed.qos == QoS::ExactlyOnce {
            run.origin = self.session.durable().map(|durable| (durable.tenant, durable.number));
        }
        run.push(parsed, bytes, turn.context.worker.now);
        if is_resumed {
            (run.is_resumed, run.was_lost) = (true, was_lost);
            self.finish_run(turn, bytes, false)?;
        }
        Ok(())
    }

    /// Publishes the run, and acknowledges its messages when what they have to reach is durable. `alone`:
    /// nothing else comes of this read. An error: a client that cannot be told otherwise is refused.
    pub(super) fn finish_run(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
        alone: bool,
    ) -> Result<(), End> {
        if turn.scratch.run.is_empty() {
            return Ok(());
        }
        if turn.scratch.run.is_requests {
            return self.finish_requests(turn, bytes);
        }
        let session = self.session.clone();
        let mut partner = self.partner.take();
        let tenant = &self.tenant;
        let counters = tenant.counters(turn.context.worker.id);
        let context = &mut *turn.context;
        let run = &mut turn.scratch.run;
        let count = run.len();
        counters.received.add(PacketType::Publish, count as u64, run.frame_bytes() as u64);
        let publisher = Publisher { session: session.id, client_id: &session.client_id };
        let messages = run.in_buffer(bytes, context.worker.now);
        let reject = self.limits.queue_overflow == QueueOverflow::Reject;
        let Context { worker, router, .. } = &mut *context;
        // What some have from before a crash cannot be refused any more.
        let admitted = if messages.is_resumed() && holds(Rule::AdmitWhatWasReceived) {
            Ok(messages.len())
        } else if messages.qos() != QoS::AtMostOnce
            && tenant.shards.any_refuses()
            && tenant.enters_closed(messages.topic())
        {
            Err(ShardClosed)
        } else {
            router.admissible(worker, tenant, publisher, &messages, reject)
        };
        let Ok(admitted) = admitted else {
            let mut state = session.state();
            run.ids.iter().for_each(|id| {
                state.received.release(*id);
            });
            run.clear();
            return Err(SHARD_CLOSED);
        };
        run.truncate(admitted);
        // What is refused with 0x97 below is in no entity, either.
        let may_enter = admitted > 0 && tenant.bindings.has_in() && {
            let mut messages = run.in_buffer(bytes, context.worker.now);
            self.version != Version::V5
                || !messages.retain()
                || context.may_retain(tenant, &mut messages)
        };
        let (Entered { taken, refused, .. }, all_ids) =
            if may_enter { self.enter(context, run, bytes) } else { Default::default() };
        let mut reason = ReasonCode::QuotaExceeded;
        if !run.is_empty() {
            let mut messages = run.in_buffer(bytes, context.worker.now);
            let kept =
                if messages.retain() { context.retain(tenant, &mut messages) } else { Ok(()) };
            if let Err(reason) = kept {
                session.dropped(&context.worker, reason, Some(messages.topic()));
            }
            // An MQTT 5 client is told, so nobody gets the message; a 3.x client cannot be told.
            if kept.is_ok() || self.version != Version::V5 || messages.is_resumed() {
                let budget = &mut turn.budget;
                let route =
                    self.route((context, budget), publisher, &mut messages, alone, &mut partner);
                if !taken && route.is_empty() {
                    counters.unmatched.add(messages.len() as u64);
                    reason = ReasonCode::NoMatchingSubscribers;
                } else {
                    reason = ReasonCode::Success;
                }
            }
        }
        self.partner = partner;
        let run = &mut turn.scratch.run;
        let ids = all_ids.unwrap_or_else(|| std::mem::take(&mut run.ids));
        let answers = &mut turn.scratch.answers;
        if holds(Rule::AcknowledgeWhenDurable) {
            answers.commits.join(&run.commits);
        }
        answers.rooms.append(&mut turn.context.router.take_full());
        let qos = run.qos();
        let is_lost = run.commits.are_lost();
        if qos == QoS::ExactlyOnce {
            let mut state = session.state();
            for id in &ids {
                state.received.hand_on(*id, run.reached.iter(), is_lost);
            }
        }
        run.clear();
        let kind = if qos == QoS::ExactlyOnce { PacketType::PubRec } else { PacketType::PubAck };
        let mut refused = refused.into_iter().peekable();
        for (index, id) in ids.iter().enumerate() {
            let reason = match refused.next_if(|(of, _)| *of == index) {
                Some((_, reason)) => reason,
                None if index < admitted => reason,
                None => ReasonCode::QuotaExceeded,
            };
            if qos == QoS::ExactlyOnce && reason.is_error() {
                let released = session.state().received.release(*id);
                let (commits, _) = session.forget_received(*id, released.as_ref());
                turn.scratch.answers.commits.join(&commits);
            }
            if index < admitted || self.version == Version::V5 {
                let id = PacketId::new(*id).expect("the decoder refuses 0");
                self.put_ack(turn, kind, id, reason);
            }
        }
        turn.scratch.run.ids = ids;
        turn.scratch.run.ids.clear();
        if is_lost {
            return Err(SHARD_CLOSED);
        }
        if admitted == count || self.version == Version::V5 {
            return Ok(());
        }
        Err(End::Refused(
            ReasonCode::QuotaExceeded,
            "a queue or the disk is full, and this version of MQTT has no other way to say so",
        ))
    }

    /// Sends the run to the entities that bindings name, and takes out what nobody else is to get then.
    /// Answers all packet identifiers if it has taken out any.
    fn enter(
        &self,
        context: &Context,
        run: &mut Run,
        bytes: &mut [u8],
    ) -> (Entered, Option<Vec<u16>>) {
        let (tenant, client_id) = (&self.tenant, &self.session.client_id);
        let (worker, now) = (&context.worker, context.worker.now);
        let messages = run.in_buffer(bytes, now);
        let has_answer = messages.qos() != QoS::AtMostOnce && self.version == Version::V5;
        let is_told = has_answer && !messages.is_resumed();
        let entered = tenant.enter((worker, context.wall()), client_id, &messages, is_told);
        let mut all_ids = None;
        if !entered.refused.is_empty() {
            all_ids = Some(run.ids.clone());
            let is_refused = |index| entered.refused.binary_search_by_key(&index, |(of, _)| *of);
            run.remove(|index| is_refused(index).is_ok());
        }
        if !run.is_empty() {
            run.in_buffer(bytes, now).note_entered(&entered.commits);
        }
        (entered, all_ids)
    }

    /// Hands the run on to all who have subscribed. If that is one session only, it becomes the `partner`.
    fn route(
        &self,
        (context, budget): (&mut Context, &mut Budget),
        publisher: Publisher<'_>,
        messages: &mut Messages<'_>,
        alone: bool,
        partner: &mut Option<Partner>,
    ) -> Arc<Route<SessionRef>> {
        let Context { worker, router, .. } = context;
        let route = router.publish(worker, &self.tenant, publisher, messages, alone, budget);
        if let [only] = route.targets()
            && partner.as_ref().is_none_or(|partner| partner.id != only.subscriber.id)
        {
            let session = only.subscriber.downgrade();
            *partner = Some(Partner { id: only.subscriber.id, session });
        }
        if messages.qos() == QoS::ExactlyOnce
            && let Some(durable) = self.session.durable()
        {
            // Also where it has reached nobody that is stored, a repetition must be known as one.
            messages.note_received(durable);
        }
        route
    }

    fn check(&self, parsed: &Parsed) -> Result<(), End> {
        if parsed.has_identifier {
            return Err(End::Refused(
                ReasonCode::ProtocolError,
                "a client must not send a Subscription Identifier",
            ));
        }
        if parsed.qos as u8 > self.limits.max_qos {
            return Err(End::Refused(ReasonCode::QoSNotSupported, "above the Maximum QoS"));
        }
        if parsed.retain && !self.limits.retain_available {
            return Err(End::Refused(
                ReasonCode::RetainNotSupported,
                "retained messages are not available",
            ));
        }
        Ok(())
    }

    /// Acknowledges a message that is not handed on. 3.x clients cannot be told (MQTT-3.3.5-2 of 3.1.1).
    fn refuse(&self, turn: &mut Turn<'_>, parsed: &Parsed, bytes: usize, reason: ReasonCode) {
        let counters = self.tenant.counters(turn.context.worker.id);
        counters.received.add(PacketType::Publish, 1, bytes as u64);
        counters.unauthorised.add(u64::from(reason == ReasonCode::NotAuthorized));
        match (parsed.qos, parsed.id) {
            (QoS::AtLeastOnce, Some(id)) => self.put_ack(turn, PacketType::PubAck, id, reason),
            (QoS::ExactlyOnce, Some(id)) => {
                if self.version != Version::V5 {
                    let mut state = self.session.state();
                    state.received.receive(id.get());
                    state.received.hand_on(id.get(), [], false);
                }
                self.put_ack(turn, PacketType::PubRec, id, reason);
            }
            _ => {}
        }
    }

    /// Notes a QoS 2 message.
    fn receive(&self, id: PacketId) -> Result<Reception, End> {
        let mut state = self.session.state();
        self.check_owner()?;
        if !state.received.contains(id.get())
            && state.received.len() >= usize::from(self.limits.receive_maximum)
            && self.version == Version::V5
        {
            return Err(End::Refused(
                ReasonCode::ReceiveMaximumExceeded,
                "more QoS 2 messages unreleased than the Receive Maximum",
            ));
        }
        Ok(state.received.receive(id.get()))
    }
}

/// The topic of a message, whatever stands for it.
fn topic_of<'a>(
    aliases: &'a mut InboundAliases,
    parsed: &Parsed,
    bytes: &'a [u8],
) -> Result<&'a str, DecodeError> {
    let topic =
        std::str::from_utf8(&bytes[parsed.topic.clone()]).map_err(|_| DecodeError::InvalidUtf8)?;
    aliases.resolve(parsed.alias, topic)
}
