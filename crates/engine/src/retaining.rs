//! Retained messages: kept in memory, and noted in the shard of their topic.

use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::durable::RetainedRecord;
use barid_core::holder::Holder;
use barid_core::ids;
use barid_core::message::Message;
use barid_core::retained::Walked;
use barid_core::stamp::Stamp;
use barid_core::time::MonoTime;
use mqtt_proto::{Properties, QoS};

use crate::durability::{DurabilityClass, asks_to_persist};
use crate::durable::Commits;
use crate::faults::{Rule, holds};
use crate::retained::tombstone;
use crate::run::Messages;
use crate::tenant::Tenant;

/// Whether the limits of the tenant allow the last of the messages to become the retained message of their
/// topic. `user`: the user who has sent them.
pub fn may_retain(
    tenant: &Tenant,
    user: Option<&Arc<Holder>>,
    messages: &mut Messages<'_>,
) -> bool {
    let last = messages.len() - 1;
    messages.publication(last).payload.is_empty() || {
        let message = messages.message(last);
        tenant.retained.read().admits(&message, user, &tenant.limits()).is_ok()
    }
}

/// Makes the last of the messages the retained message of their topic. An empty payload removes the retained
/// message (MQTT 5 §3.3.1.3). `user`: the user who has sent them, to whom the message belongs from then on.
///
/// # Errors
/// The limit of the tenant or the user that is exceeded; [`DropReason::RetainedMessages`] if the topic is too long to be
/// stored; [`DropReason::StoreFull`] if the shard of the topic is closed and the messages have QoS 0. Nothing
/// has changed then.
pub fn retain(
    tenant: &Tenant,
    user: Option<&Arc<Holder>>,
    messages: &mut Messages<'_>,
) -> Result<(), DropReason> {
    let last = messages.len() - 1;
    let removes = messages.publication(last).payload.is_empty();
    let message = (!removes).then(|| messages.message(last));
    let mut retained = tenant.retained.write();
    // Under the lock, so that stamps are given in the order of the changes.
    let stamp = retained.new_stamp(messages.topic());
    let is_replicated = stamp != Stamp::NONE;
    let is_stored = messages.class().is_stored() || message.as_deref().is_some_and(persists);
    if is_stored && messages.topic().len() > ids::TEXT_LEN_MAX {
        return Err(DropReason::RetainedMessages);
    }
    if let Some(message) = &message {
        retained.admits(message, user, &tenant.limits())?;
    }
    let record = match message {
        Some(message) => Some(RetainedRecord { message, holder: user.cloned(), stamp }),
        None if is_replicated && retained.can_bury(messages.topic()) => {
            Some(tombstone(messages.topic(), stamp))
        }
        None => None,
    };
    let present = retained.get(messages.topic());
    let was_stored = present.is_some_and(|present| is_kept(messages.class(), present));
    if was_stored || (is_stored && record.is_some()) {
        // The lock of the retained messages is held, so that the shard notes the changes in their order.
        let shard = tenant.shards.of(&tenant.name, messages.topic());
        let mut shard = shard.change();
        if shard.is_lost() {
            if messages.qos() == QoS::AtMostOnce {
                return Err(DropReason::StoreFull);
            }
            // The messages are not acknowledged, so the publisher sends them again.
            messages.wait_for(&shard);
            return Ok(());
        }
        match record.as_ref().filter(|_| is_stored || removes) {
            Some(record) => shard.set_retained(tenant.stored_number(), record.clone()),
            None => shard.remove_retained(tenant.stored_number(), messages.topic()),
        }
        if holds(Rule::AcknowledgeWhenRetained) {
            messages.wait_for(&shard);
        }
    } else if removes && messages.class().is_stored() && holds(Rule::AcknowledgeWhenRetained) {
        // Another message may have removed the retained message a moment ago, and its removal may not be
        // durable yet.
        messages.wait_for_last(&tenant.shards.of(&tenant.name, messages.topic()));
    }
    match record {
        Some(record) => retained.set(record),
        None => retained.remove(messages.topic()),
    };
    messages.note_stamp(stamp);
    Ok(())
}

/// The outcome of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The change is made.
    Changed,
    /// The own state is later, or the message has expired.
    Older,
    /// The shard of the topic is closed. Nothing has changed.
    Closed,
}

/// Takes over a change of a retained message that another broker has made, if it is later than those that are known here.
/// It is there for good when `commits` are durable.
pub fn merge(
    tenant: &Tenant,
    mut record: RetainedRecord,
    now: MonoTime,
    commits: &mut Commits,
) -> Merged {
    let message = Arc::clone(&record.message);
    let topic = message.publication().topic;
    let mut retained = tenant.retained.write();
    if !retained.is_later(topic, record.stamp) || message.is_expired(now) {
        return Merged::Older;
    }
    record.holder = record.holder.map(|holder| tenant.quotas.holder(holder.name()));
    let class = tenant.durability().of(topic);
    let is_stored = is_kept(class, &message);
    let was_stored = retained.get(topic).is_some_and(|present| is_kept(class, present));
    if (is_stored || was_stored) && topic.len() <= ids::TEXT_LEN_MAX {
        let shard = tenant.shards.of(&tenant.name, topic);
        let mut shard = shard.change();
        if shard.is_lost() {
            return Merged::Closed;
        }
        match if record.is_tombstone() { retained.can_bury(topic) } else { is_stored } {
            true => shard.set_retained(tenant.stored_number(), record.clone()),
            false => shard.remove_retained(tenant.stored_number(), topic),
        }
        commits.add(shard.index(), shard.batch());
    }
    retained.see(record.stamp);
    retained.set(record);
    Merged::Changed
}

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The message is removed.
    Removed,
    /// The topic has no retained message.
    Missing,
    /// The shard of the topic is closed. Nothing has changed.
    Closed,
}

/// Removes the retained message of a topic, without telling subscribers. It is gone for good when `commits` are durable.
pub fn remove(tenant: &Tenant, topic: &str, commits: &mut Commits) -> Removed {
    let mut retained = tenant.retained.write();
    let Some(present) = retained.get(topic) else { return Removed::Missing };
    let stamp = retained.new_stamp(topic);
    let buries = stamp != Stamp::NONE && retained.can_bury(topic);
    let tombstone = buries.then(|| tombstone(topic, stamp));
    if is_kept(tenant.durability().of(topic), present) {
        // Under the lock of the retained messages, so that the shard notes the changes in their order.
        let shard = tenant.shards.of(&tenant.name, topic);
        let mut shard = shard.change();
        if shard.is_lost() {
            return Removed::Closed;
        }
        match &tombstone {
            Some(tombstone) => shard.set_retained(tenant.stored_number(), tombstone.clone()),
            None => shard.remove_retained(tenant.stored_number(), topic),
        }
        commits.add(shard.index(), shard.batch());
    }
    match tombstone {
        Some(tombstone) => retained.set(tombstone),
        None => retained.remove(topic),
    }
    retained.tell(topic);
    Removed::Removed
}

/// Forgets the tombstones of a tenant for which `is_over` returns true, and if there are too many, the older half.
pub(crate) fn forget_tombstones(tenant: &Tenant, is_over: impl Fn(&str, Stamp) -> bool) {
    let from = tenant.retained.read().tombstones_kept_from();
    let mut after: Option<Box<str>> = None;
    loop {
        let mut over = Vec::new();
        after = tenant.retained.read().visit_tombstones(after.as_deref(), |topic, stamp| {
            if stamp.time < from || is_over(topic, stamp) {
                over.push((Box::<str>::from(topic), stamp));
            }
        });
        let mut retained = tenant.retained.write();
        for (topic, stamp) in over {
            if retained.forget_tombstone(&topic, stamp) {
                let shard = tenant.shards.of(&tenant.name, &topic);
                shard.change().remove_retained(tenant.stored_number(), &topic);
            }
        }
        if after.is_none() {
            return;
        }
    }
}

/// Removes the retained messages of a tenant that have expired. The work is done in steps; the lock is
/// released between them.
pub fn remove_expired(tenant: &Tenant, now: MonoTime) {
    let mut after = None;
    while let Walked::To(topic) =
        tenant.retained.write().remove_expired(after.as_deref(), now, |topic| {
            let shard = tenant.shards.of(&tenant.name, topic);
            shard.change().remove_retained(tenant.stored_number(), topic);
        })
    {
        after = Some(topic);
    }
}

/// Whether a retained message of a topic of this class is in the store.
pub(crate) fn is_kept(class: DurabilityClass, message: &Message) -> bool {
    class.is_stored() || persists(message)
}

/// Whether the publisher asked for a retained message to be stored although the class of its topic is `memory`.
fn persists(message: &Message) -> bool {
    asks_to_persist(Properties::from_validated(message.publication().properties))
}
