//! Who watches a key is told what has changed.

use std::sync::Arc;

use barid_core::message::Publication;
use barid_core::time::WallTime;
use mqtt_proto::{PropertiesBuf, Property, QoS};
use statestore_proto::{properties, topics};

use super::expiry::schedule_expiry;
use super::stamp::Stamp;
use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::lifecycle::Context;
use crate::run::Run;
use crate::session::SessionRef;
use crate::state_store::{Notice, Notices};
use crate::tenant::Tenant;

impl Context {
    /// Does what follows from a change of keys of one shard: tells the watchers, and has the keys looked at when the
    /// next one expires. While they are still locked, so that watchers are told in the order of the changes. What they
    /// are told leaves when it is durable. Answers how often somebody was told something.
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
            // Also if that is durable by now: what was told before may still wait, and comes first.
            let after = notice.after.map(|batch| Commits::one(notices.shard, batch));
            let after = after.unwrap_or_default().if_holds(Rule::NotifyWhenDurable);
            for watcher in &notice.watchers {
                if let Some(session) = SessionRef::upgrade(&watcher.session)
                    && session.is_owned_by(watcher.connection)
                {
                    self.notify(notice, &session, after.clone());
                    told += 1;
                }
            }
        }
        // Nobody is held back because a watcher is slow.
        self.router.take_full();
        told
    }

    fn notify(&mut self, notice: &Notice, session: &SessionRef, after: Commits) {
        let topic = topics::notify_topic(&session.client_id, &notice.key);
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
        let Self { worker, router, .. } = self;
        // It is told to a connection, so it need not outlive one.
        let (mut run, mut buffer) = Run::of(&publication, DurabilityClass::Memory, worker.now);
        run.after = after;
        router.notify(worker, session, &mut run.in_buffer(&mut buffer, worker.now));
    }
}
