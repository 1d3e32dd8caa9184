//! Answers that are kept for requests that clients send again.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::{Answer, Origin, Outcome, Usage};
use crate::ids::{PacketId, SessionNumber};
use crate::state_store::AnsweredRecord;
use crate::time::WallTime;

/// Maximum number of answers to one session that a partition keeps; beyond that the oldest are forgotten. When a client
/// loses its connection, up to this many answers about keys of one shard may be on their way to it, and none of the
/// requests is carried out twice.
pub const ANSWERED_MAX: usize = 1_024;

/// Approximate number of answers that all partitions of a tenant keep. When it is reached, a new answer to a session
/// that has at least [`ANSWERED_LEAST`] answers replaces its oldest one.
pub const ANSWERED_TENANT_MAX: u64 = 1_000_000;

/// Number of answers to one session that a partition keeps regardless of other sessions.
pub const ANSWERED_LEAST: usize = 16;

/// The last answers to each session.
#[derive(Debug, Default)]
pub(super) struct Answered {
    sessions: HashMap<SessionNumber, Answers, FixedState>,
}

#[derive(Debug, Default)]
struct Answers {
    /// The oldest first. Searched only for requests that are sent again.
    by_age: VecDeque<Noted>,
    packet_ids: HashSet<PacketId, FixedState>,
}

#[derive(Debug)]
struct Noted {
    packet_id: PacketId,
    record: AnsweredRecord,
    /// Whether the answer is in the store.
    stored: bool,
    /// The batch that the answer waits for.
    after: Option<u64>,
}

impl Answered {
    /// Returns the answer to a request, if it was answered before.
    pub fn find(&self, origin: &Origin) -> Option<Answer> {
        let mut answers = self.sessions.get(&origin.session)?.by_age.iter();
        let noted = answers.find(|noted| noted.packet_id == origin.packet_id)?;
        (noted.record.correlation == origin.correlation).then_some(Answer {
            outcome: Outcome::Verdict(noted.record.verdict),
            version: noted.record.version,
            after: noted.after,
        })
    }

    /// Notes an answer. Returns the packet identifiers of the session whose answers the store no longer needs.
    pub fn note(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
        (stored, after): (bool, Option<u64>),
    ) -> SmallVec<[PacketId; 2]> {
        let Answers { by_age, packet_ids } = self.sessions.entry(session).or_default();
        let mut gone = SmallVec::new();
        if !packet_ids.insert(packet_id)
            && let Some(at) = by_age.iter().position(|noted| noted.packet_id == packet_id)
        {
            let before = by_age.remove(at);
            usage.remove_answers(1);
            if before.is_some_and(|before| before.stored && !stored) {
                gone.push(packet_id);
            }
        }
        let is_full = usage.answers() >= ANSWERED_TENANT_MAX;
        let most = if is_full { ANSWERED_LEAST } else { ANSWERED_MAX };
        if by_age.len() >= most
            && let Some(oldest) = by_age.pop_front()
        {
            usage.remove_answers(1);
            packet_ids.remove(&oldest.packet_id);
            gone.extend(oldest.stored.then_some(oldest.packet_id));
        }
        // The place is at the end, except for answers that are read from a store.
        let age = |noted: &Noted| noted.record.answered_at <= record.answered_at;
        let at = by_age.partition_point(age);
        by_age.insert(at, Noted { packet_id, record, stored, after });
        usage.add_answers(1);
        gone
    }

    /// Forgets the answers that a session got before `time`. Returns the packet identifiers of those that are in the
    /// store.
    pub fn forget_before(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
        time: WallTime,
    ) -> SmallVec<[PacketId; 2]> {
        let mut gone = SmallVec::new();
        let Some(Answers { by_age, packet_ids }) = self.sessions.get_mut(&session) else {
            return gone;
        };
        let is_older = |noted: &mut Noted| noted.record.answered_at.wall < time.as_millis();
        while let Some(noted) = by_age.pop_front_if(is_older) {
            packet_ids.remove(&noted.packet_id);
            usage.remove_answers(1);
            gone.extend(noted.stored.then_some(noted.packet_id));
        }
        gone
    }

    /// The sessions that have answers, in no particular order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionNumber> {
        self.sessions.keys().copied()
    }

    /// Forgets all sessions.
    pub fn clear(&mut self, usage: &Usage) {
        let answers = self.sessions.drain().map(|(_, answers)| answers.by_age.len() as u64);
        usage.remove_answers(answers.sum());
    }

    /// Gives the answers of a session to another number, which has none. Returns those that are in the store.
    pub fn rename(
        &mut self,
        from: SessionNumber,
        to: SessionNumber,
    ) -> Vec<(PacketId, AnsweredRecord)> {
        let Some(answers) = self.sessions.remove(&from) else { return Vec::new() };
        let stored = answers.by_age.iter().filter(|noted| noted.stored);
        let stored = stored.map(|noted| (noted.packet_id, noted.record)).collect();
        self.sessions.insert(to, answers);
        stored
    }

    /// Forgets a session. Returns the packet identifiers of its answers that are in the store.
    pub fn forget(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
    ) -> impl Iterator<Item = PacketId> + use<> {
        let answers = self.sessions.remove(&session).unwrap_or_default();
        usage.remove_answers(answers.by_age.len() as u64);
        answers.by_age.into_iter().filter(|noted| noted.stored).map(|noted| noted.packet_id)
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::Version;

    use super::*;
    use crate::state_store::Verdict;

    fn record(correlation: u128, at: u64) -> AnsweredRecord {
        let answered_at = Version { wall: at, counter: 0 };
        AnsweredRecord { correlation, verdict: Verdict::Ok, version: None, answered_at }
    }

    fn origin(session: u64, packet_id: u16, correlation: u128) -> Origin {
        Origin { session, packet_id, correlation, stored: true, settled: WallTime::default() }
    }

    #[test]
    fn only_the_same_request_is_the_same() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        answered.note(&usage, 1, 2, record(3, 0), (true, Some(9)));
        assert_eq!(answered.find(&origin(1, 2, 3)).unwrap().after, Some(9));
        for other in [origin(0, 2, 3), origin(1, 1, 3), origin(1, 2, 4)] {
            assert_eq!(answered.find(&other), None);
        }
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        let last = u16::try_from(ANSWERED_MAX).unwrap();
        // The highest identifiers first, so that age and identifier have different orders.
        for (at, id) in (0..).zip((1..=last).rev()) {
            assert!(answered.note(&usage, 1, id, record(0, at), (true, None)).is_empty());
        }
        assert_eq!(
            answered.note(&usage, 1, last + 1, record(0, 9_000), (true, None)).as_slice(),
            [last]
        );
        assert_eq!(answered.note(&usage, 1, 7, record(0, 9_001), (true, None)).as_slice(), []);
        assert_eq!(answered.find(&origin(1, last, 0)), None);
        assert!(answered.find(&origin(1, last - 1, 0)).is_some());
        assert_eq!(answered.forget(&usage, 1).count(), ANSWERED_MAX);
        assert_eq!(answered.forget(&usage, 1).count(), 0);
    }

    #[test]
    fn what_is_found_in_a_store_has_its_age() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        let last = u64::try_from(ANSWERED_MAX).unwrap();
        for id in 1..=last {
            // Read in the order of the identifiers; the oldest answer is in the middle.
            let age = (id + last / 2) % last;
            answered.note(&usage, 1, u16::try_from(id).unwrap(), record(0, age), (true, None));
        }
        let oldest = u16::try_from(last / 2).unwrap();
        let another = u16::MAX;
        assert_eq!(
            answered.note(&usage, 1, another, record(0, 500), (true, None)).as_slice(),
            [oldest]
        );
    }

    #[test]
    fn what_is_settled_is_forgotten() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        for (id, at) in [(1, 10), (2, 20), (3, 30)] {
            answered.note(&usage, 1, id, record(0, at), (id != 2, None));
        }
        let before = |millis| WallTime::from_millis(millis);
        assert!(answered.forget_before(&usage, 1, before(10)).is_empty());
        assert_eq!(answered.forget_before(&usage, 1, before(30)).as_slice(), [1]);
        assert_eq!(answered.find(&origin(1, 2, 0)), None);
        assert!(answered.find(&origin(1, 3, 0)).is_some());
        assert!(answered.note(&usage, 1, 1, record(0, 40), (true, None)).is_empty());
        assert!(answered.find(&origin(1, 1, 0)).is_some());
        assert!(answered.forget_before(&usage, 2, before(99)).is_empty());
    }

    #[test]
    fn the_store_keeps_nothing_that_memory_does_not() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        answered.note(&usage, 1, 5, record(0, 0), (true, None));
        assert_eq!(answered.note(&usage, 1, 5, record(1, 1), (false, None)).as_slice(), [5]);
        assert!(answered.note(&usage, 1, 5, record(2, 2), (true, None)).is_empty());
        assert!(answered.note(&usage, 1, 6, record(3, 2), (false, None)).is_empty());
        assert_eq!(answered.forget(&usage, 1).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_tenant_has_only_so_many_but_each_session_some() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        let least = u16::try_from(ANSWERED_LEAST).unwrap();
        for id in 1..=least + 2 {
            assert!(answered.note(&usage, 1, id, record(0, id.into()), (true, None)).is_empty());
        }
        let others = ANSWERED_TENANT_MAX - usage.answers();
        usage.add_answers(others);
        let gone = answered.note(&usage, 1, 100, record(0, 100), (true, None));
        assert_eq!(gone.as_slice(), [1], "it gets no more than it has");
        for id in 1..=least {
            let gone = answered.note(&usage, 2, id, record(0, id.into()), (true, None));
            assert!(gone.is_empty(), "so many are for everyone");
        }
        let gone = answered.note(&usage, 2, 100, record(0, 100), (true, None));
        assert_eq!(gone.as_slice(), [1]);
        usage.remove_answers(others);
        assert!(answered.note(&usage, 2, 101, record(0, 101), (true, None)).is_empty());
        assert_eq!(answered.forget(&usage, 1).count(), ANSWERED_LEAST + 2);
        assert_eq!(answered.forget(&usage, 2).count(), ANSWERED_LEAST + 1);
        assert_eq!(usage.answers(), 0);
    }

    #[test]
    fn each_is_counted_once() {
        let (mut answered, usage) = (Answered::default(), Usage::default());
        for (id, at) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
            answered.note(&usage, 1, id, record(0, at), (false, None));
        }
        assert_eq!(usage.answers(), 3);
        answered.forget_before(&usage, 1, WallTime::from_millis(4));
        assert_eq!(usage.answers(), 1);
        assert_eq!(answered.forget(&usage, 1).count(), 0, "they are not in the store");
        assert_eq!(usage.answers(), 0);
    }
}
