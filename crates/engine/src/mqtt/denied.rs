//! Denials to MQTT clients: they are counted, remembered and logged.

use std::net::SocketAddr;
use std::sync::Arc;

use mqtt_proto::{Connect, QoS};
use statestore_proto::Command;

use super::client::Client;
use super::opening::shared_filter;
use super::wanted::Refusal;
use crate::context::Context;
use crate::denials::Denial;
use crate::denied_action::Action;
use crate::limits::Quota;
use crate::names::is_reserved;
use crate::state_store;
use crate::tenant::Tenant;
use crate::turn::Turn;

/// The reason for refusing a CONNECT because of its Will Message.
pub(super) const WILL_REFUSED: &str = "the will's topic is not allowed";

/// Notes the refusal of a CONNECT.
pub(super) fn connect(
    context: &Context,
    tenant: &Arc<Tenant>,
    peer: SocketAddr,
    connect: &Connect<'_>,
    refusal: &Refusal,
) {
    let (action, object) = if refusal.text == WILL_REFUSED {
        (Action::Will, connect.will.as_ref().map(|will| will.topic))
    } else {
        (Action::Login, None)
    };
    let user = refusal.user.as_deref().or(connect.username);
    let (client, reason) = (connect.client_id, refusal.reason());
    context.deny(tenant, &Denial { action, user, client, peer, object, reason });
}

impl Client {
    /// Notes that the connection of the client ends because of its user, its certificate or a ban.
    pub fn deny_connection(&self, turn: &Turn<'_>, reason: &str) {
        self.deny(turn, Action::Login, None, &format!("{reason}: disconnected"));
    }

    /// Notes that the client may not publish to a topic.
    pub(super) fn deny_publish(&self, turn: &Turn<'_>, topic: &str, qos: QoS, retain: bool) {
        let reason = match &self.permissions {
            Some(permissions) if !is_reserved(topic) => {
                permissions.why_not_publish(topic, qos, retain)
            }
            _ => "only the broker publishes there".into(),
        };
        self.deny(turn, Action::Publish, Some(topic), &reason);
    }

    /// Notes that the client may not subscribe to a topic filter.
    pub(super) fn deny_subscribe(&self, turn: &Turn<'_>, filter: &str, qos: QoS) {
        let inner = shared_filter(filter);
        let reason = match &self.permissions {
            Some(permissions) if state_store::may_subscribe(&self.session.client_id, inner) => {
                permissions.why_not_subscribe(inner, qos)
            }
            _ => "the state store reserves it for itself or for another client".into(),
        };
        self.deny(turn, Action::Subscribe, Some(filter), &reason);
    }

    /// Notes that a subscription would exceed a limit.
    pub(super) fn deny_exceeding(&self, turn: &Turn<'_>, filter: &str, quota: Quota) {
        let reason = format!("a limit is reached ({})", quota.name());
        self.deny(turn, Action::Subscribe, Some(filter), &reason);
    }

    /// Notes that the rules have changed and a subscription was removed from the session.
    pub(super) fn deny_subscribed(&self, turn: &Turn<'_>, filter: &str) {
        let reason = "the rules of the user have changed, and the subscription is removed";
        self.deny(turn, Action::Subscribe, Some(filter), reason);
    }

    /// Notes that the rules have changed and a watch of a key has ended.
    pub(super) fn deny_watched(&self, turn: &Turn<'_>, key: &[u8]) {
        let key = String::from_utf8_lossy(&key[..key.len().min(1_024)]);
        let reason = "the rules of the user have changed, and the watch has ended";
        self.deny(turn, Action::State, Some(&key), reason);
    }

    /// Notes that the rules have changed and the will is not published.
    pub(super) fn deny_will(&self, turn: &Turn<'_>, topic: &str) {
        let reason = "the rules of the user have changed, and the will is removed";
        self.deny(turn, Action::Will, Some(topic), reason);
    }

    /// Notes that the client may not do what a request to the state store asks for.
    pub(super) fn deny_key(&self, turn: &Turn<'_>, request: &[u8]) {
        let Ok(command) = Command::decode(request) else { return };
        // SCAN leaves out the keys that the client may not read. It is not denied.
        let (Some(permissions), Some(key)) = (&self.permissions, command.key()) else { return };
        let reason = permissions.why_not_touch(command.verb(), key);
        // A key may have megabytes. Only its beginning is remembered, so the rest need not be converted.
        let key = String::from_utf8_lossy(&key[..key.len().min(1_024)]);
        self.deny(turn, Action::State, Some(&key), &reason);
    }

    fn deny(&self, turn: &Turn<'_>, action: Action, object: Option<&str>, reason: &str) {
        let user = self.session.state().user().map(str::to_owned);
        let denial = Denial {
            action,
            user: user.as_deref(),
            client: &self.session.client_id,
            peer: self.peer,
            object,
            reason,
        };
        turn.context.deny(&self.tenant, &denial);
    }
}
