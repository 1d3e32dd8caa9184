//! Denials to MQTT clients: they are counted, remembered and logged.

use std::net::SocketAddr;
use std::sync::Arc;

use mqtt_proto::{Connect, ReasonCode};
use statestore_proto::Command;

use super::client::Client;
use super::opening::shared_filter;
use super::wanted::Refusal;
use crate::context::Context;
use crate::denials::Denial;
use crate::denied_action::Action;
use crate::names::is_reserved;
use crate::state_store;
use crate::tenant::Tenant;
use crate::turn::Turn;

/// The reason for refusing a CONNECT because of its Will Message.
pub(super) const WILL_REFUSED: &str = "the will's topic is not allowed";

/// Notes the refusal of a CONNECT, if the reason is the client's identity or its permissions.
pub(super) fn connect(
    context: &Context,
    tenant: &Arc<Tenant>,
    peer: SocketAddr,
    connect: &Connect<'_>,
    refusal: &Refusal,
) {
    let Refusal(code, reason) = *refusal;
    let (action, object) = match code {
        ReasonCode::NotAuthorized if reason == WILL_REFUSED => {
            (Action::Will, connect.will.as_ref().map(|will| will.topic))
        }
        ReasonCode::BadUserNameOrPassword
        | ReasonCode::NotAuthorized
        | ReasonCode::BadAuthenticationMethod => (Action::Login, None),
        _ => return,
    };
    let (user, client) = (connect.username, connect.client_id);
    context.deny(tenant, &Denial { action, user, client, peer, object, reason });
}

impl Client {
    /// Notes that the client may not publish to a topic.
    pub(super) fn deny_publish(&self, turn: &Turn<'_>, topic: &str) {
        let reason = if is_reserved(topic) {
            "only the broker publishes there"
        } else {
            "no rule in `publish` of the user allows it"
        };
        self.deny(turn, Action::Publish, topic, reason);
    }

    /// Notes that the client may not subscribe to a topic filter.
    pub(super) fn deny_subscribe(&self, turn: &Turn<'_>, filter: &str) {
        let inner = shared_filter(filter);
        let reason = if state_store::may_subscribe(&self.session.client_id, inner) {
            "no rule in `subscribe` of the user allows all that it matches"
        } else {
            "the state store reserves it for itself or for another client"
        };
        self.deny(turn, Action::Subscribe, filter, reason);
    }

    /// Notes that the rules have changed and a subscription was removed from the session.
    pub(super) fn deny_subscribed(&self, turn: &Turn<'_>, filter: &str) {
        let reason = "the rules of the user have changed, and the subscription is removed";
        self.deny(turn, Action::Subscribe, filter, reason);
    }

    /// Notes that the rules have changed and a watch of a key has ended.
    pub(super) fn deny_watched(&self, turn: &Turn<'_>, key: &[u8]) {
        let key = String::from_utf8_lossy(&key[..key.len().min(1_024)]);
        let reason = "the rules of the user have changed, and the watch has ended";
        self.deny(turn, Action::State, &key, reason);
    }

    /// Notes that the rules have changed and the will is not published.
    pub(super) fn deny_will(&self, turn: &Turn<'_>, topic: &str) {
        let reason = "the rules of the user have changed, and the will is removed";
        self.deny(turn, Action::Will, topic, reason);
    }

    /// Notes that the client may not do what a request to the state store asks for.
    pub(super) fn deny_key(&self, turn: &Turn<'_>, request: &[u8]) {
        let key = match Command::decode(request) {
            Ok(
                Command::Set { key, .. }
                | Command::Get { key }
                | Command::Del { key }
                | Command::VDel { key, .. }
                | Command::KeyNotify { key, .. },
            ) => key,
            Ok(Command::Scan { pattern, .. }) => pattern,
            Err(_) => return,
        };
        // A key may have megabytes. Only its beginning is remembered, so the rest need not be converted.
        let key = String::from_utf8_lossy(&key[..key.len().min(1_024)]);
        self.deny(turn, Action::State, &key, "no rule in `state` of the user allows it");
    }

    fn deny(&self, turn: &Turn<'_>, action: Action, object: &str, reason: &str) {
        let user = self.session.state().user.clone();
        let denial = Denial {
            action,
            user: user.as_deref(),
            client: &self.session.client_id,
            peer: self.peer,
            object: Some(object),
            reason,
        };
        turn.context.deny(&self.tenant, &denial);
    }
}
