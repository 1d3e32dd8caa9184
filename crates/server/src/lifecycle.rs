//! How sessions end, and what follows: wills, subscriptions, messages that others may have.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barid_core::message::Publication;
use barid_core::session::{Delivery, DropReason};
use barid_core::topic_index::Member;
use mqtt_proto::topic;

use crate::event_loop::ConnectionId;
use crate::housekeeping::Task;
use crate::router::{Publisher, Router, share_name};
use crate::run::{Messages, Run};
use crate::session::{Detached, SessionRef, Will};
use crate::tenant::Tenant;
use crate::worker::Worker;

/// How many members of a shared subscription that go away under one's hands are tried.
const GIVE_ATTEMPTS: usize = 16;

/// A thread that handles messages, with its router.
pub struct Context {
    /// Who it is.
    pub worker: Worker,
    /// Its way to subscribers.
    pub router: Router,
}

impl Context {
    /// Publishes a message that does not come from a connection's buffer.
    pub fn publish(
        &mut self,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        message: &Publication<'_>,
    ) {
        let (mut run, mut buffer) = Run::of(message, self.worker.now);
        let mut messages = run.in_buffer(&mut buffer, self.worker.now);
        if message.retain {
            self.retain(tenant, &mut messages);
        }
        self.router.publish(&self.worker, tenant, publisher, &mut messages, true);
        self.router.flush(&self.worker);
    }

    /// Makes the last of some messages the retained message of their topic (MQTT 5 §3.3.1.3). False:
    /// the tenant has too many.
    pub fn retain(&self, tenant: &Tenant, messages: &mut Messages<'_>) -> bool {
        let last = messages.len() - 1;
        if messages.publication(last).payload.is_empty() {
            tenant.retained.write().remove(messages.topic());
            return true;
        }
        let most =
            tenant.limits().max_retained_messages + tenant.sys_topics.load(Ordering::Relaxed);
        let message = messages.message(last);
        let mut retained = tenant.retained.write();
        if retained.len() >= most && retained.get(messages.topic()).is_none() {
            return false;
        }
        retained.set(messages.topic(), message);
        true
    }

    /// A connection has gone that had the session as its number `epoch`. `will`: it did not end as it
    /// should, so the Will Message is due.
    pub fn connection_gone(
        &mut self,
        session: &SessionRef,
        connection: ConnectionId,
        epoch: u32,
        will: bool,
    ) {
        // Whether the session is still this connection's is decided under the lock of its state, as for
        // the one that takes it over: what the successor has put there must stay.
        let (epoch, expiry, delay) = {
            let mut state = session.state();
            if !session.is_owned_by(connection) {
                return;
            }
            let Detached::Away { epoch } = session.detach(epoch) else { return };
            if !will {
                state.will = None;
            }
            (epoch, state.expiry, state.will.as_ref().map(|will| will.delay))
        };
        if expiry == 0 {
            self.end_absent_session(session, epoch);
            return;
        }
        let now = self.worker.now;
        let housekeeping = &self.worker.shared.housekeeping;
        if expiry != u32::MAX {
            let at = now.after(Duration::from_secs(u64::from(expiry)));
            housekeeping.schedule(at, Task::Expire { session: session.downgrade(), epoch });
        }
        match delay {
            None => {}
            Some(0) => self.publish_will(session, epoch),
            // A session that ends before its will is due publishes it when it ends.
            Some(delay) => {
                let at = now.after(Duration::from_secs(u64::from(delay)));
                housekeeping
                    .schedule(at, Task::PublishWill { session: session.downgrade(), epoch });
            }
        }
        self.redistribute(session);
    }

    /// Ends a session whose client has been away since `epoch`; unless it has come back.
    pub fn end_absent_session(&mut self, session: &SessionRef, epoch: u32) {
        // Under the lock of the client identifier, so that the client cannot come back meanwhile.
        let ends = {
            let mut entry = session.tenant.sessions.entry(&session.client_id);
            let ends = session.is_away_since(epoch)
                && entry.get().is_some_and(|present| present.id == session.id);
            ends && entry.remove().is_some()
        };
        if ends {
            self.end_session(session);
        }
    }

    /// Ends a session: its client is disconnected if it has one, its will is published, its
    /// subscriptions go, and what shared subscriptions sent it goes to others.
    pub fn end_session(&mut self, session: &SessionRef) {
        session.close_connection();
        {
            let mut entry = session.tenant.sessions.entry(&session.client_id);
            if entry.get().is_some_and(|present| present.id == session.id) {
                entry.remove();
            }
        }
        let subscriptions = {
            let mut state = session.state();
            if std::mem::replace(&mut state.ended, true) {
                return;
            }
            std::mem::take(&mut state.subscriptions)
        };
        for subscription in subscriptions.iter() {
            unsubscribe(&session.tenant, &subscription.filter, session.id);
        }
        let will = session.state().will.take();
        if let Some(will) = will {
            self.publish_will_message(session, &will);
        }
        self.redistribute(session);
        session.clear(&self.worker);
    }

    /// Publishes the Will Message, if there is one and the client has been away since `epoch`, and forgets
    /// it.
    pub fn publish_will(&mut self, session: &SessionRef, epoch: u32) {
        let will = {
            let mut state = session.state();
            if session.is_away_since(epoch) { state.will.take() } else { None }
        };
        if let Some(will) = will {
            self.publish_will_message(session, &will);
        }
    }

    /// Publishes a Will Message of a session.
    pub fn publish_will_message(&mut self, session: &SessionRef, will: &Will) {
        let now = self.worker.now;
        let life = will.expiry.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let publication = Publication {
            expires_at: life.map(|life| now.after(life)),
            ..will.message.publication()
        };
        let publisher = Publisher { session: session.id, client_id: &session.client_id };
        self.publish(&session.tenant, publisher, &publication);
    }

    /// Gives what shared subscriptions sent to a session whose client has gone to other members. If
    /// there is nobody else, it stays.
    fn redistribute(&mut self, session: &SessionRef) {
        let shared = session.state().subscriptions.iter().any(|s| topic::is_shared(&s.filter));
        let ended = session.state().ended;
        if !shared && !ended {
            return;
        }
        // Who else there is must be known before: two sessions are never locked at once.
        let with_others: Vec<_> = session
            .inspect(|outbound, _| outbound.shared())
            .into_iter()
            .filter(|delivery| other_member(session, ended, delivery).is_some())
            .map(|delivery| delivery.shared)
            .collect();
        let taken = session.take_shared(|delivery| with_others.contains(&delivery.shared));
        for delivery in taken {
            if !self.give_to_other(session, ended, &delivery)
                && !session.enqueue(&self.worker, delivery)
            {
                session.tenant.counters(self.worker.id).dropped(DropReason::SessionEnded);
            }
        }
    }

    /// Gives a message to another member of its shared subscription. False: there is none.
    fn give_to_other(&self, session: &SessionRef, ended: bool, delivery: &Delivery) -> bool {
        // Members come and go meanwhile; one that has just gone is not found again.
        for _ in 0..GIVE_ATTEMPTS {
            let Some(member) = other_member(session, ended, delivery) else { return false };
            let delivery = Delivery {
                qos: delivery.message.qos().min(member.options.qos),
                identifiers: member.options.identifier.into_iter().collect(),
                ..delivery.clone()
            };
            if member.subscriber.enqueue(&self.worker, delivery) {
                member.subscriber.flush(&self.worker);
                return true;
            }
        }
        false
    }
}

/// Another member of the shared subscription that `delivery` came by: the least busy one that is
/// connected, or, if the session has `ended`, any.
fn other_member(
    session: &SessionRef,
    ended: bool,
    delivery: &Delivery,
) -> Option<Member<SessionRef>> {
    let name = delivery.shared.as_deref()?;
    let route = session.tenant.index.route(delivery.message.publication().topic);
    let group = route.groups().iter().find(|group| share_name(group) == name)?;
    let members = group.members();
    let others = || members.iter().filter(|member| member.subscriber.id != session.id);
    others()
        .filter(|member| member.subscriber.is_online())
        .min_by_key(|member| member.subscriber.inspect(|outbound, _| outbound.depth()))
        .or_else(|| ended.then(|| others().next()).flatten())
        .cloned()
}

/// Takes one subscription of a session out of its tenant's index.
pub fn unsubscribe(tenant: &Tenant, filter: &str, session: u64) -> bool {
    match topic::parse_shared(filter) {
        Ok(Some(shared)) => tenant.index.unsubscribe_shared(shared.group, shared.filter, session),
        _ => tenant.index.unsubscribe(filter, session),
    }
}
