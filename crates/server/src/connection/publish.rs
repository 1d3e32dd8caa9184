//! PUBLISH packets from the client.

use std::ops::Range;

use barid_core::session::DropReason;
use mqtt_proto::flow::InboundAliases;
use mqtt_proto::{DecodeError, FixedHeader, PacketId, PacketType, QoS, ReasonCode, Version};

use super::active::{Active, Partner};
use super::{End, Turn};
use crate::auth::may_publish;
use crate::router::Publisher;
use crate::run::Parsed;

impl Active {
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
        let run = &turn.scratch.run;
        let same_topic = if parsed.alias.is_some() || parsed.topic.is_empty() {
            topic_of(&mut self.aliases, &parsed, bytes)? == run.topic()
        } else {
            parsed.same_topic
        };
        if !(same_topic && run.continues(&parsed)) {
            *alone &= run.is_empty();
            self.finish_run(turn, bytes, false);
            let topic = topic_of(&mut self.aliases, &parsed, bytes)?;
            if !may_publish(self.permissions.as_deref(), topic) {
                self.refuse(turn, &parsed, frame.len(), ReasonCode::NotAuthorized);
                return Ok(());
            }
            turn.scratch.run.begin(topic, parsed.qos, parsed.retain, self.version == Version::V5);
        }
        if let (QoS::ExactlyOnce, Some(id)) = (parsed.qos, parsed.id)
            && !self.receive(id)?
        {
            self.finish_run(turn, bytes, false);
            let counters = self.session.tenant.counters(turn.context.worker.id);
            counters.received.add(PacketType::Publish, 1, frame.len() as u64);
            self.put_ack(turn, PacketType::PubRec, id, ReasonCode::Success);
            return Ok(());
        }
        turn.scratch.ids.extend(parsed.id.map(PacketId::get));
        turn.scratch.run.push(parsed, bytes, turn.context.worker.now);
        Ok(())
    }

    /// Publishes the run, and acknowledges its messages. `alone`: nothing else comes of this read.
    pub(super) fn finish_run(&mut self, turn: &mut Turn<'_>, bytes: &mut [u8], alone: bool) {
        if turn.scratch.run.is_empty() {
            return;
        }
        let session = self.session.clone();
        let tenant = &session.tenant;
        let counters = tenant.counters(turn.context.worker.id);
        let run = &mut turn.scratch.run;
        let count = run.len() as u64;
        counters.received.add(PacketType::Publish, count, run.frame_bytes() as u64);
        let mut messages = run.in_buffer(bytes, turn.context.worker.now);
        let qos = messages.qos();
        let kept = !messages.retain() || turn.context.retain(tenant, &mut messages);
        if !kept {
            counters.dropped(DropReason::RetainedMessages);
        }
        // An MQTT 5 client is told, so nobody gets the message; a 3.x client cannot be told.
        let delivered = kept || self.version != Version::V5;
        let publisher = Publisher { session: session.id, client_id: &session.client_id };
        let context = &mut *turn.context;
        let reason = if delivered {
            let route =
                context.router.publish(&context.worker, tenant, publisher, &mut messages, alone);
            if let [only] = route.targets()
                && self.partner.as_ref().is_none_or(|partner| partner.id != only.subscriber.id)
            {
                let session = only.subscriber.downgrade();
                self.partner = Some(Partner { id: only.subscriber.id, session });
            }
            if route.is_empty() {
                counters.unmatched.add(count);
                ReasonCode::NoMatchingSubscribers
            } else {
                ReasonCode::Success
            }
        } else {
            ReasonCode::QuotaExceeded
        };
        turn.scratch.run.clear();
        let kind = if qos == QoS::ExactlyOnce { PacketType::PubRec } else { PacketType::PubAck };
        let ids = std::mem::take(&mut turn.scratch.ids);
        for id in &ids {
            let id = PacketId::new(*id).expect("the decoder refuses 0");
            self.put_ack(turn, kind, id, reason);
        }
        if qos == QoS::ExactlyOnce && reason.is_error() {
            let mut state = session.state();
            for id in &ids {
                state.received.release(*id);
            }
        }
        turn.scratch.ids = ids;
        turn.scratch.ids.clear();
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
        let counters = self.session.tenant.counters(turn.context.worker.id);
        counters.received.add(PacketType::Publish, 1, bytes as u64);
        counters.unauthorised.add(1);
        match (parsed.qos, parsed.id) {
            (QoS::AtLeastOnce, Some(id)) => self.put_ack(turn, PacketType::PubAck, id, reason),
            (QoS::ExactlyOnce, Some(id)) => {
                if self.version != Version::V5 {
                    self.session.state().received.receive(id.get());
                }
                self.put_ack(turn, PacketType::PubRec, id, reason);
            }
            _ => {}
        }
    }

    /// Notes a QoS 2 message. False: it has been handed on before.
    fn receive(&self, id: PacketId) -> Result<bool, End> {
        let mut state = self.session.state();
        self.check_owner()?;
        if state.received.contains(id.get()) {
            return Ok(false);
        }
        if state.received.len() >= usize::from(self.limits.receive_maximum)
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
