//! Rights that are taken from a client: what it had because of them ends.

use std::sync::Arc;

use barid_core::message::Publication;
use statestore_proto::Verb;

use super::client::Client;
use super::opening::shared_filter;
use crate::access::{Permissions, may_publish};
use crate::session::SessionRef;
use crate::tenant::Tenant;
use crate::turn::Turn;

/// Removes the subscriptions of a session that its user is not allowed any more. Returns their filters.
pub(super) fn revoke(
    tenant: &Tenant,
    session: &SessionRef,
    permissions: &Permissions,
) -> Vec<Box<str>> {
    let mut state = session.state();
    let revoked: Vec<_> = state
        .subscriptions
        .iter()
        .filter(|subscription| {
            !permissions.may_subscribe(shared_filter(&subscription.filter), subscription.qos)
        })
        .map(|subscription| subscription.filter.clone())
        .collect();
    for filter in &revoked {
        state.subscriptions.remove(filter);
        tenant.unsubscribe(filter, session.id);
        session.forget_subscription(filter);
    }
    revoked
}

impl Client {
    /// Replaces the permissions of the client. Its subscriptions, messages that wait for it, its watches of keys and its
    /// will end if they are not allowed any more. The limits of its user apply from its next turn on.
    pub fn change_permissions(&mut self, turn: &mut Turn<'_>, permissions: &Arc<Permissions>) {
        let revoked = revoke(&self.tenant, &self.session, permissions);
        if !revoked.is_empty() {
            self.session.check_waiting(self.epoch, permissions);
        }
        for filter in &revoked {
            self.deny_subscribed(turn, filter);
        }
        // Before: a watch that comes to this broker now is compared with them.
        self.permissions = Some(Arc::clone(permissions));
        self.renew_inquirer();
        self.revoke_watches(turn, permissions);
        self.revoke_will(turn, permissions);
        // The owner ends waits, and reads again, in the turn for which it is woken.
        let now = turn.context.worker.now;
        let own = permissions.limits();
        if let Some(holder) = &self.holder {
            self.tenant.set_own(holder, own);
        }
        if self.metered.set_own(now, &self.tenant.quotas, own) {
            self.session.wake_owner();
        }
    }

    fn revoke_watches(&mut self, turn: &Turn<'_>, permissions: &Permissions) {
        self.take_adopted();
        let Some(watched) = &mut self.watched else { return };
        let denied: Vec<_> =
            watched.extract_if(|key| !permissions.may_touch(Verb::KeyNotify, key)).collect();
        if let Some(store) = self.tenant.used_state_store() {
            let keys = denied.iter().map(|key| &**key);
            store.forget_watcher(&self.tenant, self.id.0, keys);
        }
        for key in &denied {
            self.deny_watched(turn, key);
        }
    }

    fn revoke_will(&mut self, turn: &Turn<'_>, permissions: &Permissions) {
        let mut state = self.session.state();
        if !self.session.is_owned_by(self.id) {
            return;
        }
        let denied = state.will.take_if(|will| {
            let Publication { topic, payload, qos, retain, .. } = will.message.publication();
            let client_id = &self.session.client_id;
            !may_publish(Some(permissions), client_id, topic, (qos, retain), payload)
        });
        if let Some(will) = denied {
            self.session.store(&state);
            drop(state);
            turn.context.will_is_over(&self.tenant, &self.session, &will);
            self.deny_will(turn, will.message.publication().topic);
        }
    }
}
