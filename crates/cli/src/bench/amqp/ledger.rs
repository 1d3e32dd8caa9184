//! What was sent, and what came of it.

use std::collections::BTreeSet;

use super::template::Stamp;

/// The messages of all sessions, numbered in each from 0.
pub struct Ledger {
    /// Tells the messages of this run from what an earlier one left.
    run: u32,
    /// Whether the messages of a session have to come in their order.
    is_ordered: bool,
    sessions: Vec<Session>,
    pub counts: Counts,
}

/// All sessions together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    /// The broker has said that it has them.
    pub accepted: u64,
    /// The broker has said that it does not want them.
    pub refused: u64,
    /// Different ones.
    pub received: u64,
    /// Received once more.
    pub again: u64,
    /// Received before one that was sent before.
    pub disordered: u64,
    /// The broker has said that it has removed them.
    pub completed: u64,
    /// Not from this run.
    pub strange: u64,
}

#[derive(Clone, Default)]
struct Session {
    sent: u64,
    /// All below have come.
    floor: u64,
    /// Of the others, those that have come.
    early: BTreeSet<u64>,
}

impl Ledger {
    pub fn new(run: u32, sessions: u32, is_ordered: bool) -> Self {
        let sessions = vec![Session::default(); sessions as usize];
        Self { run, is_ordered, sessions, counts: Counts::default() }
    }

    /// What the next message of a session has in it.
    pub fn send(&mut self, session: u32, due: u64) -> Stamp {
        let sent = &mut self.sessions[session as usize].sent;
        let number = *sent;
        *sent += 1;
        self.counts.sent += 1;
        Stamp { run: self.run, session, number, due }
    }

    /// Notes a message. Whether it is one of this run that has not come before.
    pub fn received(&mut self, stamp: &Stamp) -> bool {
        let session = self.sessions.get_mut(stamp.session as usize);
        let Some(session) = session.filter(|_| stamp.run == self.run) else {
            self.counts.strange += 1;
            return false;
        };
        if stamp.number < session.floor || !session.early.insert(stamp.number) {
            self.counts.again += 1;
            return false;
        }
        self.counts.received += 1;
        self.counts.disordered += u64::from(self.is_ordered && stamp.number != session.floor);
        while session.early.remove(&session.floor) {
            session.floor += 1;
        }
        true
    }

    /// Accepted, and never received.
    pub fn lost(&self) -> u64 {
        self.counts.accepted.saturating_sub(self.counts.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_counted_once() {
        let mut ledger = Ledger::new(7, 2, true);
        let stamps: Vec<_> = [0, 0, 0, 1].map(|session| ledger.send(session, 0)).into();
        ledger.counts.accepted = 4;
        assert!(ledger.received(&stamps[0]));
        assert!(ledger.received(&stamps[2]), "before number 1");
        assert!(ledger.received(&stamps[1]));
        assert!(!ledger.received(&stamps[2]), "again");
        assert!(!ledger.received(&Stamp { run: 8, ..stamps[3] }), "of another run");
        assert!(!ledger.received(&Stamp { session: 2, ..stamps[3] }), "of no session");
        let Counts { sent, received, again, disordered, strange, .. } = ledger.counts;
        assert_eq!((sent, received, again, disordered, strange), (4, 3, 1, 1, 2));
        assert_eq!(ledger.lost(), 1);
    }
}
