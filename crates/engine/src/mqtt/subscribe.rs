//! Handling of SUBSCRIBE and UNSUBSCRIBE.

use std::num::NonZeroU32;

use barid_core::holder::{Held, Holder};
use barid_core::ids;
use mqtt_proto::{
    PacketId, PacketType, Properties, QoS, ReasonCode, RetainHandling, SubAck, Subscribe,
    SubscribeFilter, SubscribeFilters, SubscribeFiltersBuf, UnsubAck, Unsubscribe,
    UnsubscribeFilters, UnsubscribeFiltersBuf, Version, topic,
};

use super::End;
use super::client::Client;
use super::opening::shared_filter;
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::limits::Quota;
use crate::session::{Replay, Subscription, Subscriptions};
use crate::state_store;
use crate::turn::Turn;
use crate::worker::Worker;

/// Steps of a turn for each filter: it changes the topic index, and is noted in the store.
const FILTER_STEPS: usize = 4;

/// A SUBSCRIBE or UNSUBSCRIBE that has filters left to handle. A packet may contain hundreds of thousands of
/// filters, so it may take several turns. No later packet of the client is handled before it is finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    packet_id: PacketId,
    rest: Rest,
    done: Done,
}

#[derive(Debug)]
enum Rest {
    Subscribe(SubscribeFiltersBuf, Option<NonZeroU32>),
    Unsubscribe(UnsubscribeFiltersBuf),
}

/// The results for the filters of a packet that have been handled.
#[derive(Debug, Default)]
struct Done {
    /// Reason codes of the handled filters.
    codes: Vec<u8>,
    /// Whether any of these subscriptions has asked for retained messages.
    replays: bool,
    /// The commits that must be durable before the packet is acknowledged.
    commits: Commits,
    /// The limit that the last filter would have exceeded.
    exceeded: Option<Quota>,
}

impl Client {
    pub(super) fn on_subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        packet: &Subscribe<'_>,
    ) -> Result<(), End> {
        self.check_answer(packet.filters.len())?;
        let identifier = packet.properties.subscription_identifiers().next();
        let identifier = identifier.and_then(NonZeroU32::new);
        self.subscribe_all(turn, packet.packet_id, packet.filters, identifier, Done::default())
    }

    pub(super) fn on_unsubscribe(
        &mut self,
        turn: &mut Turn<'_>,
        packet: &Unsubscribe<'_>,
    ) -> Result<(), End> {
        self.check_answer(packet.filters.len())?;
        self.unsubscribe_all(turn, packet.packet_id, packet.filters, Done::default())
    }

    /// Continues with the packet that was not finished in the previous turn, if there is one.
    pub(super) fn resume(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let Unfinished { packet_id, rest, done } = *unfinished;
        match rest {
            Rest::Subscribe(rest, identifier) => {
                self.subscribe_all(turn, packet_id, rest.as_filters(), identifier, done)
            }
            Rest::Unsubscribe(rest) => {
                self.unsubscribe_all(turn, packet_id, rest.as_filters(), done)
            }
        }
    }

    fn subscribe_all(
        &mut self,
        turn: &mut Turn<'_>,
        packet_id: PacketId,
        mut filters: SubscribeFilters<'_>,
        identifier: Option<NonZeroU32>,
        mut done: Done,
    ) -> Result<(), End> {
        while let Some(wanted) = filters.next() {
            let worker = turn.context.worker;
            let granted = self.subscribe(&worker, &wanted, identifier, &mut done);
            if let Err(ReasonCode::NotAuthorized) = granted {
                self.deny_subscribe(turn, wanted.filter, wanted.options.qos);
            }
            if let Some(quota) = done.exceeded.take() {
                self.deny_exceeding(turn, wanted.filter, quota);
            }
            done.codes.push(match granted {
                // SUBACK in MQTT 3.1 has no code for a failure.
                Err(reason) if self.version == Version::V3_1 => {
                    return Err(End::Refused(reason, "the subscription is refused"));
                }
                Err(reason) => reason as u8,
                Ok((qos, new)) => {
                    done.replays |= self.replay(&wanted, qos, new, identifier)?;
                    qos as u8
                }
            });
            if turn.budget.spend(FILTER_STEPS) && !filters.is_empty() {
                let rest = Rest::Subscribe(filters.to_buf(), identifier);
                self.unfinished = Some(Box::new(Unfinished { packet_id, rest, done }));
                return Ok(());
            }
        }
        if done.replays {
            done.commits.join(&self.session.store(&self.session.state()));
        }
        let commits = done.commits.if_holds(Rule::AnswerSubscribeWhenDurable);
        turn.scratch.answers.commits.join(&commits);
        let refused = done.codes.contains(&(ReasonCode::NotAuthorized as u8));
        self.put_answer(turn, PacketType::SubAck, |answers| {
            SubAck { packet_id, properties: Properties::default(), codes: &done.codes }
                .encode(self.version, answers)
                .expect("there is one code for each filter");
        });
        if refused {
            self.tenant.counters(turn.context.worker.id).unauthorised.add(1);
        }
        Ok(())
    }

    /// Requests the retained messages for a subscription, if the client wants them and some may match.
    /// Returns whether they were requested.
    fn replay(
        &self,
        wanted: &SubscribeFilter<'_>,
        qos: QoS,
        new: bool,
        identifier: Option<NonZeroU32>,
    ) -> Result<bool, End> {
        let send = match wanted.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => new,
            RetainHandling::DoNotSend => false,
        };
        // Shared subscriptions get no retained messages (MQTT 5 §4.8.2).
        let asks = send
            && !topic::is_shared(wanted.filter)
            && self.tenant.retained.read().may_match(wanted.filter);
        let replay = || Replay { filter: wanted.filter.into(), qos, identifier, after: None };
        if asks && !self.session.replay(replay()) {
            return Err(End::Refused(
                ReasonCode::QuotaExceeded,
                "too many subscriptions wait for their retained messages",
            ));
        }
        Ok(asks)
    }

    /// Returns an error if a SUBACK or UNSUBACK with `codes` reason codes would exceed the client's Maximum
    /// Packet Size. To be called before any filter is handled: the client could not be told the result.
    fn check_answer(&self, codes: usize) -> Result<(), End> {
        const MOST_BUT_CODES: usize = 1 + 4 + 2 + 1;
        if self.version.is_v5() && MOST_BUT_CODES + codes > self.max_packet_size as usize {
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
        worker: &Worker,
        wanted: &SubscribeFilter<'_>,
        identifier: Option<NonZeroU32>,
        done: &mut Done,
    ) -> Result<(QoS, bool), ReasonCode> {
        self.check_filter(wanted.filter, wanted.options.qos)?;
        let session = &self.session;
        // A bridge of MQTT 3 is treated as if it had set No Local and Retain As Published: its own messages
        // must not come back to it, and it forwards retained messages as retained. No Local is not allowed
        // for shared subscriptions (§3.8.3.1).
        let no_local = self.is_bridge && !topic::is_shared(wanted.filter);
        let max_qos = QoS::try_from(self.announced.max_qos).unwrap_or(QoS::ExactlyOnce);
        let subscription = Subscription {
            filter: wanted.filter.into(),
            qos: wanted.options.qos.min(max_qos),
            no_local: wanted.options.no_local || no_local,
            retain_as_published: wanted.options.retain_as_published || self.is_bridge,
            identifier,
        };
        let mut state = session.state();
        if session.has_ended() || self.check_owner().is_err() {
            return Err(ReasonCode::UnspecifiedError);
        }
        if let Some(quota) = self.exceeded(&state.subscriptions, wanted.filter) {
            self.tenant.refused_to(worker, quota, self.own_limits(), &session.client_id);
            done.exceeded = Some(quota);
            return Err(ReasonCode::QuotaExceeded);
        }
        if session.store_refuses() {
            return Err(ReasonCode::QuotaExceeded);
        }
        if session.durable().is_some() && wanted.filter.len() > ids::TEXT_LEN_MAX {
            return Err(ReasonCode::TopicFilterInvalid);
        }
        done.commits.join(&session.store_subscription(&subscription));
        self.tenant.subscribe(session, &subscription);
        let heard = self.tenant.heard_everywhere(&subscription.filter);
        done.commits.join(&heard.if_holds(Rule::AnswerSubscribeWhenHeard));
        let qos = subscription.qos;
        Ok((qos, state.subscriptions.insert(subscription)))
    }

    /// Returns the quota that a subscription to a filter would exceed, if any.
    fn exceeded(&self, subscriptions: &Subscriptions, filter: &str) -> Option<Quota> {
        let limits = &self.limits;
        let is_new = !subscriptions.contains(filter);
        let bytes = subscriptions.bytes() + Subscriptions::cost(filter);
        if is_new && subscriptions.count() >= limits.max_subscriptions {
            return Some(Quota::MaxSubscriptions);
        }
        if is_new && self.tenant.subscriptions() >= limits.max_tenant_subscriptions {
            return Some(Quota::MaxTenantSubscriptions);
        }
        let room = |user: &Holder| user.room(Held::Subscriptions, limits.max_user_subscriptions);
        if is_new && subscriptions.holder().is_some_and(|user| room(user) == 0) {
            return Some(Quota::MaxUserSubscriptions);
        }
        if is_new && bytes > limits.max_subscription_bytes {
            return Some(Quota::MaxSubscriptionBytes);
        }
        let is_admitted =
            self.tenant.index.admits(shared_filter(filter), limits.max_pattern_levels);
        (!is_admitted).then_some(Quota::MaxPatternLevels)
    }

    /// Whether the client may subscribe to a filter.
    fn check_filter(&self, filter: &str, qos: QoS) -> Result<(), ReasonCode> {
        // A malformed filter has already ended the connection, but this filter may have too many levels.
        topic::validate_filter(filter).map_err(|_| ReasonCode::TopicFilterInvalid)?;
        let shared = topic::parse_shared(filter).map_err(|_| ReasonCode::TopicFilterInvalid)?;
        if shared.is_some() && !self.announced.shared_subscriptions {
            return Err(ReasonCode::SharedSubscriptionsNotSupported);
        }
        let inner = shared.as_ref().map_or(filter, |shared| shared.filter);
        if topic::has_wildcards(inner) && !self.announced.wildcard_subscriptions {
            return Err(ReasonCode::WildcardSubscriptionsNotSupported);
        }
        let may = self.permissions.as_ref().is_none_or(|own| own.may_subscribe(inner, qos))
            && state_store::may_subscribe(&self.session.client_id, inner);
        if may { Ok(()) } else { Err(ReasonCode::NotAuthorized) }
    }

    fn unsubscribe_all(
        &mut self,
        turn: &mut Turn<'_>,
        packet_id: PacketId,
        mut filters: UnsubscribeFilters<'_>,
        mut done: Done,
    ) -> Result<(), End> {
        while let Some(filter) = filters.next() {
            // Index and state change under the lock of the state, so that a connection that takes the session
            // over sees either both changes or none.
            let mut state = self.session.state();
            self.check_owner()?;
            let existed = state.subscriptions.remove(filter);
            if existed {
                self.tenant.unsubscribe(filter, self.session.id);
                done.commits.join(&self.session.forget_subscription(filter));
            } else {
                done.commits.join(&self.session.noted_so_far());
            }
            drop(state);
            let code =
                if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted };
            done.codes.push(code as u8);
            if turn.budget.spend(FILTER_STEPS) && !filters.is_empty() {
                let rest = Rest::Unsubscribe(filters.to_buf());
                self.unfinished = Some(Box::new(Unfinished { packet_id, rest, done }));
                return Ok(());
            }
        }
        let commits = done.commits.if_holds(Rule::AnswerSubscribeWhenDurable);
        turn.scratch.answers.commits.join(&commits);
        self.put_answer(turn, PacketType::UnsubAck, |answers| {
            UnsubAck { packet_id, properties: Properties::default(), codes: &done.codes }
                .encode(self.version, answers)
                .expect("there is one code for each filter");
        });
        Ok(())
    }
}
