//! PUBLISH packets from the client.

use std::ops::Range;

use barid_core::session::Reception;
use mqtt_proto::flow::InboundAliases;
use mqtt_proto::{DecodeError, FixedHeader, PacketId, PacketType, QoS, ReasonCode, Version};
use statestore_proto::topics;

use super::End;
use super::client::{Client, Partner};
use crate::access::may_publish;
use crate::bindings::Refused;
use crate::cluster::Remote;
use crate::context::Context;
use crate::faults::{IfHolds as _, Rule, holds};
use crate::names::is_reserved;
use crate::publishing::{Published, Source};
use crate::router::Publisher;
use crate::run::{Parsed, RunLimit};
use crate::targets::Targets;
use crate::turn::Turn;

/// Number of messages up to which a run is handed on in one piece, however many targets it has. Most runs are
/// this short, so their targets need not be counted.
const SHORT_RUN: usize = 4;

/// Ends the connection of a client whose message would have to be stored in a closed shard. The message is
/// not acknowledged, so the client sends it again on its next connection. The present connection must end at
/// once: the shard may be open again when the next message comes, which would overtake this one. An error
/// code would not prevent that: a client that loses its connection before it gets the code sends the message
/// again, too.
const SHARD_CLOSED: End = End::Refused(
    ReasonCode::ServerBusy,
    "a shard that must store this message is closed: send again",
);

/// Ends the connection of a client whose messages were routed while the broker was losing its quorum. Other brokers may have
/// stopped to wait for it, so there may be subscribers of which it has not heard.
const NO_QUORUM: End = End::Refused(
    ReasonCode::ServerBusy,
    "too few brokers of the cluster hear this one: send again",
);

impl Client {
    /// Handles a PUBLISH that lies at `frame` in `bytes`. It joins the run of the packets before it, or ends
    /// that run and begins another. Sets `alone` to false when there is more than one run.
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
            let count = turn.context.router.targets(&self.tenant, run.topic()).len();
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
                (parsed.qos, parsed.retain),
                &bytes[parsed.payload()],
            ) {
                let topic = topic.to_owned();
                self.deny_publish(turn, &topic, parsed.qos, parsed.retain);
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
                // Whether a message may be published to a reserved topic depends on its payload, so each is
                // checked.
                turn.scratch.run.limit = RunLimit::ONE;
            }
        }
        let (mut is_resumed, mut was_lost) = (false, false);
        if let (QoS::ExactlyOnce, Some(id)) = (parsed.qos, parsed.id) {
            if self.session.state().received.contains(id.get()) && !turn.scratch.run.is_empty() {
                // A repetition goes to other recipients than the messages before it, or to none, so it is not
                // part of their run.
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
                    // Another connection of the client is still handing the message on.
                    return Err(End::Refused(
                        ReasonCode::ServerBusy,
                        "another connection still publishes this message",
                    ));
                }
                Reception::Repeated => {
                    let counters = self.tenant.counters(turn.context.worker.id);
                    counters.received.add(PacketType::Publish, 1, frame.len() as u64);
                    self.session.traffic().add_received(1, frame.len() as u64);
                    if self.session.durable().is_some() {
                        // The first PUBLISH may have come a moment ago on another connection, and may not be
                        // durable yet.
                        let noted = self.tenant.shards.last_changes();
                        let noted = noted.if_holds(Rule::AcknowledgeRepetitionWhenDurable);
                        turn.scratch.answers.commits.join(&noted);
                    }
                    // Other brokers may not have it yet, either.
                    if let Some(owed) = &self.session.state().owed
                        && holds(Rule::AwaitEarlierMessages)
                    {
                        turn.scratch.answers.commits.join(owed);
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
        let id = parsed.id;
        run.push(parsed, bytes, turn.context.worker.now);
        if let Some(id) = id.filter(|_| is_resumed) {
            (run.is_resumed, run.was_lost) = (true, was_lost);
            let state = self.session.state();
            run.others = state.received.others(id.get());
            // Those that have been sent it may not have it yet.
            state.owed.iter().for_each(|owed| run.commits.join(owed));
            drop(state);
            self.finish_run(turn, bytes, false)?;
        }
        Ok(())
    }

    /// Publishes the run, and acknowledges its messages when the commits that they depend on are durable.
    /// `alone`: the read contains nothing else.
    ///
    /// # Errors
    /// The connection must end: a shard is closed that would have to store a message, or the client's version
    /// of MQTT has no other way to report a refusal.
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
        let session = &self.session;
        let tenant = &self.tenant;
        let counters = tenant.counters(turn.context.worker.id);
        let context = &mut *turn.context;
        let run = &mut turn.scratch.run;
        let count = run.len();
        counters.received.add(PacketType::Publish, count as u64, run.frame_bytes() as u64);
        session.traffic().add_received(count as u64, run.frame_bytes() as u64);
        let holder = self.holder.as_ref();
        let publisher = Publisher { session: session.id, client_id: &session.client_id, holder };
        let messages = run.in_buffer(bytes, context.worker.now);
        let refuses_at = self.limits.queue_overflow.refuses_at();
        let Context { worker, router, .. } = &mut *context;
        // Some targets may already have resumed messages, so these messages cannot be refused any more.
        let is_resumed = messages.is_resumed();
        let admitted = if is_resumed && holds(Rule::AdmitWhatWasReceived) {
            Ok(messages.len())
        } else {
            router.admissible(worker, tenant, publisher, &messages, refuses_at)
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
        let mut published = Published::default();
        let lives = |remote: &Option<Remote>| remote.as_ref().map(Remote::lives);
        let life = lives(&tenant.remote);
        if admitted > 0 {
            let source = Source {
                tenant,
                publisher,
                enters_entities: true,
                // MQTT 3.x cannot report a refusal.
                is_told: self.version == Version::V5 && !is_resumed,
                is_alone: alone,
            };
            published = context.publish(&source, run, bytes, &mut turn.budget);
        }
        let has_quorum = run.qos() == QoS::AtMostOnce
            || tenant.remote.as_ref().is_none_or(|remote| {
                let serves = remote.serves(context.engine.clock.now())
                    || !holds(Rule::AcknowledgeWithQuorum);
                if !serves {
                    run.commits.join(&remote.not_serving());
                }
                serves
            });
        let mut reason = ReasonCode::QuotaExceeded;
        if let Some(targets) = &published.targets {
            reason = ReasonCode::Success;
            if published.is_unmatched() {
                counters.unmatched.add(run.len() as u64);
                reason = ReasonCode::NoMatchingSubscribers;
            }
            note_partner(targets, &mut self.partner);
            if run.qos() == QoS::ExactlyOnce
                && let Some(durable) = session.durable()
            {
                // A repetition must be recognised even if no stored session or entity got the message.
                run.in_buffer(bytes, context.worker.now).note_received(durable);
            }
        }
        let (refused, ids) =
            published.refused.unwrap_or_else(|| (Refused::default(), std::mem::take(&mut run.ids)));
        let answers = &mut turn.scratch.answers;
        if holds(Rule::AcknowledgeWhenDurable) {
            answers.commits.join(&run.commits);
        }
        answers.rooms.append(&mut published.full);
        let qos = run.qos();
        if !run.sent.is_empty() {
            self.sent.join(&run.sent);
            if qos != QoS::AtMostOnce {
                session.state().owed.get_or_insert_default().join(&run.sent);
            }
        }
        let mut is_lost = run.commits.are_lost();
        if qos == QoS::ExactlyOnce {
            let mut state = session.state();
            // Looked at under the lock: what was sent in a former life is given up.
            if lives(&tenant.remote) != life {
                (is_lost, run.others) = (true, 0);
            }
            for id in &ids {
                state.received.hand_on(*id, run.reached.iter(), run.others, is_lost);
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
            return Err(if has_quorum { SHARD_CLOSED } else { NO_QUORUM });
        }
        if admitted == count || self.version == Version::V5 {
            return Ok(());
        }
        Err(End::Refused(
            ReasonCode::QuotaExceeded,
            "a queue or the disk is full, and this version of MQTT has no other way to say so",
        ))
    }

    fn check(&self, parsed: &Parsed) -> Result<(), End> {
        if parsed.has_identifier {
            return Err(End::Refused(
                ReasonCode::ProtocolError,
                "a client must not send a Subscription Identifier",
            ));
        }
        if parsed.qos as u8 > self.announced.max_qos {
            return Err(End::Refused(
                ReasonCode::QoSNotSupported,
                "the QoS is above the Maximum QoS",
            ));
        }
        if parsed.retain && !self.announced.retain_available {
            return Err(End::Refused(
                ReasonCode::RetainNotSupported,
                "retained messages are not available",
            ));
        }
        Ok(())
    }

    /// Acknowledges a message that is not handed on. MQTT 3.x cannot report the reason (MQTT-3.3.5-2 of
    /// 3.1.1).
    fn refuse(&self, turn: &mut Turn<'_>, parsed: &Parsed, bytes: usize, reason: ReasonCode) {
        let counters = self.tenant.counters(turn.context.worker.id);
        counters.received.add(PacketType::Publish, 1, bytes as u64);
        self.session.traffic().add_received(1, bytes as u64);
        counters.unauthorised.add(u64::from(reason == ReasonCode::NotAuthorized));
        match (parsed.qos, parsed.id) {
            (QoS::AtLeastOnce, Some(id)) => self.put_ack(turn, PacketType::PubAck, id, reason),
            (QoS::ExactlyOnce, Some(id)) => {
                if self.version != Version::V5 {
                    let mut state = self.session.state();
                    state.received.receive(id.get());
                    state.received.hand_on(id.get(), [], 0, false);
                }
                self.put_ack(turn, PacketType::PubRec, id, reason);
            }
            _ => {}
        }
    }

    /// Notes the Packet Identifier of a QoS 2 message. Returns whether the message is new or a repetition.
    fn receive(&self, id: PacketId) -> Result<Reception, End> {
        let mut state = self.session.state();
        self.check_owner()?;
        if !state.received.contains(id.get())
            && state.received.len() >= usize::from(self.announced.receive_maximum)
            && self.version == Version::V5
        {
            return Err(End::Refused(
                ReasonCode::ReceiveMaximumExceeded,
                "more unreleased QoS 2 messages than the Receive Maximum",
            ));
        }
        Ok(state.received.receive(id.get()))
    }
}

/// Makes a session the `partner` of the publisher if messages go to that session only.
fn note_partner(targets: &Targets, partner: &mut Option<Partner>) {
    if let [only] = targets.route().recipients()
        && partner.as_ref().is_none_or(|partner| partner.id != only.subscriber.id)
    {
        let session = only.subscriber.downgrade();
        *partner = Some(Partner { id: only.subscriber.id, session });
    }
}

/// Returns the topic of a message: that in the packet, or that of its Topic Alias.
fn topic_of<'a>(
    aliases: &'a mut InboundAliases,
    parsed: &Parsed,
    bytes: &'a [u8],
) -> Result<&'a str, DecodeError> {
    let topic =
        std::str::from_utf8(&bytes[parsed.topic.clone()]).map_err(|_| DecodeError::InvalidUtf8)?;
    aliases.resolve(parsed.alias, topic)
}
