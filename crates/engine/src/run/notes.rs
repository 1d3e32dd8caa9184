//! Where a run is stored, and who has noted that it was received.

use barid_core::ids::MessageId;
use barid_core::session::ShardSet;
use mqtt_proto::QoS;

use super::Messages;
use crate::durable::{ChangeGuard, Commits, DurableShard, Shards};
use crate::faults::{Rule, holds};

impl Messages<'_> {
    /// Whether some shards have the messages from before the broker ended.
    pub fn is_resumed(&self) -> bool {
        !self.run.reached_before.is_empty()
    }

    /// The shards that have the messages from before the broker ended.
    pub fn reached_before(&self) -> ShardSet {
        self.run.reached_before
    }

    /// Whether a shard has the messages from before the broker ended.
    pub fn have_reached(&self, shard: u16) -> bool {
        self.run.reached_before.contains(shard)
    }

    /// The messages are going to be stored in a shard. In the same batch goes the note that they were
    /// received, if they came with QoS 2 from a session that is stored.
    pub fn reach(&mut self, shard: &mut ChangeGuard<'_>) {
        let index = shard.index();
        let run = &mut *self.run;
        if !run.message_ids.iter().any(|(known, _)| *known == index) {
            run.message_ids.push((index, shard.new_message_ids(run.items.len())));
        }
        if holds(Rule::NoteReceivedWithMessage) {
            self.note_received(shard);
        } else {
            self.wait_for(shard);
        }
    }

    /// Notes in a shard that the messages were received, and delays the acknowledgement until that is durable.
    pub fn note_received(&mut self, shard: &mut ChangeGuard<'_>) {
        let run = &mut *self.run;
        if let Some((tenant, session)) = run.origin {
            // Those that are refused are at the end.
            for id in run.ids.iter().take(run.items.len()) {
                shard.put_received(tenant, session, *id);
            }
            run.reached.insert(shard.index());
        }
        if run.class.is_stored() {
            run.commits.add(shard.index(), shard.batch());
        }
    }

    /// Entities have got the messages, in batches that have not ended if it matters: the same as for
    /// sessions is noted there, and the publisher waits, whatever the class.
    pub fn note_entered(&mut self, shards: &Shards, commits: &Commits) {
        if self.run.origin.is_some() {
            for (shard, _) in commits.iter() {
                self.note_received(&mut shards.get(shard).change());
            }
        }
        if self.qos() != QoS::AtMostOnce {
            self.run.commits.join(commits);
        }
    }

    /// Delays the acknowledgement until the accumulating batch of a shard is durable.
    pub fn wait_for(&mut self, shard: &ChangeGuard<'_>) {
        self.run.commits.add(shard.index(), shard.batch());
    }

    /// Delays the acknowledgement until everything noted in a shard so far is durable.
    pub fn wait_for_last(&mut self, shard: &DurableShard) {
        self.run.commits.add(shard.index(), shard.last_change());
    }

    /// The number under which one of the messages is stored in a shard, if they [reach](Self::reach) the shard.
    pub fn stored_as(&self, shard: u16, index: usize) -> Option<MessageId> {
        let first = self.run.message_ids.iter().find(|(known, _)| *known == shard);
        first.map(|(_, first)| first + index as u64)
    }
}
