//! Denials of AMQP clients, which are counted, remembered and logged as with MQTT; and the list of connections.

use std::sync::Arc;

use super::container::Container;
use super::tapped::ENDED;
use crate::amqp_clients::{AmqpClient, Close, Listed};
use crate::client_traffic::ClientTraffic;
use crate::denials::Denial;
use crate::denied_action::Action;
use crate::drops::cut;
use crate::events::{self, Event};
use crate::tapping::Protocol;
use crate::tenant::Tenant;
use crate::turn::Turn;

/// Maximum length of a remembered container id, in bytes. A longer one is cut.
const CONTAINER_MAX: usize = 96;

impl Container {
    /// Notes that the client was not allowed to do something with the entity of this address.
    pub(super) fn deny(&self, turn: &Turn<'_>, action: Action, entity: &str, reason: &str) {
        let Some(tenant) = self.access.tenant() else {
            // The client has not logged in, whatever it asks for.
            self.deny_login(turn, None, Some(entity), reason);
            return;
        };
        let user = self.access.user().or(self.access.key());
        self.note(turn, tenant, action, user, Some(entity), reason);
    }

    /// Notes that a key, a token or a user was not accepted. `key`: the name of the key or user.
    pub(super) fn deny_login(
        &self,
        turn: &Turn<'_>,
        key: Option<&str>,
        entity: Option<&str>,
        reason: &str,
    ) {
        if let Some(tenant) = self.count_refused(turn, key) {
            self.note(turn, &tenant, Action::Login, key, entity, reason);
        }
    }

    /// Counts that a client was refused, unless it has been let in before. Returns the tenant that it is counted
    /// for.
    pub(super) fn count_refused(&self, turn: &Turn<'_>, name: Option<&str>) -> Option<Arc<Tenant>> {
        let context = &turn.context;
        if let Some(tenant) = self.access.tenant() {
            return Some(Arc::clone(tenant));
        }
        let tenant = context.tenant_of_stranger(name, |tenant| self.keys.are_in(tenant))?;
        tenant.counters(context.worker.id).refused_connects.add(1);
        Some(tenant)
    }

    /// Notes that the connection of a client ends because of its user, its certificate or a ban.
    pub fn deny_connection(&self, turn: &Turn<'_>, reason: &str) {
        let Some(tenant) = self.access.tenant() else { return };
        let user = self.access.user().or(self.access.key());
        self.note(turn, tenant, Action::Login, user, None, &format!("{reason}: disconnected"));
    }

    fn note(
        &self,
        turn: &Turn<'_>,
        tenant: &Arc<Tenant>,
        action: Action,
        user: Option<&str>,
        object: Option<&str>,
        reason: &str,
    ) {
        let denial =
            Denial { action, user, client: &self.container_id, peer: self.peer, object, reason };
        turn.context.deny(tenant, &denial);
    }

    /// Remembers the container id of the client.
    pub(super) fn name(&mut self, container_id: &str) {
        self.container_id = cut(container_id, CONTAINER_MAX).into();
    }

    /// Counts the connection, and adds it to the list of its tenant. Called when the connection is open and has a
    /// tenant.
    pub fn admit(&mut self, turn: &Turn<'_>) {
        let Some(tenant) = self.access.tenant() else { return };
        tenant.counters(turn.context.worker.id).connects.add(1);
        let client = AmqpClient {
            id: self.inbox().connection(),
            container: self.container_id.to_string(),
            key: self.access.key().map(Into::into),
            user: self.access.user().map(Into::into),
            peer: self.peer,
            since: turn.context.wall(),
            connection: Arc::clone(self.inbox()) as Arc<dyn Close>,
            traffic: ClientTraffic::default(),
        };
        self.listed = Some(Listed::new(&tenant.amqp_clients, client));
        if turn.context.engine.events.are_heard() {
            let (tenant, client) = (&*tenant.name, &self.as_told());
            turn.context.engine.events.tell(&Event::Connected { tenant, client });
        }
    }

    /// The client, as events name it.
    fn as_told(&self) -> events::Client<'_> {
        events::Client {
            id: &self.container_id,
            user: self.access.user(),
            protocol: Protocol::Amqp,
            connection: self.inbox().connection(),
            peer: self.peer,
        }
    }

    /// Tells that the connection has ended, if it was told that it began.
    pub(super) fn tell_end(&mut self, turn: &Turn<'_>) {
        let events = &turn.context.engine.events;
        let (Some(_), Some(tenant)) = (self.listed.take(), self.access.tenant()) else { return };
        if events.are_heard() {
            let (tenant, client) = (&*tenant.name, &self.as_told());
            events.tell(&Event::Disconnected { tenant, client, reason: ENDED });
        }
    }

    /// Counts the connection as lost, unless it has been closed.
    pub fn note_abnormal_end(&self, turn: &Turn<'_>) {
        if let Some(tenant) = self.access.tenant().filter(|_| !self.is_closed()) {
            tenant.counters(turn.context.worker.id).abnormal_disconnects.add(1);
        }
    }
}
