//! Answers, for requests that are sent again.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use statestore_proto::Version;

use super::{Answer, Origin, Outcome};
use crate::durable::{AnsweredRecord, SessionNumber};
use crate::session::PacketId;

/// How many answers to one session a partition keeps; the oldest go. So many requests about keys of one
/// shard may be unacknowledged when a connection is lost, and are nevertheless not done twice.
pub const ANSWERED_MAX: usize = 1_024;

/// What sessions were answered last.
#[derive(Debug, Default)]
pub(super) struct Answered {
    sessions: HashMap<SessionNumber, Answers, FixedState>,
}

#[derive(Debug, Default)]
struct Answers {
    by_packet: BTreeMap<PacketId, Noted>,
    by_age: BTreeSet<(Version, PacketId)>,
}

#[derive(Debug)]
struct Noted {
    record: AnsweredRecord,
    /// It is in the store.
    stored: bool,
    /// The batch that the answer waits for.
    after: Option<u64>,
}

impl Answered {
    /// What a request was answered, if it was.
    pub fn find(&self, origin: &Origin) -> Option<Answer> {
        let noted = self.sessions.get(&origin.session)?.by_packet.get(&origin.packet_id)?;
        (noted.record.correlation == origin.correlation).then_some(Answer {
            outcome: Outcome::Verdict(noted.record.verdict),
            version: noted.record.version,
            after: noted.after,
        })
    }

    /// Notes an answer. Tells which packet identifiers of the session the store need not have any more.
    pub fn note(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
        (stored, after): (bool, Option<u64>),
    ) -> SmallVec<[PacketId; 2]> {
        let answers = self.sessions.entry(session).or_default();
        let mut gone = SmallVec::new();
        if answers.remove(packet_id).is_some_and(|before| before.stored && !stored) {
            gone.push(packet_id);
        }
        if answers.by_packet.len() == ANSWERED_MAX
            && let Some((_, oldest)) = answers.by_age.first().copied()
            && answers.remove(oldest).is_some_and(|noted| noted.stored)
        {
            gone.push(oldest);
        }
        answers.by_age.insert((record.answered_at, packet_id));
        answers.by_packet.insert(packet_id, Noted { record, stored, after });
        gone
    }

    /// Forgets a session. Tells which packet identifiers of it are in the store.
    pub fn forget(&mut self, session: SessionNumber) -> impl Iterator<Item = PacketId> {
        let answers = self.sessions.remove(&session).unwrap_or_default();
        let stored = |(id, noted): (PacketId, Noted)| noted.stored.then_some(id);
        answers.by_packet.into_iter().filter_map(stored)
    }
}

impl Answers {
    fn remove(&mut self, packet_id: PacketId) -> Option<Noted> {
        let noted = self.by_packet.remove(&packet_id)?;
        self.by_age.remove(&(noted.record.answered_at, packet_id));
        Some(noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_store::Verdict;

    fn record(correlation: u128, at: u64) -> AnsweredRecord {
        let answered_at = Version { wall: at, counter: 0 };
        AnsweredRecord { correlation, verdict: Verdict::Ok, version: None, answered_at }
    }

    fn origin(session: u64, packet_id: u16, correlation: u128) -> Origin {
        Origin { session, packet_id, correlation, stored: true }
    }

    #[test]
    fn only_the_same_request_is_the_same() {
        let mut answered = Answered::default();
        answered.note(1, 2, record(3, 0), (true, Some(9)));
        assert_eq!(answered.find(&origin(1, 2, 3)).unwrap().after, Some(9));
        for other in [origin(0, 2, 3), origin(1, 1, 3), origin(1, 2, 4)] {
            assert_eq!(answered.find(&other), None);
        }
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut answered = Answered::default();
        let last = u16::try_from(ANSWERED_MAX).unwrap();
        // The highest identifiers first, so age and identifier are not the same order.
        for (at, id) in (0..).zip((1..=last).rev()) {
            assert!(answered.note(1, id, record(0, at), (true, None)).is_empty());
        }
        assert_eq!(answered.note(1, last + 1, record(0, 9_000), (true, None)).as_slice(), [last]);
        assert_eq!(answered.note(1, 7, record(0, 9_001), (true, None)).as_slice(), []);
        assert_eq!(answered.find(&origin(1, last, 0)), None);
        assert!(answered.find(&origin(1, last - 1, 0)).is_some());
        assert_eq!(answered.forget(1).count(), ANSWERED_MAX);
        assert_eq!(answered.forget(1).count(), 0);
    }

    #[test]
    fn the_store_keeps_nothing_that_memory_does_not() {
        let mut answered = Answered::default();
        answered.note(1, 5, record(0, 0), (true, None));
        assert_eq!(answered.note(1, 5, record(1, 1), (false, None)).as_slice(), [5]);
        assert!(answered.note(1, 5, record(2, 2), (true, None)).is_empty());
        assert!(answered.note(1, 6, record(3, 2), (false, None)).is_empty());
        assert_eq!(answered.forget(1).collect::<Vec<_>>(), [5]);
    }
}
