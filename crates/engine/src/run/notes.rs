//! Where a run is stored, and who has got its messages.
//!
//! The messages of QoS 2 of a client whose session is stored are handed on *once*: each session and each queue that stores
//! one is noted in its shard, in the same batch, under the publisher's session and Packet Identifier
//! ([`ReceivedRecord`]), until PUBREL. Who is noted there is left out. After a crash
//! the client repeats what was not acknowledged, and whoever has no durable note gets it then.

use barid_core::commits::LOST;
use barid_core::durable::ReceivedRecord;
use barid_core::ids::{MessageId, SessionNumber};
use mqtt_proto::QoS;

use super::Messages;
use crate::durable::{ChangeGuard, Commits, Durable, DurableShard};
use crate::faults::{Rule, holds};
use crate::offer::Offer;

/// Which of some messages a session has.
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
    /// Whether they may have been handed on in part, before the broker ended.
    pub fn is_resumed(&self) -> bool {
        self.run.is_resumed
    }

    /// Whether each subscriber that stores them gets them once, however often they are sent.
    pub fn are_once(&self) -> bool {
        self.run.origin.is_some()
    }

    /// The publisher's session and the Packet Identifier of one of them, if it is handed on once.
    pub fn received_as(&self, index: usize) -> Option<(SessionNumber, u16)> {
        self.run.origin.map(|(_, session)| (session, self.run.ids[index]))
    }

    /// Which of them a session of a shard has already.
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

    /// A session of a shard is going to store messages. That it has them is noted in the same batch, if each subscriber gets
    /// them once: subscribers come in ascending order of their numbers. Not for shared subscriptions, where another member
    /// may get a message the next time.
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

    /// All have got them. Noted in the publisher's shard, so that a repetition is known as one. Not so if somebody in this
    /// shard has [missed](Self::miss) them, as it is being closed.
    pub fn note_received(&mut self, publisher: &Durable) {
        if self.miss(publisher) && holds(Rule::NoteReceivedByAll) {
            return;
        }
        let mut shard = publisher.shard.change();
        let run = &mut *self.run;
        // Those that are refused are at the end.
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

    /// Queues have got the messages, in these batches. Whatever the class, the publisher waits.
    pub fn note_entered(&mut self, commits: &Commits) {
        if self.run.origin.is_some() {
            commits.iter().for_each(|(shard, _)| self.run.reached.insert(shard));
        }
        if self.qos() != QoS::AtMostOnce {
            self.run.commits.join(commits);
        }
    }

    /// Somebody should have stored them whose shard is closed: they are not acknowledged.
    pub fn lose(&mut self, lost: &Commits) {
        if self.run.class.is_stored() {
            self.run.commits.join(lost);
        }
    }

    /// Whether a session of the same shard should have stored them before, and has left. What is noted of a shard is the last
    /// session that has them, so none of those behind it may have them before it is open again.
    pub fn miss(&self, durable: &Durable) -> bool {
        let is_own = |(shard, batch)| shard == durable.shard.index() && batch == LOST;
        self.are_once() && self.run.commits.iter().any(is_own)
    }

    /// Whether they were [lost](barid_core::session::Reception::Lost) when they came before: sessions that store nothing have
    /// them.
    pub fn were_lost(&self) -> bool {
        self.run.was_lost
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
