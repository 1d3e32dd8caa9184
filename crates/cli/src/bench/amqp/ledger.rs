//! What was sent, and what came of it.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::template::Stamp;

/// Of a message that nobody here has sent.
pub const STRANGE: &str = "there are other messages in the queue: purge it first";

/// The messages of all sessions, numbered in each from 0.
pub struct Ledger {
    /// Tells the messages of this run from what an earlier one left.
    run: u32,
    /// Whether only those count.
    is_own: bool,
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
    /// With the messages of run number `run`; if it `is_own`, no others may come.
    pub fn new(run: u32, is_own: bool, sessions: u32, is_ordered: bool) -> Self {
        let sessions = vec![Session::default(); sessions as usize];
        Self { run, is_own, is_ordered, sessions, counts: Counts::default() }
    }

    /// What the next message of a session has in it.
    pub fn send(&mut self, session: u32, due: u64) -> Stamp {
        let sent = &mut self.sessions[session as usize].sent;
        let number = *sent;
        *sent += 1;
        self.counts.sent += 1;
        Stamp { run: self.run, session, number, due }
    }

    /// Notes a message. Whether it has not come before.
    ///
    /// # Errors
    /// It is none of this run, or of another one that had more sessions.
    pub fn received(&mut self, stamp: &Stamp) -> anyhow::Result<bool> {
        let session = self.sessions.get_mut(stamp.session as usize);
        let session = session.filter(|_| stamp.run == self.run || !self.is_own).context(STRANGE)?;
        if stamp.number < session.floor || !session.early.insert(stamp.number) {
            self.counts.again += 1;
            return Ok(false);
        }
        self.counts.received += 1;
        self.counts.disordered += u64::from(self.is_ordered && stamp.number != session.floor);
        while session.early.remove(&session.floor) {
            session.floor += 1;
        }
        Ok(true)
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
        let mut ledger = Ledger::new(7, true, 2, true);
        let stamps: Vec<_> = [0, 0, 0, 1].map(|session| ledger.send(session, 0)).into();
        ledger.counts.accepted = 4;
        assert!(ledger.received(&stamps[0]).unwrap());
        assert!(ledger.received(&stamps[2]).unwrap(), "before number 1");
        assert!(ledger.received(&stamps[1]).unwrap());
        assert!(!ledger.received(&stamps[2]).unwrap(), "again");
        ledger.received(&Stamp { run: 8, ..stamps[3] }).unwrap_err();
        ledger.received(&Stamp { session: 2, ..stamps[3] }).unwrap_err();
        let Counts { sent, received, again, disordered, .. } = ledger.counts;
        assert_eq!((sent, received, again, disordered), (4, 3, 1, 1));
        assert_eq!(ledger.lost(), 1);
    }
}
