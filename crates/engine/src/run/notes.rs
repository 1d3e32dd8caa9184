//! The shards in which a run is stored, and the recipients that have its messages.
//!
//! QoS 2 messages of a client whose session is stored are handed on *once*. Each session and each queue that
//! stores such a message is noted in its shard, in the same batch, under the publisher's session and Packet
//! Identifier ([`ReceivedRecord`]). The note stays until PUBREL, and a noted recipient is skipped. After a
//! crash the client repeats each message that was not acknowledged, and the recipients without a durable note
//! get it then.

use barid_core::commits::LOST;
use barid_core::durable::ReceivedRecord;
use barid_core::ids::{MessageId, SessionNumber};
use mqtt_proto::QoS;

use super::Messages;
use crate::durable::{ChangeGuard, Commits, Durable, DurableShard};
use crate::faults::{Rule, holds};
use crate::offer::Offer;

/// How many of the offered messages a session already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Had {
    /// None of them.
    None,
    /// Some of them.
    Some,
    /// All of them.
    All,
}

impl Messages<'_> {
    /// Whether the messages may have been handed on in part, before the broker ended or a shard was closed.
    pub fn is_resumed(&self) -> bool {
        self.run.is_resumed
    }

    /// Whether each subscriber that stores the messages gets them once, however often they are sent.
    pub fn are_once(&self) -> bool {
        self.run.origin.is_some()
    }

    /// Returns the publisher's session and the Packet Identifier of a message, if the message is handed on
    /// once.
    pub fn received_as(&self, index: usize) -> Option<(SessionNumber, u16)> {
        self.run.origin.map(|(_, session)| (session, self.run.ids[index]))
    }

    /// Returns how many of the offered messages a session of the shard already has.
    pub fn had_by(
        &self,
        session: SessionNumber,
        shard: &ChangeGuard<'_>,
        offer: &Offer<'_>,
    ) -> Had {
        let has = |index| {
            let (publisher, id) = self.received_as(index)?;
            shard.received(publisher, id).map(|noted| noted.has_session(session))
        };
        let has = |index: &usize| has(*index).unwrap_or(false) && holds(Rule::AskWhoHasIt);
        match offer.range.clone().filter(has).count() {
            0 => Had::None,
            all if all == offer.range.len() => Had::All,
            _ => Had::Some,
        }
    }

    /// Notes that a session of the shard is about to store messages. If each subscriber gets the messages
    /// once, the same batch notes that the session has them; sessions must come in ascending order of their
    /// numbers. This is not noted for shared subscriptions, where another member may get a message the next
    /// time.
    pub fn reach(
        &mut self,
        session: SessionNumber,
        shard: &mut ChangeGuard<'_>,
        offer: &Offer<'_>,
    ) {
        let index = shard.index();
        let run = &mut *self.run;
        if !run.message_ids.iter().any(|(known, _)| *known == index) {
            run.message_ids.push((index, shard.new_message_ids(run.items.len())));
        }
        if let Some((tenant, publisher)) = run.origin
            && offer.shared.is_none()
            && holds(Rule::NoteReceivedWithMessage)
        {
            for id in &run.ids[offer.range.clone()] {
                shard.note_received(tenant, publisher, *id, |noted| noted.add_session(session));
            }
            run.reached.insert(index);
        }
        if run.class.is_stored() {
            self.wait_for(shard);
        }
    }

    /// Notes in the publisher's shard that all recipients have the messages, so that a repetition is
    /// recognised. Notes nothing if a recipient in that shard has [missed](Self::miss) them, because the
    /// shard is being closed.
    pub fn note_received(&mut self, publisher: &Durable) {
        if self.miss(publisher) && holds(Rule::NoteReceivedByAll) {
            return;
        }
        let mut shard = publisher.shard.change();
        let run = &mut *self.run;
        // The identifiers of refused messages are at the end.
        for id in run.ids.iter().take(run.items.len()) {
            shard.note_received(publisher.tenant, publisher.number, *id, |noted| {
                *noted = ReceivedRecord::All;
            });
        }
        run.reached.insert(shard.index());
        if run.class.is_stored() {
            self.wait_for(&shard);
        }
    }

    /// Notes that queues have got the messages in these batches. The publisher waits for the batches,
    /// whatever the durability class is.
    pub fn note_entered(&mut self, commits: &Commits) {
        if self.run.origin.is_some() {
            commits.iter().for_each(|(shard, _)| self.run.reached.insert(shard));
        }
        if self.qos() != QoS::AtMostOnce {
            self.run.commits.join(commits);
        }
    }

    /// Notes that a recipient whose shard is closed should have stored the messages: they are not
    /// acknowledged.
    pub fn lose(&mut self, lost: &Commits) {
        if self.run.class.is_stored() {
            self.run.commits.join(lost);
        }
    }

    /// Returns whether an earlier recipient in the same shard has missed the messages because the shard was
    /// closed. The note of a shard names only the last session that has the messages, and implies that all
    /// sessions before it have them. So no later session may get them before the shard is open again.
    pub fn miss(&self, durable: &Durable) -> bool {
        let is_own = |(shard, batch)| shard == durable.shard.index() && batch == LOST;
        self.are_once() && self.run.commits.iter().any(is_own)
    }

    /// Whether the messages were [lost](barid_core::session::Reception::Lost) when they came before: sessions
    /// that store nothing have them already.
    pub fn were_lost(&self) -> bool {
        self.run.was_lost
    }

    /// Delays the acknowledgement until the accumulating batch of a shard is durable.
    pub fn wait_for(&mut self, shard: &ChangeGuard<'_>) {
        self.run.commits.add(shard.index(), shard.batch());
    }

    /// Delays the acknowledgement until these batches are durable.
    pub(crate) fn wait_for_all(&mut self, commits: &Commits) {
        self.run.commits.join(commits);
    }

    /// Delays the acknowledgement until everything noted in a shard so far is durable.
    pub fn wait_for_last(&mut self, shard: &DurableShard) {
        self.run.commits.add(shard.index(), shard.last_change());
    }

    /// Returns the number under which a message is stored in a shard, if the messages [reach](Self::reach)
    /// the shard.
    pub fn stored_as(&self, shard: u16, index: usize) -> Option<MessageId> {
        let first = self.run.message_ids.iter().find(|(known, _)| *known == shard);
        first.map(|(_, first)| first + index as u64)
    }
}
