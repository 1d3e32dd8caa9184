//! Notifications to the watchers of a key.

use std::sync::Arc;

use barid_core::message::Publication;
use barid_core::time::{MonoTime, WallTime};
use barid_peers::ToldKind;
use mqtt_proto::{PropertiesBuf, Property, QoS};
use statestore_proto::{properties, topics};

use super::expiry::schedule_expiry;
use super::stamp::Stamp;
use crate::context::Context;
use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::run::Run;
use crate::session::SessionRef;
use crate::state_store::{Guest, Notice, Notices, Watching};
use crate::tenant::Tenant;

impl Context {
    /// Handles the consequences of a change of keys in one shard: notifies the watchers, and schedules the
    /// next expiry at `alarm`. Returns the number of notifications.
    ///
    /// To be called while the keys are still locked, so that the watchers are notified in the order of the
    /// changes. A notification is sent when the change that it reports is durable.
    pub fn follow(
        &mut self,
        tenant: &Arc<Tenant>,
        notices: &Notices,
        alarm: Option<WallTime>,
    ) -> usize {
        if let Some(at) = alarm {
            schedule_expiry(&self.engine, tenant, notices.shard, at);
        }
        if notices.all.is_empty() {
            return 0;
        }
        let mut told = 0;
        for notice in &notices.all {
            // The batch is added even if it is durable by now: an earlier notification may still wait, and
            // must be sent first.
            let after = notice.after.map(|batch| Commits::one(notices.shard, batch));
            let after = after.unwrap_or_default().if_holds(Rule::NotifyWhenDurable);
            for watcher in &notice.watchers {
                match watcher {
                    Watching::Here { session, connection } => {
                        if let Some(session) = SessionRef::upgrade(session)
                            && session.is_owned_by(*connection)
                        {
                            self.notify(notice, &session, after.clone());
                            told += 1;
                        }
                    }
                    Watching::Elsewhere(guest) => {
                        self.notify_guest(tenant, notice, guest, after.clone());
                        told += 1;
                    }
                }
            }
        }
        // No publisher is held back because a watcher is slow.
        self.router.take_full();
        told
    }

    fn notify(&mut self, notice: &Notice, session: &SessionRef, after: Commits) {
        let (mut run, mut buffer) = notification(notice, &session.client_id, self.worker.now);
        run.after = after;
        let Self { worker, router, .. } = self;
        router.notify(worker, session, &mut run.in_buffer(&mut buffer, worker.now));
    }

    fn notify_guest(
        &mut self,
        tenant: &Arc<Tenant>,
        notice: &Notice,
        guest: &Guest,
        after: Commits,
    ) {
        let now = self.worker.now;
        let (mut run, mut buffer) = notification(notice, &guest.client_id, now);
        let mut messages = run.in_buffer(&mut buffer, now);
        self.tell_guest(tenant, guest, ToldKind::Notification, after, &mut messages);
    }
}

/// Returns the notification for a client.
fn notification(notice: &Notice, client_id: &str, now: MonoTime) -> (Run, Vec<u8>) {
    let topic = topics::notify_topic(client_id, &notice.key);
    let mut given = PropertiesBuf::default();
    let stamp = Stamp::of(notice.version);
    given
        .push(Property::UserProperty(properties::TIMESTAMP, stamp.as_str()))
        .expect("the text of a version is short");
    let publication = Publication {
        topic: &topic,
        payload: &notice.payload,
        properties: given.as_properties().as_bytes(),
        qos: QoS::AtLeastOnce,
        retain: false,
        expires_at: None,
    };
    // A watch belongs to a connection, so the notification need not survive the connection.
    Run::of(&publication, DurabilityClass::Memory, now)
}
