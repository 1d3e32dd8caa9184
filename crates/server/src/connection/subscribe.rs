//! SUBSCRIBE and UNSUBSCRIBE.

use std::num::NonZeroU32;

use barid_core::durable::keys;
use mqtt_proto::{
    PacketType, Properties, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscribeFilter,
    UnsubAck, Unsubscribe, Version, topic,
};

use super::active::Active;
use super::{End, Turn};
use crate::lifecycle;
use crate::session::{Replay, Subscription};
use crate::state_store;

impl Active {
    pub(super) fn on_subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        packet: &Subscribe<'_>,
    ) -> Result<(), End> {
        self.check_answer(packet.filters.len())?;
        let identifier = packet.properties.subscription_identifiers().next();
        let identifier = identifier.and_then(NonZeroU32::new);
        let mut codes = Vec::with_capacity(packet.filters.len());
        let mut replays = false;
        for wanted in &packet.filters {
            let granted = self.subscribe(turn, wanted, identifier);
            if let Err(ReasonCode::NotAuthorized) = granted {
                self.deny_subscribe(turn, wanted.filter);
            }
            codes.push(match granted {
                // The SUBACK of MQTT 3.1 has no code for a failure.
                Err(reason) if self.version == Version::V3_1 => {
                    return Err(End::Refused(reason, "the subscription is refused"));
                }
                Err(reason) => reason as u8,
                Ok((qos, new)) => {
                    let send = match wanted.options.retain_handling {
                        RetainHandling::SendAtSubscribe => true,
                        RetainHandling::SendIfNew => new,
                        RetainHandling::DoNotSend => false,
                    };
                    // Shared subscriptions get none (MQTT 5 §4.8.2).
                    if send
                        && !topic::is_shared(wanted.filter)
                        && self.session.tenant.has_retained(wanted.filter)
                    {
                        let filter = wanted.filter.into();
                        replays = true;
                        if !self.session.replay(Replay { filter, qos, identifier, after: None }) {
                            return Err(End::Refused(
                                ReasonCode::QuotaExceeded,
                                "too many subscriptions whose retained messages are not yet taken",
                            ));
                        }
                    }
                    qos as u8
                }
            });
        }
        if replays {
            let commits = self.session.store(&self.session.state());
            turn.scratch.answers.commits.join(&commits);
        }
        let refused = codes.contains(&(ReasonCode::NotAuthorized as u8));
        self.put_answer(turn, PacketType::SubAck, |answers| {
            SubAck {
                packet_id: packet.packet_id,
                properties: Properties::default(),
                codes: &codes,
            }
            .encode(self.version, answers)
            .expect("there is one code for each filter");
        });
        if refused {
            self.session.tenant.counters(turn.context.worker.id).unauthorised.add(1);
        }
        Ok(())
    }

    /// An error if a SUBACK or UNSUBACK with so many codes is larger than the client takes: then nothing
    /// must be done that it would have to be told of.
    fn check_answer(&self, codes: usize) -> Result<(), End> {
        const MOST_BUT_CODES: usize = 1 + 4 + 2 + 1;
        if self.version.is_v5() && MOST_BUT_CODES + codes > self.max_packet_size {
            return Err(End::Refused(
                ReasonCode::PacketTooLarge,
                "the acknowledgement would be larger than your Maximum Packet Size",
            ));
        }
        Ok(())
    }

    /// Subscribes to one filter. Returns the QoS granted and whether the subscription is new.
    fn subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        wanted: &SubscribeFilter<'_>,
        identifier: Option<NonZeroU32>,
    ) -> Result<(QoS, bool), ReasonCode> {
        self.check_filter(wanted.filter)?;
        let session = &self.session;
        let max_qos = QoS::try_from(self.limits.max_qos).unwrap_or(QoS::ExactlyOnce);
        let subscription = Subscription {
            filter: wanted.filter.into(),
            qos: wanted.options.qos.min(max_qos),
            no_local: wanted.options.no_local,
            retain_as_published: wanted.options.retain_as_published,
            identifier,
        };
        let mut state = session.state();
        if state.ended || self.check_owner().is_err() {
            return Err(ReasonCode::UnspecifiedError);
        }
        if state.subscriptions.len() >= self.limits.max_subscriptions
            && !state.subscriptions.contains(wanted.filter)
        {
            return Err(ReasonCode::QuotaExceeded);
        }
        if session.store_refuses() {
            return Err(ReasonCode::QuotaExceeded);
        }
        if session.durable().is_some() && wanted.filter.len() > keys::TEXT_LEN_MAX {
            return Err(ReasonCode::TopicFilterInvalid);
        }
        turn.scratch.answers.commits.join(&session.store_subscription(&subscription));
        lifecycle::subscribe(session, &subscription);
        let qos = subscription.qos;
        Ok((qos, state.subscriptions.insert(subscription)))
    }

    /// Whether the client may subscribe to a filter.
    fn check_filter(&self, filter: &str) -> Result<(), ReasonCode> {
        topic::validate_filter(filter).map_err(|_| ReasonCode::TopicFilterInvalid)?;
        let shared = topic::parse_shared(filter).map_err(|_| ReasonCode::TopicFilterInvalid)?;
        if shared.is_some() && !self.limits.shared_subscriptions {
            return Err(ReasonCode::SharedSubscriptionsNotSupported);
        }
        let inner = shared.as_ref().map_or(filter, |shared| shared.filter);
        if topic::has_wildcards(inner) && !self.limits.wildcard_subscriptions {
            return Err(ReasonCode::WildcardSubscriptionsNotSupported);
        }
        let may = self.permissions.as_ref().is_none_or(|own| own.may_subscribe(inner))
            && state_store::may_subscribe(&self.session.client_id, inner);
        if may { Ok(()) } else { Err(ReasonCode::NotAuthorized) }
    }

    pub(super) fn on_unsubscribe(
        &mut self,
        turn: &mut Turn<'_>,
        packet: &Unsubscribe<'_>,
    ) -> Result<(), End> {
        self.check_answer(packet.filters.len())?;
        let mut codes = Vec::with_capacity(packet.filters.len());
        for filter in &packet.filters {
            if topic::validate_filter(filter).is_err() {
                if self.version.is_v5() {
                    codes.push(ReasonCode::TopicFilterInvalid as u8);
                    continue;
                }
                return Err(End::Refused(
                    ReasonCode::TopicFilterInvalid,
                    "the topic filter is not valid",
                ));
            }
            // Index and state change together, also before the eyes of a connection that takes over.
            let mut state = self.session.state();
            self.check_owner()?;
            let existed = state.subscriptions.remove(filter);
            if existed {
                lifecycle::unsubscribe(&self.session.tenant, filter, self.session.id);
                let commits = self.session.forget_subscription(filter);
                turn.scratch.answers.commits.join(&commits);
            }
            drop(state);
            let code =
                if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted };
            codes.push(code as u8);
        }
        self.put_answer(turn, PacketType::UnsubAck, |answers| {
            UnsubAck {
                packet_id: packet.packet_id,
                properties: Properties::default(),
                codes: &codes,
            }
            .encode(self.version, answers)
            .expect("there is one code for each filter");
        });
        Ok(())
    }
}
